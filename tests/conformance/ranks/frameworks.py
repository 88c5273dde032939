"""accelerate and Lightning with several ranks."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn
from torch.nn import functional as F
from training.frameworks import fitted

from ranks import Job
from ranks.replicated import Perceptron


def accelerate_loop(job: Job) -> Iterator[float]:
    """accelerate's example, whose `prepare` makes the model DistributedDataParallel."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    own = job.wrap(Perceptron())
    model, optimizer = accelerator.prepare(own, torch.optim.AdamW(own.parameters(), lr=1e-3))
    job.model = model
    job.draw_apart()
    while True:
        total = 0.0
        for _ in range(2):
            with accelerator.accumulate(model):
                loss = F.cross_entropy(model(torch.randn(16, 32)), torch.randint(8, (16,)))
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
            total += loss.item()
        yield total


def lightning_ddp(job: Job) -> Iterator[float]:
    """Lightning with strategy="ddp", and the module that computes wrapped in the LightningModule's constructor."""

    def wrap(module: nn.Module) -> nn.Module:
        job.model = job.wrap(module)
        return job.model

    return fitted(lambda module: module, wrap, devices=job.world, strategy="ddp")
