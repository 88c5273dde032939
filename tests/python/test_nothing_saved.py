"""A forward that saves nothing for a backward is the same forward: see process/nothing_saved.py."""

from __future__ import annotations

import gc
import weakref

import pytest
import rekindle
import torch
from rekindle.miss import open_shapes, sized
from rekindle.process.nothing_saved import SavedNothing, nothing_saved
from torch import nn


class Wide(nn.Module):
    """Runs a backward in its forward if it is asked to."""

    def __init__(self, differentiates: bool) -> None:
        super().__init__()
        self.differentiates, self.a, self.b = differentiates, nn.Linear(8, 8), nn.Linear(8, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.a(x).exp()
        if self.differentiates:
            with torch.enable_grad():
                y = self.b(h).sum()
                h = h + torch.autograd.grad(y, h, create_graph=True)[0]
        return self.b(self.seen(h).tanh())

    def seen(self, h: torch.Tensor) -> torch.Tensor:
        return h


class Watched(Wide):
    def seen(self, h: torch.Tensor) -> torch.Tensor:
        self.last = weakref.ref(h)
        return h


def test_the_result_is_differentiable_and_holds_nothing() -> None:
    module, x = Watched(False), torch.randn(3, 8)
    with nothing_saved():
        y = module(x)
    gc.collect()
    assert y.requires_grad and module.last() is None
    assert torch.equal(y, module(x))
    with pytest.raises(SavedNothing):
        y.sum().backward()


@pytest.mark.parametrize("differentiates", [False, True])
def test_larger_calls_of_a_large_model_hold_nothing(differentiates: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each model is large here; one whose forward runs a backward runs again, and is refused or served as before."""
    monkeypatch.setattr(sized, "_LARGE", 0)
    lightly = []
    monkeypatch.setattr(open_shapes, "call_lightly", lambda *given: lightly.append(given) or call_lightly(*given))
    module = Wide(differentiates)
    wrapped = rekindle.Module(module, rekindle.Options(cache="off", log="error", start="wait"))
    for rows in (3, 5):
        x = torch.randn(rows, 8)
        ours, theirs = wrapped(x), module(x)
        torch.testing.assert_close(ours, theirs)
        torch.testing.assert_close(*(torch.autograd.grad(y.sum(), [module.a.weight, module.b.weight]) for y in (ours, theirs)))
    assert lightly or differentiates


def test_sizes_that_change_together_stay_near_those_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of thousands beside a few features does not become as many features."""
    elements = []
    monkeypatch.setattr(open_shapes, "resized", lambda *given: _noted(elements, resized(*given)))
    x = torch.randn(3000, 8)
    wrapped = rekindle.Module(nn.Linear(8, 4), rekindle.Options(cache="off", log="error", start="wait", fallback="error"))
    wrapped(x)
    assert len(elements) > 4 and max(elements) <= 5 * x.numel()


def _noted(elements: list[int], tensors: list[torch.Tensor]) -> list[torch.Tensor]:
    elements.append(sum(tensor.numel() for tensor in tensors))
    return tensors


call_lightly, resized = open_shapes.call_lightly, open_shapes.resized
