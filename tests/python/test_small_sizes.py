"""Calls in which a size is 0, or 1: what ATen does there by a short cut is not taken for what it does at other sizes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import torch
import torch.nn.functional as F
from module_support import assert_same
from semantics_support import made_of
from torch import nn

_ROWS = 6


class Chosen(nn.Module):
    """Does something with the rows of a linear layer that a mask chooses."""

    def __init__(self, then: Callable[[nn.Module, torch.Tensor], Any]) -> None:
        super().__init__()
        self.then = then
        self.a, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor, mask: torch.Tensor) -> Any:
        return self.then(self, self.a(x)[mask])


CASES: dict[str, tuple[Callable[[nn.Module, torch.Tensor], Any], int]] = {
    "a dropout": (lambda self, y: F.dropout(y, 0.5), 0),
    "a norm's statistics": (lambda self, y: self.norm(y), 0),
    "differences": (lambda self, y: (y.diff(dim=0).sum(), y * 2), 0),
    "places": (lambda self, y: (y, (y > 0).nonzero()), 0),
    "an integral": (lambda self, y: torch.trapezoid(y, dim=0), 3),
    "a covariance": (lambda self, y: torch.cov(y), 1),
}


def _inputs(chosen: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    mask = torch.zeros(_ROWS, dtype=torch.bool)
    mask[torch.randperm(_ROWS, generator=generator)[:chosen]] = True
    return torch.randn(_ROWS, 4, generator=generator), mask


def _step(model: nn.Module, module: nn.Module, inputs: tuple[torch.Tensor, ...]) -> list[Any]:
    torch.manual_seed(5)
    module.zero_grad()
    result = model(*inputs)
    results = list(result) if isinstance(result, tuple) else [result]
    loss = sum((one.float() ** 2).sum() for one in results)
    if loss.requires_grad:
        loss.backward()
    found = [(one.detach(), one.numel() and one.stride(), one.requires_grad) for one in results]
    gradients = [parameter.grad for parameter in module.parameters()]
    return [*found, gradients, [buffer.clone() for buffer in module.buffers()], torch.get_rng_state()]


def _check(model: nn.Module, eager: nn.Module, inputs: tuple[torch.Tensor, ...]) -> None:
    assert_same(_step(model, model.module, inputs), _step(eager, eager, inputs))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("start", ["cold", "warm"])
def test_what_a_first_call_does_with_no_rows_is_not_taken_for_more(name: str, start: str) -> None:
    then, first = CASES[name]
    module = Chosen(then)
    for _ in range(1 if start == "cold" else 2):
        eager, model = copy.deepcopy(module), rekindle.Module(copy.deepcopy(module), rekindle.Options(log="error"))
        for seed, chosen in enumerate((first, 3, 0, 5, 2, _ROWS)):
            _check(model, eager, _inputs(chosen, seed))
        rekindle.lookup.store.flush()
    status = rekindle.status(model)
    assert status.hits + status.exports > 0, status.bypass
    assert status.eager_calls <= 3, status.bypass


def test_a_call_that_never_chooses_a_row_has_a_graph_until_one_does() -> None:
    module = Chosen(CASES["a dropout"][0])
    eager, model = copy.deepcopy(module), rekindle.Module(module, rekindle.Options(log="error"))
    sources = []
    for seed, chosen in enumerate((0, 0, 0, 0, 3, 3, 0)):
        _check(model, eager, _inputs(chosen, seed))
        sources.append(rekindle.status(model).source)
    assert sources == ["eager", "eager", "export", "export", "eager", "export", "export"]
    assert [reason for reason, _ in rekindle.status(model).bypass] == ["value_specialized"] * 2


def test_where_eager_is_forbidden_a_graph_is_for_no_rows_at_once() -> None:
    module = Chosen(CASES["a dropout"][0])
    eager, model = copy.deepcopy(module), rekindle.Module(module, rekindle.Options(fallback="error", log="error"))
    _check(model, eager, _inputs(0, seed=1))
    with pytest.raises(rekindle.errors.FallbackError, match="a size of 0"):
        model(*_inputs(3, seed=2))


def test_a_size_that_is_computed_and_0_is_a_question() -> None:
    module = made_of(lambda self, x: (F.dropout(x[:, : x.shape[1] // 8] + 0, 0.5), self.a(x[:, :4]).sum()))()
    eager, model = copy.deepcopy(module), rekindle.Module(module, rekindle.Options(fallback="error", log="error"))
    for length in (5, 6, 16, 7, 24):
        _check(model, eager, (torch.randn(3, length),))
    assert rekindle.status(model).exports == 2
