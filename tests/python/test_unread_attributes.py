"""Attributes that a forward never reads are no part of its key; those that it reads by whatever way are."""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import rekindle
import torch
from torch import nn
from unread_attributes_support import Keeper, Read, assert_as_eager, rows

SHARED: list[float] = [1.0]


class Parent(nn.Module):
    """Reads what a child of it holds."""

    def __init__(self, child: Keeper) -> None:
        super().__init__()
        self.child = child

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.child(x) + float(self.child.scale[0])


def by_name(module: Keeper) -> float:
    return module.scale[0]


def by_computed_name(module: Keeper) -> float:
    return getattr(module, "".join(["sc", "ale"]))[0]


def by_vars(module: Keeper) -> float:
    return vars(module)["scale"][0]


def by_items(module: Keeper) -> float:
    return next(value[0] for name, value in module.__dict__.items() if type(value) is list and name[0] == "s")


def by_values(module: Keeper) -> float:
    lists = [value for value in vars(module).values() if list in type(value).__mro__]
    return sum(sum(value) for value in lists if value and type(value[0]) is float)


def by_attrgetter(module: Keeper) -> float:
    return operator.attrgetter("scale")(module)[0]


def by_presence(module: Keeper) -> float:
    return module.scale[0] if hasattr(module, "scale") else 3.0


def by_property(module: Keeper) -> float:
    return module.doubled


def by_object(module: Keeper) -> float:
    return object.__getattribute__(module, "scale")[0]


def by_copy(module: Keeper) -> float:
    return copy.copy(module).scale[0]


def by_match(module: Keeper) -> float:
    match module:
        case Keeper(scale=[found]):
            return found
    return 5.0


def in_spite_of_an_error(module: Keeper) -> float:
    try:
        return module.scale[0]
    except Exception:
        return 7.0


def by_default(module: Keeper) -> float:
    return getattr(module, "scale", [9.0])[0]


def by_another_name(module: Keeper) -> float:
    return SHARED[0]


READS = [
    by_name, by_computed_name, by_vars, by_items, by_values, by_attrgetter, by_presence, by_property, by_object, by_copy,
    by_match, in_spite_of_an_error, by_default, by_another_name,
]  # fmt: skip


def _rebound(module: Keeper) -> None:
    module.scale = [module.scale[0] + 1]


def _in_place(module: Keeper) -> None:
    module.scale[0] += 1


def _opaque(module: Keeper) -> None:
    module.scale = _Digestless([module.scale[0] + 1])


class _Digestless(list[float]):
    """A list with something that has no digest."""

    def __init__(self, items: list[float]) -> None:
        super().__init__(items)
        self.iterator: Iterator[float] = iter(items)


CHANGES = [_rebound, _in_place, _opaque]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("read", READS, ids=lambda read: read.__name__)
def test_what_is_read_is_never_stale(cache_dir: str, read: Read, change: Callable[[Keeper], None]) -> None:
    module = Keeper(read)
    module.scale = SHARED if read is by_another_name and change is _in_place else module.scale
    wrapped = rekindle.Module(module)
    for step in range(4):
        result = assert_as_eager(module, wrapped, rows(step))
        module.saved.append(result.sum())
        change(module)
    SHARED[0] = 1.0


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_a_parent_reads_what_a_child_does_not(cache_dir: str, change: Callable[[Keeper], None]) -> None:
    module = Parent(Keeper(lambda _: 1.0))
    wrapped = rekindle.Module(module)
    for step in range(3):
        module.child.saved.append(assert_as_eager(module, wrapped, rows(step)).sum())
        change(module.child)


def test_what_nothing_reads_keeps_no_call_from_its_graph(cache_dir: str) -> None:
    module = Keeper(lambda _: 1.0)
    wrapped = rekindle.Module(module)
    for step in range(12):
        module.saved.append(assert_as_eager(module, wrapped, rows(step)).sum())
        module.scale[0] += 1
        module.count += 1
        if step % 3 == 2:
            module.saved = []
    status = rekindle.status(wrapped)
    assert status.eager_calls == 0
    assert status.exports == 2  # of the first call, whose attributes are not known to change, and of all others
    assert status.bypass == []


def test_a_second_process_needs_no_export(cache_dir: str) -> None:
    for made in (2, 0):
        module = Keeper(lambda _: 1.0)
        wrapped = rekindle.Module(module)
        for step in range(4):
            module.saved.append(assert_as_eager(module, wrapped, rows(step)).sum())
            module.count += 1
        assert rekindle.status(wrapped).exports == made


def test_that_an_attribute_is_read_is_known_to_the_next_process(cache_dir: str, capfd: pytest.CaptureFixture[str]) -> None:
    for made in (3, 0):
        module = Keeper(by_name)
        wrapped = rekindle.Module(module)
        for step in range(3):
            assert_as_eager(module, wrapped, rows(step))
            module.scale[0] += 1
        status = rekindle.status(wrapped)
        assert (status.exports, status.eager_calls) == (made, 0)
    assert "no graph; known for opaque_value" in capfd.readouterr().err


def test_an_opaque_attribute_that_is_read_is_named(cache_dir: str) -> None:
    module = Keeper(by_name)
    wrapped = rekindle.Module(module)
    module.scale = _Digestless([2.0])
    for step in range(3):
        assert_as_eager(module, wrapped, rows(step))
    ((reason, message),) = rekindle.status(wrapped).bypass
    assert reason == "opaque_value"
    assert "model.scale" in message


def test_what_a_write_would_leave_is_not_lost(cache_dir: str) -> None:
    class Writes(Keeper):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            result = self.inner(x)
            self.saved = [result.sum()]
            return result

    module = Writes(by_name)
    module.saved = [torch.ones((), requires_grad=True) * 2]
    wrapped = rekindle.Module(module)
    for step in range(3):
        result = wrapped(rows(step))
        torch.testing.assert_close(module.saved[0], result.sum())


class _ReadsInBackward(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, module: Any) -> torch.Tensor:
        ctx.module = module
        return x * 1.0

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient * ctx.module.scale[0], None


class _WithFunction(Keeper):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _ReadsInBackward.apply(self.inner(x), self)


def test_a_backward_of_the_users_reads_too(cache_dir: str) -> None:
    module = _WithFunction(by_name)
    wrapped = rekindle.Module(module)
    for step in range(4):
        found = []
        for called in (module.forward, wrapped):
            module.zero_grad()
            called(rows(step)).sum().backward()
            found.append(module.inner.weight.grad.clone())
        torch.testing.assert_close(*found)
        module.scale[0] += 1


def test_a_name_that_comes_or_goes_is_a_change(cache_dir: str) -> None:
    module = Keeper(by_presence)
    wrapped = rekindle.Module(module)
    assert_as_eager(module, wrapped, rows(0))
    del module.scale
    assert_as_eager(module, wrapped, rows(1))
    module.scale = [4.0]
    assert_as_eager(module, wrapped, rows(2))


def test_a_list_under_two_names_of_which_one_is_read(cache_dir: str) -> None:
    module = Keeper(by_name)
    module.first_met = module.scale  # type: ignore[assignment]
    for name in ("scale", "first_met"):  # the other name comes first
        module.__dict__[name] = module.__dict__.pop(name)
    wrapped = rekindle.Module(module)
    for step in range(4):
        assert_as_eager(module, wrapped, rows(step))
        module.scale[0] += 1


def test_a_guard_does_not_compare_an_unread_attribute() -> None:
    module = Keeper(by_name)
    guard = rekindle._native.Guard([], [], [], [(module, ("saved", "count"))])
    module.saved, module.count = [], 5
    assert guard.check()
    module.scale = module.scale
    assert guard.check()
    del module.count
    assert guard.check()
    module.count = 5  # behind the others
    assert guard.check()
    module.other = 5
    assert not guard.check()
