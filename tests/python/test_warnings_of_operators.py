"""Operators of PyTorch give the same Python warnings when a graph runs them as in eager."""

from __future__ import annotations

import warnings

import pytest
import rekindle
import torch
from module_support import rows
from torch import nn


class Spread(nn.Module):
    """Gives a variance, of which PyTorch warns for one row."""

    def __init__(self, counts: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.register_buffer("calls", torch.zeros(()))
        self.counts = counts

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        if self.counts:
            self.calls += 1
        return x * self.weight, x.var(0)


def warned(model: nn.Module, count: int) -> list[tuple[str, type]]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        model(rows(count=count))
    return [(str(one.message).partition("(Triggered")[0], one.category) for one in found]


@pytest.mark.parametrize("counts", [False, True])
def test_each_call_warns_as_eagers(counts: bool) -> None:
    plain = Spread(counts)
    expected = [warned(plain, count) for count in (3, 5, 1, 3, 1)]
    assert [len(found) for found in expected] == [0, 0, 1, 0, 1]
    for source in ("export", "local"):
        model = rekindle.Module(Spread(counts), rekindle.Options(fallback="error", log="error"))
        assert [warned(model, count) for count in (3, 5, 1, 3, 1)] == expected, source
        torch.testing.assert_close(model.calls, plain.calls)
        rekindle.lookup.store.flush()


def test_a_warning_that_is_an_error_is_raised() -> None:
    model = rekindle.Module(Spread(False), rekindle.Options(fallback="error", log="error"))
    warned(model, 1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(UserWarning, match="degrees of freedom"):
            model(rows(count=1))
        model(rows(count=3))
    assert len(warned(model, 1)) == 1
