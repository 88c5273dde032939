"""Indices that would end the process on an accelerator are found before the kernel runs: see miss/index_checks.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from rekindle.miss import index_checks
from rekindle.miss.index_checks import IndicesChecked, checked_indices
from torch.nn import functional as F

_TABLE = torch.arange(12.0).view(4, 3)
_SCORES = torch.randn(3, 4)


def _at(*places: int) -> torch.Tensor:
    return torch.tensor(places)


# Each with a place, or a number, that is right and one that is not.
_CALLS: dict[str, tuple[Callable[[Any], Any], Any, Any]] = {
    "embedding": (lambda i: F.embedding(i, _TABLE), _at(0, 3), _at(0, 4)),
    "embedding bag": (lambda i: F.embedding_bag(_at(0, 3), _TABLE, i), _at(0, 1), _at(0, 3)),
    "rows of bags": (lambda i: F.embedding_bag(i, _TABLE, _at(0)), _at(0, 3), _at(0, -1)),
    "index_select": (lambda i: _TABLE.index_select(1, i), _at(0, 2), _at(0, 3)),
    "gather": (lambda i: _TABLE.gather(0, i[None]), _at(3, 0, 1), _at(4, 0, 1)),
    "scatter": (lambda i: _TABLE.scatter(1, i[:, None], 1.0), _at(2, 0), _at(-1, 0)),
    "scatter_add_": (lambda i: _TABLE.clone().scatter_add_(0, i[None], _TABLE), _at(3, 0, 1), _at(4, 0, 1)),
    "index": (lambda i: _TABLE[:, i], _at(-3, 2), _at(0, 3)),
    "index behind a mask": (lambda i: torch.zeros(2, 4, 3)[_at(0, 1) > 0, i], _at(3), _at(4)),
    "index_put": (lambda i: torch.index_put(_TABLE, (i, i), torch.tensor(1.0)), _at(2, -1), _at(3, 0)),
    "index_add": (lambda i: _TABLE.index_add(0, i, _TABLE[:2]), _at(0, 3), _at(0, 4)),
    "index_fill": (lambda i: _TABLE.index_fill(0, i, 1.0), _at(-4, 3), _at(0, 4)),
    "take": (lambda i: _TABLE.take(i), _at(-12, 11), _at(0, 12)),
    "classes": (lambda t: F.cross_entropy(_SCORES, t), _at(0, 3, -100), _at(0, 4, 1)),
    "classes of pixels": (lambda t: F.cross_entropy(_SCORES.T[None, :, :, None], t[None, :, None]), _at(0, 3, 1), _at(0, 4, 1)),
    "margins": (lambda t: F.multi_margin_loss(_SCORES, t), _at(0, 3, 1), _at(0, 4, 1)),
    "bernoulli": (lambda p: torch.bernoulli(p), torch.tensor([0.0, 1.0]), torch.tensor([0.5, 1.1])),
    "bernoulli_": (lambda p: torch.full((2,), 9.0).bernoulli_(p), torch.tensor([0.0, 1.0]), torch.tensor([0.5, -0.1])),
    "two classes": (lambda p: F.binary_cross_entropy(p, torch.ones(2)), torch.tensor([0.0, 1.0]), torch.tensor([0.5, 1.1])),
    "multinomial": (lambda w: torch.multinomial(w, 1), torch.tensor([0.0, 2.0]), torch.tensor([-1.0, 2.0])),
    "poisson": (lambda r: torch.poisson(r), torch.tensor([0.0, 2.0]), torch.tensor([-1.0, 2.0])),
    "unpooling": (lambda i: F.max_unpool2d(torch.ones(1, 1, 2), i.view(1, 1, 2), 2), _at(0, 7), _at(0, 8)),
    "masked_scatter": (lambda x: torch.zeros(3).masked_scatter(_at(1, 1, 0) > 0, x), torch.ones(2), torch.ones(1)),
    "repeats": (lambda n: torch.repeat_interleave(_TABLE, n, 0), _at(0, 1, 2, 0), _at(0, 1, -2, 0)),
    "an assertion": (lambda x: torch._assert_async(x), torch.tensor(True), torch.tensor(False)),
}  # fmt: skip


@pytest.mark.parametrize("name", _CALLS)
def test_what_is_outside_raises_before_the_kernel(name: str) -> None:
    call, inside, outside = _CALLS[name]
    expected = call(inside)
    with IndicesChecked():
        if "bernoulli" not in name and name not in ("multinomial", "poisson"):
            torch.testing.assert_close(call(inside), expected)
        else:
            call(inside)
        with pytest.raises(IndexError, match=r"outside of|does not hold"):
            call(outside)


@pytest.mark.parametrize("name", ["embedding", "classes", "gather"])
def test_backwards_and_calls_without_autograd_are_looked_at(name: str) -> None:
    call, inside, outside = _CALLS[name]
    with torch.inference_mode(), IndicesChecked():  # below autograd, as in a session
        call(inside)
        with pytest.raises(IndexError, match="outside of"):
            call(outside)


def test_every_operator_that_is_looked_at_exists() -> None:
    names = {name.partition(".")[0].rstrip("_") for name in index_checks._CHECKS}
    missing = {name for name in names if not (hasattr(torch.ops.aten, name) or hasattr(torch.ops.aten, name + "_"))}
    assert not missing


def test_sizes_alone_have_no_numbers_to_look_at() -> None:
    with IndicesChecked():
        F.embedding(torch.empty(2, dtype=torch.int64, device="meta"), _TABLE.to("meta"))


def test_nothing_is_looked_at_on_the_cpu() -> None:
    with checked_indices([_TABLE]) as mode:
        assert mode is None
