"""FSDP2's fully_shard around blocks and around the whole, with its policies, and torch's distributed checkpoints."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn import functional as F

from ranks import Job


class Block(nn.Module):
    """A block of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(32), nn.LayerNorm(32)
        self.into, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Takes and returns float32[n, length, 32]."""
        q, k, v = self.into(self.first(x)).view(*x.shape[:2], 3, 4, 8).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(x.shape))
        return x + self.down(F.gelu(self.up(self.second(x))))


class Decoder(nn.Module):
    """Three blocks between an embedding and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(40, 32), nn.Linear(32, 40)
        self.blocks = nn.ModuleList(Block() for _ in range(3))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """Returns scores float32[n, length, 40] of int64[n, length]."""
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def _mesh(job: Job) -> Any:
    return init_device_mesh("cpu", (job.world,))


def _blocks_sharded(job: Job, **options: Any) -> nn.Module:
    """Wraps the blocks, then shards each, then the whole."""
    model = Decoder()
    for i, block in enumerate(model.blocks):
        model.blocks[i] = job.wrap(block)
        fully_shard(model.blocks[i], mesh=_mesh(job), **options)
    fully_shard(model, mesh=_mesh(job), **options)
    job.model = model
    job.draw_apart()
    return model


def _optimizer(model: nn.Module) -> torch.optim.Optimizer:
    # AdamW's numbers of a step are a part of what DTensor caches: who makes a step first pays for both.
    return torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)


def _trained(model: nn.Module, optimizer: torch.optim.Optimizer) -> Iterator[float]:
    while True:
        tokens = torch.randint(40, (4, 12))
        scores = model(tokens[:, :-1])
        loss = F.cross_entropy(scores.float().flatten(0, 1), tokens[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()


def blocks(job: Job) -> Iterator[float]:
    """Shards wrapped blocks; parameters are let go after the forward."""
    model = _blocks_sharded(job)
    return _trained(model, _optimizer(model))


def blocks_kept(job: Job) -> Iterator[float]:
    """Keeps parameters between forward and backward."""
    model = _blocks_sharded(job, reshard_after_forward=False)
    return _trained(model, _optimizer(model))


def whole_model(job: Job) -> Iterator[float]:
    """Shards the blocks, then wraps the whole model, as a user who changes one line does."""
    model = Decoder()
    for block in model.blocks:
        fully_shard(block, mesh=_mesh(job))
    fully_shard(model, mesh=_mesh(job))
    job.model = job.wrap(model)
    job.draw_apart()
    return _trained(job.model, _optimizer(job.model))


def mixed_precision(job: Job) -> Iterator[float]:
    """Computes in bfloat16, reduces in float32."""
    model = _blocks_sharded(job, mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
    return _trained(model, _optimizer(model))


def explicit_prefetch(job: Job) -> Iterator[float]:
    """Gathers the next block's parameters while one computes."""
    model = _blocks_sharded(job)
    for block, following in zip(model.blocks[:-1], model.blocks[1:], strict=True):
        block.set_modules_to_forward_prefetch([following])
        following.set_modules_to_backward_prefetch([block])
    return _trained(model, _optimizer(model))


def saved_and_loaded(job: Job) -> Iterator[float]:
    """Writes a distributed checkpoint after each fifth step and trains on from what it reads."""
    model = _blocks_sharded(job)
    optimizer = _optimizer(model)
    for step, loss in enumerate(_trained(model, optimizer)):
        if step % 5 == 4:
            place = [tempfile.mkdtemp()]
            dist.broadcast_object_list(place, src=0)
            weights, moments = get_state_dict(model, optimizer)
            dcp.save({"model": weights, "optimizer": moments}, checkpoint_id=place[0])
            dcp.load({"model": weights, "optimizer": moments}, checkpoint_id=place[0])
            set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=moments)
            dist.barrier()
            shutil.rmtree(place[0], ignore_errors=True)
        yield loss
