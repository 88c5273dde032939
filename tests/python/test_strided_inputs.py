"""Inputs that are not contiguous share one export for all sizes, as far as nobody asks for their strides."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import rekindle
import torch
from module_support import Twins
from rekindle.results.layouts import arranged_like, arrangement
from seeded import seeded
from torch import nn


class Loss(nn.Module):
    """What language models compute of tokens and of the same tokens one place on."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.out = nn.Embedding(12, 6), nn.Linear(6, 12)

    def forward(self, tokens: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        return nn.functional.cross_entropy(self.out(self.embed(tokens)).flatten(0, 1), labels.reshape(-1))


class Mixed(nn.Module):
    """By strides, if asked to."""

    def __init__(self, ask: Callable[[torch.Tensor], torch.Tensor] | None = None) -> None:
        super().__init__()
        self.linear, self.ask = nn.Linear(6, 4), ask

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x).tanh() + x.sum()
        return y if self.ask is None else y + self.ask(x)


def _tokens(*sizes: int) -> torch.Tensor:
    return torch.randint(0, 12, sizes, generator=seeded(sum(sizes)))


def _numbers(*sizes: int) -> torch.Tensor:
    return torch.randn(sizes, generator=seeded(sum(sizes)))


def test_tokens_and_labels_of_one_tensor() -> None:
    for exports in (1, 0):
        torch.manual_seed(0)
        twins = Twins(Loss(), fallback="error")
        for batch, length in ((2, 9), (3, 5), (4, 12)):
            tokens = _tokens(batch, length)
            twins.call(tokens[:, :-1], tokens[:, 1:])
        assert twins.status.exports == exports
        rekindle.cache.stats()  # waits until everything is stored


ARRANGED = {
    "gaps": lambda a, b: _numbers(a, b + 2, 6)[:, 1:-1],
    "transposed": lambda a, b: _numbers(b, a, 6).transpose(0, 1),
    "expanded": lambda a, b: _numbers(b, 6).expand(a, -1, -1),
    "gaps in the last dimension": lambda a, b: _numbers(a, b, 6, 2)[..., 0],
    "channels last": lambda a, b: _numbers(a, 6, b).transpose(1, 2),
}


@pytest.mark.parametrize("name", ARRANGED)
def test_each_arrangement_has_one_export(name: str) -> None:
    twins = Twins(Mixed(), fallback="error")
    for a, b in ((3, 5), (2, 7), (5, 3), (3, 5)):
        given = ARRANGED[name](a, b)
        assert not given.is_contiguous()
        x = arranged_like(given, given).requires_grad_()
        y = arranged_like(given, given).requires_grad_()
        assert x.stride() == given.stride()
        for model, argument in ((twins.eager, x), (twins.wrapped, y)):
            model(argument).square().sum().backward()
        torch.testing.assert_close(y.grad, x.grad)
        twins.compare()
    assert twins.status.exports == 1
    twins.call(_numbers(3, 5, 6))
    assert twins.status.exports == 2, "a contiguous tensor is another kind"


ASKED = {
    "stride": lambda x: torch.tensor(float(x.stride(0))),
    "as_strided": lambda x: x.as_strided((2,), (1,)).sum(),
}


@pytest.mark.parametrize("name", ASKED)
def test_a_forward_that_asks_for_strides_is_right_for_these_only(name: str) -> None:
    twins = Twins(Mixed(ASKED[name]))
    for rows in (5, 8, 6):
        twins.call(_numbers(3, rows, 6)[:, :4])  # one shape, other strides
    twins.call(_numbers(2, 5, 6)[:, :4])
    assert twins.status.exports == 4
    rekindle.cache.stats()
    again = Twins(copy.deepcopy(twins.eager))
    for rows in (8, 5):
        again.call(_numbers(3, rows, 6)[:, :4])
    assert again.status.exports == 0
    assert "strides" in str(rekindle.explain(again.wrapped, _numbers(3, 9, 6)[:, :4]))


def test_a_forward_that_asks_where_a_tensor_lies_runs_in_eager() -> None:
    twins = Twins(Mixed(lambda x: torch.tensor(float(x.storage_offset()))))
    for first in (0, 1):
        twins.call(_numbers(3, 6)[first:])
    assert twins.reasons() == ["value_specialized"]


def test_arrangements() -> None:
    x = _numbers(4, 5, 6)
    cases = {
        x: "", x[:, 1:]: "0+ 1 2", x[..., 1:]: "0 1+ 2", x.permute(2, 0, 1): "1 2 0", x[:, :1]: "0+ 2", x[..., 0]: "0 1+",
        x[0].expand(3, 5, 6): "1 2 0*", x[:0]: "", x.unfold(1, 3, 1): None, x.as_strided((3, 3), (1, 1)): None, x[:, ::2]: None,
    }  # fmt: skip
    for tensor, expected in cases.items():
        assert arrangement(tensor) == expected
        if expected:
            larger = tensor.repeat([2 if size > 1 else 1 for size in tensor.shape])
            assert arrangement(arranged_like(larger, tensor)) == expected
            torch.testing.assert_close(arranged_like(tensor, tensor), tensor)
