"""While a graph is looked up, memory is made ready for the gradients of its first backward: for which, and until when."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import rekindle
import torch
from rekindle import _native
from rekindle.lookup import store
from torch import nn

pytestmark = pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="one core has no time for it")

_sizes: Iterator[int] = iter(range(70_001, 80_000))  # of which nothing has been freed before


def weight() -> nn.Parameter:
    return nn.Parameter(torch.ones(next(_sizes)))


def with_a_gradient(leaf: nn.Parameter) -> None:
    leaf.grad = torch.ones_like(leaf)


LEFT_OUT: dict[str, Callable[[nn.Parameter], Any]] = {
    "frozen": lambda leaf: leaf.requires_grad_(False),
    "with a gradient": with_a_gradient,
    "whose gradient leaves": lambda leaf: leaf.register_post_accumulate_grad_hook(lambda _: None),
}


@pytest.mark.parametrize("how", LEFT_OUT)
def test_memory_is_made_ready_for_gradients_that_will_be_allocated(how: str) -> None:
    one, other = weight(), weight()
    LEFT_OUT[how](other)
    with _native.PendingMemory([one, other, one * 2, torch.ones(3)]) as memory:
        assert memory.bytes == one.nbytes
        memory.withdraw()
        assert memory.bytes == 0
    with _native.PendingMemory([one]) as memory:
        pass
    assert memory.bytes == 0


class Scaled(nn.Module):
    """Has a weight of a size that no other test has."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = weight()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (self.weight * x).sum()


def test_it_is_withdrawn_at_a_miss_and_handed_over_at_a_hit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[Any] = []
    made = _native.PendingMemory
    monkeypatch.setattr(_native, "PendingMemory", lambda leaves: seen.append(made(leaves)) or seen[-1])
    withdrawn: list[int] = []
    monkeypatch.setattr("rekindle.miss.pipeline.export_entry", _noting(withdrawn, seen))
    module = Scaled()
    options = rekindle.Options(start="wait", cache_dir=str(tmp_path), fallback="error")
    rekindle.Module(module, options)(torch.tensor(2.0))
    assert withdrawn == [0], "the export has the memory to itself"
    store.flush()
    again = rekindle.Module(module, options)
    loss = again(torch.tensor(2.0))
    assert rekindle.status(again).hits == 1
    loss.backward()
    assert module.weight.grad is not None
    assert module.weight.grad.unique().tolist() == [2.0]


@pytest.mark.parametrize("trains", [True, False])
def test_it_is_for_modules_in_training(trains: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    made = _native.PendingMemory
    monkeypatch.setattr(_native, "PendingMemory", lambda leaves: asked.append(len(leaves)) or made(leaves))
    rekindle.Module(Scaled().train(trains), rekindle.Options(start="wait", cache_dir=str(tmp_path)))(torch.tensor(2.0))
    assert asked == [int(trains)]


def _noting(withdrawn: list[int], seen: list[Any]) -> Callable[..., Any]:
    from rekindle.miss import pipeline

    export = pipeline.export_entry

    def noted(*args: Any) -> Any:
        withdrawn.append(seen[-1].bytes)
        return export(*args)

    return noted
