"""DeepSpeed's ZeRO on the CPU: optimizer state, gradients, then parameters in shards."""

from __future__ import annotations

import os
from collections.abc import Iterator

import torch
from torch.nn import functional as F

from ranks import Job
from ranks.sharded import Block, Decoder


def stage_1(job: Job) -> Iterator[float]:
    """Shards the optimizer's state."""
    return _trained(job, 1)


def stage_2(job: Job) -> Iterator[float]:
    """Shards gradients, too."""
    return _trained(job, 2)


def stage_3(job: Job) -> Iterator[float]:
    """Shards parameters, too, which hooks on submodules gather."""
    return _trained(job, 3)


def stage_3_leaves(job: Job) -> Iterator[float]:
    """Gathers the parameters of a block at once."""
    return _trained(job, 3, leaves=True)


def _trained(job: Job, stage: int, leaves: bool = False) -> Iterator[float]:
    os.environ["DS_ACCELERATOR"] = "cpu"
    import deepspeed

    own = job.wrap(Decoder())
    if leaves:
        deepspeed.utils.set_z3_leaf_modules(own, [Block])
    settings = {
        "train_micro_batch_size_per_gpu": 4,
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
        "zero_allow_untested_optimizer": True,
    }
    engine, *_ = deepspeed.initialize(model=own, optimizer=torch.optim.AdamW(own.parameters(), lr=1e-3), config=settings)
    job.model = engine
    job.draw_apart()
    while True:
        tokens = torch.randint(40, (4, 12))
        scores = engine(tokens[:, :-1])
        loss = F.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())
        engine.backward(loss)
        engine.step()
        yield loss.item()
