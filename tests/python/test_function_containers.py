"""autograd Functions that are given lists, dicts, partial objects, closures: as in eager, in a graph or not."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import torch
from semantics_support import made_of, rows
from torch import nn
from torch.autograd import Function

GLOBAL: list[str] = []


def _is_large(x: torch.Tensor) -> bool:
    return float(x.abs().max()) > 20


class Reads(Function):
    """Keeps what it is given, and hands on what it computes of it."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, given: Any) -> torch.Tensor:
        ctx.given = given
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient * 2, None


class Doubles(Reads):
    """Writes in its backward to what it is given."""

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        ctx.given["scale"] *= 2
        return gradient * ctx.given["scale"], None


class Warns(Reads):
    """Appends in its backward, where a gradient is large."""

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        if float(gradient.abs().max()) > 20:
            ctx.given.append("large gradient")
        return gradient * 2, None


class Pops(Reads):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, given: list[int]) -> torch.Tensor:
        return x * given.pop(0)


class Adds(Reads):
    """Writes where its input is large."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, given: Any) -> torch.Tensor:
        if isinstance(given, list) and _is_large(x):
            given.append("large")
        elif isinstance(given, dict) and _is_large(x):
            given["mean"] = x.mean().item()
        elif isinstance(given, Told) and _is_large(x):
            given.scale = 9.0
        return x * 2


class Uses(Reads):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, given: dict[str, float]) -> torch.Tensor:
        return x * given.get("mean", 1.0)


class Sums(Reads):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, given: dict[str, torch.Tensor]) -> torch.Tensor:
        return x + given["residual"]


class Applies(Reads):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, given: Callable[..., Any]) -> torch.Tensor:
        return x * given(1)


class Told:
    def __init__(self) -> None:
        self.scale = 1.0


class Tells(Reads):
    """Writes to the module."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, given: Any) -> torch.Tensor:
        given.scale = 9.0 if _is_large(x) else 1.0
        return x * 2


def _steps(model: nn.Module, scales: tuple[int, ...], look: Callable[[Any], Any]) -> list[Any]:
    found = []
    for i, scale in enumerate(scales):
        x = rows(i).mul(scale).requires_grad_()
        result = model(x)
        result.square().sum().div(scale).backward()
        found.append((result.detach(), x.grad, look(model)))
    return found


def _like_eager(
    forward: Callable[..., Any],
    prepare: Callable[[Any], Any] = lambda self: None,
    look: Callable[[Any], Any] = lambda module: None,
) -> rekindle.Status:
    """Compares calls with eager's, the third of which has large numbers; returns the module's status."""
    make = made_of(forward, prepare)
    torch.manual_seed(0)
    eager = make()
    torch.manual_seed(0)
    served = rekindle.Module(make())
    scales = (1, 1, 100, 1)
    for (*ours, left), (*theirs, seen) in zip(_steps(served, scales, look), _steps(eager, scales, look), strict=True):
        torch.testing.assert_close(ours, theirs)
        assert left == seen
    return rekindle.status(served)


def _last(self: Any, x: torch.Tensor) -> torch.Tensor:
    h = self.a(x)
    for last in (h + 1, h + 2):
        h = Applies.apply(h, lambda k, last=last: last * k)
    return h


def _shared_read(self: Any, x: torch.Tensor) -> torch.Tensor:
    settings = {"scale": 2.0}
    return Uses.apply(Reads.apply(self.a(x), settings), settings)


@pytest.mark.parametrize(
    "forward",
    [
        lambda self, x: Doubles.apply(Doubles.apply(self.a(x), {"scale": 1.5}), {"scale": 2.5}),
        lambda self, x: (lambda h: Sums.apply(h, {"residual": h}))(self.a(x)),
        lambda self, x: Applies.apply(self.a(x), functools.partial(max, 3)),
        lambda self, x: Reads.apply(self.a(x), [x.shape[1:], {"more": (1, [2])}]),
        _last,
        _shared_read,
    ],
    ids=["written in the backward", "twice the same tensor", "partial", "sizes", "a default that is a tensor", "read twice"],
)
def test_what_the_forward_makes_is_made_anew_for_each_call(forward: Callable[..., Any]) -> None:
    status = _like_eager(forward)
    assert (status.source, status.bypass, status.eager_calls) == ("export", [], 0)


def _nested(self: Any) -> None:
    self.stats = {"warnings": [], "limit": 20}


@pytest.mark.parametrize(
    ("forward", "prepare", "look"),
    [
        (lambda self, x: Warns.apply(self.a(x), self.stats), lambda self: setattr(self, "stats", []), lambda self: [*self.stats]),
        (lambda self, x: Warns.apply(self.a(x), self.stats["warnings"]), _nested, lambda self: [*self.stats["warnings"]]),
        (lambda self, x: Warns.apply(self.a(x), GLOBAL), lambda self: GLOBAL.clear(), lambda self: [*GLOBAL]),
    ],
    ids=["of the module", "in another", "a global"],
)
def test_what_lasts_is_given_as_it_is(forward: Any, prepare: Any, look: Any) -> None:
    make = made_of(forward, prepare)
    found = []
    for model in (make(), rekindle.Module(make())):
        GLOBAL.clear()
        _steps(model, (1, 100), look)
        result = model(rows())
        (100 * result.sum()).backward()
        found.append(look(model))
    assert found[0] == found[1] != []
    assert rekindle.status(model).eager_calls == 0


def test_an_entry_leads_to_what_lasts(tmp_path: pathlib.Path) -> None:
    make = made_of(lambda self, x: Warns.apply(self.a(x), self.stats), lambda self: setattr(self, "stats", []))
    rekindle.Module(make(), rekindle.Options(cache_dir=tmp_path))(rows())
    rekindle.lookup.store.flush()
    again = rekindle.Module(make(), rekindle.Options(cache_dir=tmp_path))
    (100 * again(rows()).sum()).backward()
    assert rekindle.status(again).source == "local"
    assert again.stats == ["large gradient"]


def _counts(self: Any, x: torch.Tensor) -> torch.Tensor:
    n = 0

    def count(step: int) -> int:
        nonlocal n
        n += step
        return n

    return Applies.apply(self.a(x), count)


def _stash(self: Any, x: torch.Tensor) -> torch.Tensor:
    stash: dict[str, float] = {}
    return Uses.apply(Adds.apply(self.a(x), stash), stash)


def _flags(self: Any, x: torch.Tensor) -> torch.Tensor:
    flags: list[str] = []
    y = Adds.apply(self.a(x), flags)
    return y * 0 if flags else y


def _both_keep(self: Any, x: torch.Tensor) -> torch.Tensor:
    scales = {"scale": 2.0}
    return Doubles.apply(Doubles.apply(self.a(x), scales), scales)


def _later(self: Any, x: torch.Tensor) -> torch.Tensor:
    scales = {"scale": 2.0}
    y = Doubles.apply(self.a(x), scales)
    scales["scale"] = 3.0
    return y


@pytest.mark.parametrize(
    ("forward", "message"),
    [
        (lambda self, x: Pops.apply(self.a(x), [2, 3]), "Pops writes to a list that it gets by argument 1; write to a copy"),
        (_counts, "Applies writes to a variable of a closure that it gets by argument 1; write to a copy"),
        (_both_keep, "keep the same dict, and their backwards may write to it"),
        (_later, "the forward writes to a dict after argument 1 of the autograd Function Doubles was given it"),
    ],
    ids=["list", "closure", "kept by two", "written by the forward"],
)
def test_a_write_to_what_the_forward_makes_is_refused(forward: Callable[..., Any], message: str) -> None:
    status = _like_eager(forward)
    ((reason, told),) = status.bypass
    assert reason == "python_op"
    assert message in told


def _read_again(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = Adds.apply(self.a(x), self.stats)
    return y * 0 if self.stats else y


def _told(self: Any, x: torch.Tensor) -> torch.Tensor:
    return Adds.apply(self.a(x), self.told) * self.told.scale


def _module(self: Any, x: torch.Tensor) -> torch.Tensor:
    return Tells.apply(self.a(x), self) * self.scale


@pytest.mark.parametrize(
    ("forward", "prepare", "look", "what"),
    [
        (_flags, lambda self: None, lambda self: None, "list"),
        (_stash, lambda self: None, lambda self: None, "dict"),
        (_read_again, lambda self: setattr(self, "stats", []), lambda self: [*self.stats], "list"),
        (_told, lambda self: setattr(self, "told", Told()), lambda self: self.told.scale, "Told"),
        (_module, lambda self: setattr(self, "scale", 1.0), lambda self: self.scale, "Made"),
    ],
    ids=["list", "dict", "of the module", "object", "module"],
)
def test_a_write_that_first_comes_in_a_later_call_sends_it_to_eager(forward: Any, prepare: Any, look: Any, what: str) -> None:
    status = _like_eager(forward, prepare, look)
    reasons = [message for reason, message in status.bypass if reason == "python_op"]
    assert f"writes to a {what} that it gets by argument 1, which it did not do when it was exported" in reasons[0]


class Notes(Reads):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, given: Told) -> torch.Tensor:
        given.scale += 1
        return x * 2


def test_an_object_whose_digest_is_registered_may_be_written() -> None:
    rekindle.register_digest(Told, lambda given: "notes")
    try:
        make = made_of(lambda self, x: Notes.apply(self.a(x), self.notes), lambda self: setattr(self, "notes", Told()))
        model = rekindle.Module(make())
        for step in range(3):
            model(rows(step))
        assert rekindle.status(model).eager_calls == 0
    finally:
        rekindle.register_digest(Told, None)
