"""One model in several ranks: layers split by columns and rows, sequences split, stages of a pipeline."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn import functional as F

from ranks import Job


class _Copied(torch.autograd.Function):
    """Gives every rank the same; gradients are summed."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        summed = gradients[0].clone()
        dist.all_reduce(summed)
        return summed


class _Reduced(torch.autograd.Function):
    """Sums over the ranks; each has the same gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        summed = x.clone()
        dist.all_reduce(summed)
        return summed

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0]


class _Gathered(torch.autograd.Function):
    """Puts the parts of a sequence together; each rank's gradient is its part of the sum."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        parts = [torch.empty_like(x) for _ in range(dist.get_world_size())]
        dist.all_gather(parts, x.contiguous())
        return torch.cat(parts, dim=1)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        summed = gradients[0].clone()
        dist.all_reduce(summed)
        return summed.chunk(dist.get_world_size(), dim=1)[dist.get_rank()].contiguous()


class _SplitLayers(nn.Module):
    def __init__(self, world: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(32), nn.Linear(32, 64 // world), nn.Linear(64 // world, 32, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = F.gelu(self.up(_Copied.apply(self.norm(x))))
        return x + _Reduced.apply(self.down(hidden))


class _SplitSequence(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.both, self.out = nn.Linear(32, 32), nn.Linear(32, 64), nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        keys, values = _Gathered.apply(self.both(x)).chunk(2, dim=-1)
        return x + self.out(F.scaled_dot_product_attention(self.query(x), keys, values))


def _trained(job: Job, model: nn.Module, optimizer: torch.optim.Optimizer, shape: tuple[int, ...]) -> Iterator[float]:
    job.model = model  # all ranks draw the same
    while True:
        loss = (model(torch.randn(shape)) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


def tensor_parallel(job: Job) -> Iterator[float]:
    """Splits two layers by columns and rows, with the collectives in autograd Functions."""
    model = job.wrap(_SplitLayers(job.world))
    return _trained(job, model, torch.optim.AdamW(model.parameters(), lr=1e-3), (8, 32))


def sequence_parallel(job: Job) -> Iterator[float]:
    """Splits the sequence of an attention whose keys and values are gathered."""
    model = job.wrap(_SplitSequence())
    job.draw_apart()
    return _trained(job, model, torch.optim.AdamW(model.parameters(), lr=1e-3), (2, 6, 32))


def dtensor_parallel(job: Job) -> Iterator[float]:
    """Splits layers by parallelize_module, whose parameters are DTensors."""
    mesh = init_device_mesh("cpu", (job.world,))
    layers = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))
    split = parallelize_module(layers, mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    model = job.wrap(split)
    return _trained(job, model, torch.optim.SGD(model.parameters(), lr=0.05), (8, 32))


def pipeline(job: Job) -> Iterator[float]:
    """Makes each rank a stage of a GPipe schedule with two microbatches."""
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    model = job.wrap(nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32)))
    stage = PipelineStage(model, job.rank, job.world, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, 2, loss_fn=lambda y, target: (y - target).square().mean())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    job.model = model
    last = job.rank == job.world - 1
    while True:
        inputs, targets, losses = torch.randn(8, 32), torch.ones(8, 32), []
        optimizer.zero_grad()
        schedule.step(*([inputs] if job.rank == 0 else []), **({"target": targets, "losses": losses} if last else {}))
        optimizer.step()
        yield float(sum(loss.item() for loss in losses))
