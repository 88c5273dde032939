"""What C++ finds again of calls: never what call_key.py tells apart, and all that is plain."""

from __future__ import annotations

import collections
import enum
import gc
import itertools
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from rekindle import _native
from rekindle.graphs.call_key import is_told_by_class, kind_key
from torch import nn

Call = tuple[tuple[Any, ...], dict[str, Any]]


class Colour(enum.Enum):
    RED = 1


class Pair(NamedTuple):
    first: Any
    second: Any


class Items(list):  # type: ignore[type-arg]
    pass


class Text(str):
    pass


class Marked(torch.Tensor):
    pass


def _tensor(*shape: int, **options: Any) -> torch.Tensor:
    return torch.zeros(*(shape or (2, 3)), **options)


def _with_attribute() -> torch.Tensor:
    x = _tensor()
    x.note = 1  # type: ignore[attr-defined]
    return x


def _inference() -> torch.Tensor:
    with torch.inference_mode():
        return _tensor()


def _holds_itself() -> list[Any]:
    one: list[Any] = []
    one.append(one)
    return one


def _moved() -> collections.OrderedDict[str, Any]:
    """Returns a dict whose order is not that of its table."""
    items = collections.OrderedDict[str, Any](b=_tensor(3, 2), a=_tensor())
    items.move_to_end("b")
    return items


def _twice(make: Callable[[], Any]) -> Call:
    x = make()
    return (x, x), {}


# Of values that C++ describes, then of those that it leaves to Python.
_PLAIN: list[Callable[[], Any]] = [
    *(lambda value=value: value for value in (None, True, False, 0, 1, -1, 2**62, 0.0, -0.0, 1.0, float("nan"), float("inf"))),  # type: ignore[misc]
    *(lambda value=value: value for value in ("", "1", "a", "a\0", "ab", "ab" * 9, "é", "日本", "True", "\ud800")),  # type: ignore[misc]
    *(lambda value=value: value for value in (torch.float32, torch.float64, torch.strided, torch.sparse_coo)),  # type: ignore[misc]
    *(lambda value=value: value for value in (torch.channels_last, torch.contiguous_format)),  # type: ignore[misc]
    lambda: torch.device("cpu"),
    lambda: torch.device("cpu", 0),
    lambda: torch.device("meta"),
    _tensor,
    lambda: _tensor(3, 2),
    lambda: _tensor(3, 2).t(),
    lambda: _tensor(6),
    lambda: _tensor(1, 2, 3),
    lambda: torch.tensor(0.0),
    lambda: _tensor(0, 3),
    lambda: _tensor(1, 3).expand(2, 3),
    lambda: _tensor(requires_grad=True),
    lambda: _tensor(requires_grad=True) * 1,
    lambda: nn.Parameter(_tensor()),
    lambda: nn.Parameter(_tensor(), requires_grad=False),
    lambda: _tensor(dtype=torch.float64),
    lambda: _tensor(dtype=torch.int64),
    lambda: _tensor(dtype=torch.complex64),
    lambda: _tensor(dtype=torch.complex64).conj(),
    lambda: torch._neg_view(_tensor()),
    lambda: _tensor(device="meta"),
    _inference,
    list,
    tuple,
    dict,
    lambda: [1],
    lambda: (1,),
    lambda: [[1]],
    lambda: [1, [2]],
    lambda: [[1], 2],
    lambda: [_tensor()],
    lambda: (_tensor(),),
    lambda: [_tensor(), _tensor()],
    lambda: [_tensor()] * 2,
    lambda: {"a": _tensor()},
    lambda: {"b": _tensor()},
    lambda: {"a": 1, "b": 2},
    lambda: {"b": 2, "a": 1},
    lambda: {1: 1},
    lambda: {True: 1},
    lambda: {1.0: 1},
    lambda: {None: 1},
    lambda: {"a": {"a": [1, (2,)]}},
    collections.OrderedDict,
    lambda: collections.OrderedDict(a=1),
    lambda: collections.OrderedDict(a=1, b=2),
    lambda: collections.OrderedDict(b=2, a=1),
    lambda: collections.OrderedDict(a=_tensor(), b=_tensor(3, 2)),
    _moved,
]
_LEFT: list[Callable[[], Any]] = [
    lambda: 2**70,
    lambda: b"1",
    lambda: 1j,
    lambda: slice(1, 2),
    lambda: torch.per_tensor_affine,
    lambda: Colour.RED,
    lambda: Pair(1, 2),
    lambda: Items([1]),
    lambda: Text("a"),
    lambda: collections.OrderedDict({1: 1}),
    lambda: collections.OrderedDict({Text("a"): 1}),
    lambda: collections.Counter(a=1),
    lambda: {(1, 2): 1},
    lambda: {b"a": 1},
    lambda: {1, 2},
    lambda: torch.Size((2, 3)),
    lambda: _tensor().as_subclass(Marked),
    lambda: _tensor().to_sparse(),
    lambda: torch.nested.nested_tensor([_tensor()]),
    lambda: object,
    _with_attribute,
]
_CALLS: list[Callable[[], Call]] = [
    lambda: ((), {}),
    *(lambda make=make: ((make(),), {}) for make in (*_PLAIN, *_LEFT)),  # type: ignore[misc]
    lambda: ((1, 2), {}),
    lambda: ((1,), {"x": 2}),
    lambda: ((), {"x": 1, "y": 2}),
    lambda: ((), {"y": 2, "x": 1}),
    lambda: ((), {"x": 1}),
    lambda: ((("x", 1),), {}),
    lambda: (("x", 1), {}),
    lambda: ((_tensor(), _tensor()), {}),
    lambda: _twice(_tensor),
    lambda: ((_tensor(), [_tensor()]), {}),
    lambda: ((_tensor(),), {"x": _tensor()}),
]


def _find(table: Any, call: Call) -> tuple[Any, list[torch.Tensor]]:
    tensors: list[torch.Tensor] = []
    return table.find(*call, tensors), tensors


def _same(tensors: list[torch.Tensor], others: list[torch.Tensor]) -> bool:
    return len(tensors) == len(others) and all(one is other for one, other in zip(tensors, others, strict=True))


@pytest.mark.parametrize("grad", [False, True])
def test_calls_are_found_as_one_only_where_their_keys_are_equal(grad: bool) -> None:
    with torch.set_grad_enabled(grad):
        calls = [make() for make in _CALLS]
        keys = [kind_key(*call, []) for call in calls]
        for i, kept in enumerate(calls):
            table = _native.CallTable()
            for value in (value for args, _ in calls for value in args if is_told_by_class(value)):
                table.take_by_class(type(value))
            table.keep(*kept, "kept")
            found = [j for j, call in enumerate(calls) if _find(table, call)[0] is not None]
            assert all(keys[i] == keys[j] for j in found), (kept, [calls[j] for j in found])


@pytest.mark.parametrize("make", _PLAIN)
def test_plain_values_are_found_again_with_the_tensors_that_the_key_collects(make: Callable[[], Any]) -> None:
    table = _native.CallTable()
    for call, again in (
        (((make(),), {}), ((make(),), {})),
        (((1, make()), {"x": make()}), ((1, make()), {"x": make()})),
        (_twice(make), _twice(make)),
    ):
        table.keep(*call, call)
        kept, tensors = _find(table, again)
        collected: list[torch.Tensor] = []
        assert kind_key(*call, []) == kind_key(*again, collected)
        assert kept is call and _same(tensors, collected)


@pytest.mark.parametrize("make", [*_LEFT, _holds_itself])
def test_what_is_not_plain_is_left_to_the_key(make: Callable[[], Any]) -> None:
    table = _native.CallTable()
    for call in (((make(),), {}), ((), {"x": make()}), (([make()],), {})):
        table.keep(*call, "kept")
        assert _find(table, call) == (None, [])


def test_objects_are_told_by_their_class_once_the_table_takes_it() -> None:
    class Images:
        pass

    class Others:
        pass

    assert is_told_by_class(Images()) and is_told_by_class({1, 2})
    assert not any(map(is_told_by_class, (1, 1.0, b"a", 2**70, Colour.RED, None, [1], Pair(1, 2), slice(1), _tensor())))
    table, call = _native.CallTable(), ((Images(), _tensor()), {})
    table.keep(*call, "kept")
    assert _find(table, call) == (None, [])
    table.take_by_class(Images)
    table.keep(*call, "kept")
    other = ((Images(), _tensor()), {})
    assert _find(table, other) == ("kept", [other[0][1]])
    assert _find(table, ((Others(), _tensor()), {})) == (None, [])
    gone = weakref.ref(Images)
    del Images, call, other, table
    gc.collect()
    assert gone() is None


def test_the_key_and_the_table_agree_over_pairs_of_values() -> None:
    values = [1, 1.0, True, "1", None, [1], (1,), {"x": 1}, _tensor(), nn.Parameter(_tensor())]
    pairs: list[Call] = [((one, other), {}) for one, other in itertools.product(values, values)]
    table = _native.CallTable()
    for i, pair in enumerate(pairs):
        table.keep(*pair, i)
    assert [_find(table, pair)[0] for pair in pairs] == list(range(len(pairs)))
    assert len({kind_key(*pair, []) for pair in pairs}) == len(pairs)


def test_grad_mode_and_traces_are_told_apart() -> None:
    table, call = _native.CallTable(), ((_tensor(),), {})
    table.keep(*call, "with gradients")
    with torch.no_grad():
        assert _find(table, call)[0] is None
        table.keep(*call, "without")
        assert _find(table, call)[0] == "without"
    assert _find(table, call)[0] == "with gradients"
    found = []
    torch.jit.trace(lambda x: (found.append(_find(table, ((_tensor(),), {}))[0]), x + 1)[1], (_tensor(),), check_trace=False)
    assert found == [None]
