"""`rekindle.release_memory()` gives back what is kept between steps, which `Status.kept_bytes` counts; steps go on as before."""

from __future__ import annotations

from pathlib import Path

import rekindle
import torch
from torch import nn

WIDTH = 512  # a weight of 1 MiB


def test_what_is_kept_between_steps_is_given_back(tmp_path: Path) -> None:
    torch.manual_seed(0)
    eager = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh(), nn.Linear(WIDTH, WIDTH))
    model.load_state_dict(eager.state_dict())
    wrapped = rekindle.Module(model, options=rekindle.Options(start="wait", cache_dir=str(tmp_path)))
    optimizers = [torch.optim.SGD(one.parameters(), lr=0.1) for one in (eager, wrapped)]
    x = torch.randn(64, WIDTH)

    def step() -> None:
        for module, optimizer in zip((eager, wrapped), optimizers, strict=True):
            optimizer.zero_grad()
            module(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    for _ in range(3):
        step()
    kept = rekindle.status(wrapped).kept_bytes
    assert kept >= 2 * WIDTH * WIDTH * 4, "the gradients of two weights"
    assert rekindle.release_memory() >= kept
    assert rekindle.status(wrapped).kept_bytes == 0
    step()
    torch.testing.assert_close(model.state_dict(), eager.state_dict())
    assert rekindle.status(wrapped).eager_calls == 0
