"""Results that C++ builds: as Python and eager do; and guards that look a dict up once for all its items."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import rekindle
import torch
from module_support import rows
from rekindle import _native
from torch import nn


class Pair(NamedTuple):
    first: Any
    second: Any


class Returns(nn.Module):
    """Returns what a function makes of an argument, of what is computed of it, and of a parameter."""

    def __init__(self, made: Callable[..., Any]) -> None:
        super().__init__()
        self.linear, self._made = nn.Linear(4, 4), made

    def forward(self, x: torch.Tensor) -> Any:
        return self._made(x, self.linear(x), self.linear.weight)


_RESULTS: dict[str, Callable[..., Any]] = {
    "a tensor": lambda x, y, w: y,
    "the argument": lambda x, y, w: (x, y),
    "a parameter": lambda x, y, w: [y, w],
    "one output twice": lambda x, y, w: (y, y),
    "a dict": lambda x, y, w: {"loss": y, "logits": y + 1, 3: None},
    "containers in containers": lambda x, y, w: [{"a": (y, [x, 1, 2.5, "text", None, True])}, (), [], {}],
}


@pytest.mark.parametrize("grad", [False, True])
@pytest.mark.parametrize("name", _RESULTS)
def test_results_of_plain_containers_are_built_as_eager_builds_them(name: str, grad: bool) -> None:
    module = Returns(_RESULTS[name])
    wrapped, x = rekindle.Module(module, rekindle.Options(fallback="error")), rows()

    def shape(value: Any, outputs: list[torch.Tensor]) -> Any:
        if isinstance(value, torch.Tensor):
            if value is x or value is module.linear.weight:
                return id(value)
            if not any(value is known for known in outputs):
                outputs.append(value)
            return next(i for i, known in enumerate(outputs) if value is known)
        if isinstance(value, dict):
            return dict, [(key, shape(item, outputs)) for key, item in value.items()]
        if isinstance(value, (list, tuple)):
            return type(value), [shape(item, outputs) for item in value]
        return type(value), value

    with torch.set_grad_enabled(grad):
        expected: list[torch.Tensor] = []
        described = shape(module(x), expected)
        for _ in range(3):
            outputs: list[torch.Tensor] = []
            assert shape(wrapped(x), outputs) == described
            torch.testing.assert_close(outputs, expected)
            assert [one.requires_grad for one in outputs] == [one.requires_grad for one in expected]
    kind = next(iter(wrapped._runtime._kinds))
    assert kind.graphs[0].served is not None


def test_other_results_are_left_to_python() -> None:
    wrapped = rekindle.Module(Returns(lambda x, y, w: Pair(y, y + 1)), rekindle.Options(fallback="error"))
    for _ in range(3):
        assert type(wrapped(rows())) is Pair
    assert next(iter(wrapped._runtime._kinds)).graphs[0].served is None


def test_a_structure_that_names_what_is_not_there_is_an_error() -> None:
    wrapped = rekindle.Module(nn.Linear(4, 4), rekindle.Options(fallback="error"))
    x = rows()
    wrapped(x)
    variant = next(iter(wrapped._runtime._kinds)).graphs[0]
    writes = _native.StateWrites()

    def served(state: Any, used: Any, record: bool, structure: Any) -> Any:
        return variant.session.served_call(state, used, record, writes, structure)

    for structure in ({"output": 7}, {"input": 9}, {"list": [{"output": 0}, {"input": 3}]}):
        with pytest.raises(IndexError):
            served(variant.state, variant.used, variant.record, structure)([x])
    with pytest.raises(IndexError):
        served([], variant.used, variant.record, {"output": 0})([x])
    with pytest.raises(TypeError):
        served([1, 2], variant.used, variant.record, {"output": 0})([x])
    for structure in (
        {},
        [],
        {"output": -1},
        {"output": True},
        {"value": []},
        {"list": ({"output": 0},)},
        {"size": []},
        {"dict": [1]},
    ):
        assert served(variant.state, variant.used, variant.record, structure) is None


def test_what_the_module_lets_go_of_is_not_kept() -> None:
    wrapped = rekindle.Module(nn.Linear(4, 4), rekindle.Options(fallback="error"))
    x = rows()
    wrapped(x)
    gone = weakref.ref(wrapped.weight)
    wrapped.weight = nn.Parameter(torch.ones(4, 4))
    torch.testing.assert_close(wrapped(x), nn.functional.linear(x, torch.ones(4, 4), wrapped.bias))
    gc.collect()
    assert gone() is None


class Class:
    a: Any = 1


def test_items_of_one_container_are_compared_each() -> None:
    one, other = object(), object()
    table = {"a": one, "b": other}
    guard = _native.Guard([], [], [(table, "a"), (table, "absent"), (Class, "a"), (table, "a")])
    for _ in range(2):
        assert guard.check()
    table["b"], table["c"] = one, one  # is not watched
    assert guard.check() and guard.check()
    table["a"] = other
    assert not guard.check() and not guard.check()
    table["a"] = one
    assert guard.check()
    del table["a"]
    assert not guard.check()
    table["a"] = one
    assert guard.check()
    table["absent"] = None
    assert not guard.check()
    del table["absent"]
    Class.a = 2
    assert not guard.check()
    Class.a = 1
    assert guard.check()


def test_items_are_compared_again_once_nothing_stands_in_for_them() -> None:
    original, stand_in = object(), object()
    table = {"a": original}
    guard = _native.Guard([], [], [(table, "a")])
    assert guard.check()
    _native.set_stand_ins([(stand_in, original)], None)
    try:
        table["a"] = stand_in
        assert guard.check() and guard.check()
    finally:
        _native.set_stand_ins([], None)
    assert not guard.check()
