"""A module with parts, and its training in eager, with a cold and with a warm cache."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import rekindle
import torch
from seeded import seeded
from torch import nn


class Block(nn.Module):
    """A residual block with statistics and random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)
        self.drop = nn.Dropout(0.2)

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        return x + scale * self.drop(self.down(torch.relu(self.up(self.norm(x)))))


class Branching(Block):
    """Branches on a value, which no graph does."""

    def forward(self, x: torch.Tensor, *, scale: float = 1.0) -> torch.Tensor:
        y = super().forward(x, scale=scale)
        return y * 2 if y.sum() > 0 else y


class Encoder(nn.Module):
    """Blocks in a list, one of which branches."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([Block(), Branching(), nn.Sequential(nn.Linear(4, 4), nn.Tanh())])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


class Model(nn.Module):
    """Blocks and a head around a forward that is given."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        super().__init__()
        self.first, self.second, self.encoder = Block(), Block(), Encoder()
        self.head = nn.Linear(4, 2)
        self.calls = 0
        self.does = forward

    def forward(self, x: torch.Tensor) -> Any:
        return self.does(self, x)


def straight(self: Model, x: torch.Tensor) -> torch.Tensor:
    return self.head(self.second(self.first(x), scale=0.5))


def rows(step: int) -> torch.Tensor:
    return torch.randn(6, 4, generator=seeded(step)).requires_grad_()


def trained(model: nn.Module, module: nn.Module, steps: int = 4) -> dict[str, Any]:
    """All that a few steps leave behind."""
    torch.manual_seed(7)
    optimizer = torch.optim.SGD(model.parameters(), 0.01)
    results, gradients = [], []
    for step in range(steps):
        x = rows(step)
        optimizer.zero_grad()
        result = model(x)
        result.square().mean().backward()
        optimizer.step()
        results.append(result.detach())
        gradients += [x.grad, *(p.grad.clone() for p in model.parameters() if p.grad is not None)]
    return {"results": results, "gradients": gradients, "state": {**module.state_dict()}, "random": torch.get_rng_state()}


def compared(
    make: Callable[[], Model], prepare: Callable[[Any, Model], Any] = lambda model, module: None, **options: Any
) -> rekindle.Status:
    """Train in eager, with a cold and a warm cache; `prepare` gets the model and its module, and returns what else to compare."""
    torch.manual_seed(0)
    module, expected = make(), None
    for kind in ("eager", "cold", "warm"):
        own = copy.deepcopy(module)
        model = own if kind == "eager" else rekindle.Module(own, rekindle.Options(log="error", **options))
        also = prepare(model, own)
        found = {**trained(model, own), "also": also}
        if expected is None:
            expected = found
        assert found["also"] == expected["also"], kind
        for what in ("results", "gradients", "state", "random"):
            torch.testing.assert_close(
                found[what], expected[what], rtol=2e-4, atol=2e-5, msg=lambda text, what=what, kind=kind: f"{kind} {what}: {text}"
            )
        assert not any("forward" in part.__dict__ for part in own.modules())
        rekindle.lookup.store.flush()
    status = rekindle.status(model)
    assert status.exports == 0, "the warm run exports nothing"
    return status


def sources(status: rekindle.Status) -> dict[str, str]:
    return {part.name: part.source for part in status.parts}
