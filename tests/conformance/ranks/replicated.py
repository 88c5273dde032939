"""DistributedDataParallel as its users call it, and torch's ZeroRedundancyOptimizer."""

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from ranks import Job

_BUCKET = 0.01  # MB: several buckets


class Perceptron(nn.Module):
    """Four layers with dropout: float32[n, 32] becomes float32[n, 8]."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(32, 64), nn.Linear(64, 64), nn.Linear(64, 64)])
        self.norm, self.drop, self.head = nn.LayerNorm(64), nn.Dropout(0.1), nn.Linear(64, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Returns scores float32[n, 8]."""
        for layer in self.layers:
            x = self.drop(F.gelu(layer(x)))
        return self.head(self.norm(x))


def _batch(rows: int = 16) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(rows, 32), torch.randint(8, (rows,))


def _replicated(job: Job, module: nn.Module, **options: Any) -> DistributedDataParallel:
    """Returns DistributedDataParallel around the wrapped module."""
    job.model = DistributedDataParallel(job.wrap(module), bucket_cap_mb=_BUCKET, **options)
    job.draw_apart()
    return job.model


def _trained(model: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[float]:
    while True:
        x, labels = _batch()
        loss = F.cross_entropy(model(x), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


def plain(job: Job) -> Iterator[float]:
    """Trains as PyTorch's tutorial does."""
    model = _replicated(job, Perceptron())
    return _trained(model, torch.optim.AdamW(model.parameters(), lr=1e-3))


def wrapped_outside(job: Job) -> Iterator[float]:
    """Wraps what is DistributedDataParallel already."""
    job.model = job.wrap(DistributedDataParallel(Perceptron(), bucket_cap_mb=_BUCKET))
    job.draw_apart()
    return _trained(job.model, torch.optim.AdamW(job.model.parameters(), lr=1e-3))


def views_of_buckets(job: Job) -> Iterator[float]:
    """Lets gradients be views of the buckets."""
    model = _replicated(job, Perceptron(), gradient_as_bucket_view=True)
    return _trained(model, torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9))


def accumulated(job: Job) -> Iterator[float]:
    """Accumulates three batches, of which the last is reduced."""
    model = _replicated(job, Perceptron())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    while True:
        total = 0.0
        for i in range(3):
            x, labels = _batch()
            with model.no_sync() if i < 2 else contextlib.nullcontext():
                loss = F.cross_entropy(model(x), labels) / 3
                loss.backward()
            total += loss.item()
        optimizer.step()
        optimizer.zero_grad()
        yield total


def static_graph(job: Job) -> Iterator[float]:
    """Promises that each step has the same graph."""
    model = _replicated(job, Perceptron(), static_graph=True)
    return _trained(model, torch.optim.AdamW(model.parameters(), lr=1e-3))


class _TwoHeads(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = Perceptron()
        self.heads = nn.ModuleList([nn.Linear(8, 8), nn.Linear(8, 8)])

    def forward(self, x: torch.Tensor, head: int) -> torch.Tensor:
        return self.heads[head](self.body(x))


def unused_parameters(job: Job) -> Iterator[float]:
    """Leaves one of two heads out at each step, another one in each rank."""
    model = _replicated(job, _TwoHeads(), find_unused_parameters=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    step = 0
    while True:
        x, labels = _batch()
        loss = F.cross_entropy(model(x, (step + job.rank) % 2), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        step += 1
        yield loss.item()


class _TwoLosses(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.other = Perceptron(), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.body(x)
        return y, self.other(y)


def two_backwards(job: Job) -> Iterator[float]:
    """Has two results whose losses are summed."""
    model = _replicated(job, _TwoLosses())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    while True:
        x, labels = _batch()
        scores, others = model(x)
        loss = F.cross_entropy(scores, labels) + others.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


def comm_hook(job: Job) -> Iterator[float]:
    """Compresses buckets to bfloat16."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import bf16_compress_hook

    model = _replicated(job, Perceptron())
    model.register_comm_hook(None, bf16_compress_hook)
    return _trained(model, torch.optim.AdamW(model.parameters(), lr=1e-3))


def order_of_buckets(job: Job) -> Iterator[float]:
    """Yields in what order buckets became ready, and how many parameters of each: losses come in between."""
    from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook

    seen: list[float] = []

    def noting(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        seen.append(bucket.index() + len(bucket.parameters()) / 100)
        return allreduce_hook(state, bucket)

    model = _replicated(job, Perceptron())
    model.register_comm_hook(None, noting)
    steps = _trained(model, torch.optim.AdamW(model.parameters(), lr=1e-3))
    while True:
        seen.clear()
        loss = next(steps)
        yield loss + sum(10.0 * (i + 1) * bucket for i, bucket in enumerate(seen))


def uneven_inputs(job: Job) -> Iterator[float]:
    """Has fewer batches in one rank: the others go on, which it joins."""
    model = _replicated(job, Perceptron())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    while True:
        total = 0.0
        with Join([model]):
            for _ in range(2 + (job.rank == 0)):
                x, labels = _batch()
                loss = F.cross_entropy(model(x), labels)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                total += loss.item()
        yield total


class _Normalized(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(32, 64), nn.BatchNorm1d(64), nn.Linear(64, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(F.relu(self.norm(self.first(x))))


def buffers(job: Job) -> Iterator[float]:
    """Sends the statistics of a batch norm from rank 0 to the others before each forward."""
    model = _replicated(job, _Normalized())
    return _trained(model, torch.optim.AdamW(model.parameters(), lr=1e-3))


def zero_redundancy(job: Job) -> Iterator[float]:
    """Shards the optimizer's state, and overlaps nothing."""
    model = _replicated(job, Perceptron(), gradient_as_bucket_view=True)
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-3, parameters_as_bucket_view=True)
    return _trained(model, optimizer)
