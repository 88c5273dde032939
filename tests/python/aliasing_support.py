"""Steps of a wrapped module beside its twin in eager."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rekindle
import torch
from seeded import seeded
from torch import nn

Step = Callable[[nn.Module, int], Any]


def rows(step: int = 0) -> torch.Tensor:
    return torch.randn(3, 4, generator=seeded(step))


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)


def call(model: nn.Module, step: int) -> torch.Tensor:
    return model(rows(step))


def fill(model: nn.Module, step: int) -> None:
    with torch.no_grad():
        model.mean.fill_(step + 3.0)


def load(model: nn.Module, step: int) -> None:
    state = {name: value.clone() for name, value in model.state_dict().items()}
    state["mean"] = torch.full((4,), step + 7.0)
    model.load_state_dict(state)


def run(make: Callable[[], nn.Module], steps: list[Step], **options: Any) -> rekindle.Module:
    """The wrapped model, after it did the same as its twin in eager at each step."""
    made = []
    for _ in range(2):
        torch.manual_seed(0)
        made.append(make())
    eager, wrapped = made[0], rekindle.Module(made[1], rekindle.Options(**options)) if options else rekindle.Module(made[1])
    for i, step in enumerate(steps):
        theirs, ours = step(eager, i), step(wrapped, i)
        torch.testing.assert_close(ours, theirs, msg=lambda text, i=i: f"step {i}: {text}")
        if isinstance(theirs, torch.Tensor) and theirs.requires_grad:
            for model, result in ((eager, theirs), (wrapped, ours)):
                model.zero_grad()
                result.sum().backward()
        for (name, mine), (_, other) in zip(wrapped.state_dict().items(), eager.state_dict().items(), strict=True):
            torch.testing.assert_close(mine, other, msg=lambda text, name=name, i=i: f"step {i}, {name}: {text}")
        for mine, other in zip(wrapped.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, other.grad)
    return wrapped
