"""Texts of values tell apart what behaves apart, and nothing else."""

from __future__ import annotations

import collections
import enum
import functools
import logging
import math
import operator
import threading
import types
import weakref
from typing import Any

import fingerprint_support  # noqa: F401  makes the package importable
import numpy
import pytest
import torch
from fingerprint_values_support import Point, Slotted, closure, text
from hypothesis import given
from hypothesis import strategies as st
from rekindle.key.values.walker import Walker


class Color(enum.Enum):
    RED = 1
    BLUE = 2


class Level(enum.IntEnum):
    LOW = 1


class Tags(dict):
    pass


class Names(list):
    pass


Pair = collections.namedtuple("Pair", "a b")


def _tagged(**attributes: Any) -> Tags:
    tags = Tags(a=1)
    vars(tags).update(attributes)
    return tags


DISTINCT = [
    *(1, True, 1.0, "1", b"1", "True", None, "None", 0, 0.0, -0.0, False, math.nan, math.inf, "nan", 1 + 0j),
    *(1 << 70, -(1 << 70), 2**63, "int 40", "", b"", bytearray(b""), "a" * 500, "a" * 501, b"a" * 100, ...),
    *(
        [],
        (),
        {},
        set(),
        frozenset(),
        [1],
        (1,),
        [1.0],
        [True],
        [[1]],
        [(1,)],
        [1, 2],
        [2, 1],
        ["1, 2"],
        ["1", "2"],
    ),
    *(
        {"a": 1},
        {"a": 1.0},
        {1: "a"},
        {True: "a"},
        {"a": 1, "b": 2},
        {"b": 2, "a": 1},
        collections.OrderedDict(a=1),
    ),
    *(
        {1, 2},
        frozenset({1, 2}),
        {"1", "2"},
        {(1, 2)},
        {(1, 2), (3, 4)},
        list(range(300)),
        list(range(301)),
        range(3),
    ),
    *(
        slice(1),
        slice(1.0),
        slice(None),
        Color.RED,
        Color.BLUE,
        Level.LOW,
        Color,
        Level,
        Point(1, 2),
        Point(2, 1),
    ),
    *(
        Point,
        Pair(1, 2),
        (1, 2),
        Pair(2, 1),
        Slotted(1),
        Slotted(2),
        Tags(a=1),
        _tagged(b=1),
        Names([1]),
        Names([2]),
    ),
    *(
        torch.float32,
        torch.float64,
        torch.device("cpu"),
        torch.device("cuda:0"),
        torch.device("cuda:1"),
        "cpu",
    ),
    *(
        torch.Size([1, 2]),
        torch.strided,
        torch.channels_last,
        torch.ops.aten.add,
        torch.ops.aten.add.Tensor,
        torch.add,
    ),
    *(torch.zeros(2), torch.zeros(3), torch.ones(2), torch.zeros(2, dtype=torch.float64), torch.zeros(2, 1)),
    *(
        torch.zeros(2, dtype=torch.bool),
        torch.zeros(0),
        torch.tensor(1.0),
        torch.tensor(math.nan),
        torch.tensor(1),
    ),
    *(
        numpy.zeros(2),
        numpy.zeros(2, "f4"),
        numpy.zeros((2, 1)),
        numpy.float32(1),
        numpy.float64(1),
        numpy.dtype("f4"),
    ),
    *(
        len,
        math.sqrt,
        [].append,
        str.join,
        "a".join,
        "b".join,
        operator.itemgetter(1),
        operator.itemgetter(2),
        math,
    ),
    *(
        functools.partial(len),
        functools.partial(len, [1]),
        functools.partial(pow, exp=2),
        functools.partial(pow, exp=3),
    ),
    *(
        lambda x: x,
        lambda x: -x,
        lambda x=1: x,
        lambda x=2: x,
        lambda *, x=1: x,
        closure(1),
        closure(2),
        closure("1"),
    ),
    *(
        Point(1, 2).__eq__,
        Point(1, 3).__eq__,
        logging.getLogger("a"),
        threading.Lock(),
        threading.RLock(),
        object(),
    ),
    *(
        types.SimpleNamespace(a=1),
        types.SimpleNamespace(a=2),
        collections.deque([1]),
        collections.Counter("a"),
    ),
    *(
        collections.defaultdict(int, a=1),
        collections.defaultdict(list, a=1),
        numpy.add,
        numpy.sin,
        list[int],
        int | str,
    ),
]


def test_different_values_have_different_texts() -> None:
    seen: dict[str, Any] = {}
    for value in DISTINCT:
        shown = text(value)
        assert shown not in seen, f"{value!r} and {seen[shown]!r} both read {shown}"
        seen[shown] = value


EQUAL = {
    "set order": lambda flip: {"a", "b", "c", "d"} if flip else {"d", "c", "b", "a"},
    "set of tuples": lambda flip: {(1, 2), (3, "x")} if flip else {(3, "x"), (1, 2)},
    "not a number": lambda flip: float("nan") if flip else -float("nan"),
    "locks": lambda flip: threading.Lock(),
    "objects": lambda flip: [Point(1, 2), Slotted([1])],
    "functions": lambda flip: closure([1]),
    "tuple identity": lambda flip: [(t := (1, [2])), t] if flip else [(1, (inner := [2])), (1, inner)],
    "tensors": lambda flip: torch.arange(4).reshape(2, 2) if flip else torch.tensor([[0, 1], [2, 3]]),
    "strides of content": lambda flip: torch.tensor([[0.0, 1.0]])[:, :1] if flip else torch.tensor([[0.0, 2.0]])[:, :1],
    "sentinel": lambda flip: object(),
}


@pytest.mark.parametrize("name", EQUAL)
def test_equal_values_have_equal_texts(name: str) -> None:
    assert text(EQUAL[name](True)) == text(EQUAL[name](False))


_nested = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4) | st.binary(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.tuples(inner, inner)
        | st.dictionaries(st.text(max_size=3) | st.integers(0, 3) | st.booleans(), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(_nested, _nested)
def test_texts_are_equal_exactly_if_the_values_read_alike(left: Any, right: Any) -> None:
    assert (text(left) == text(right)) == (repr(left) == repr(right))


def test_cycles_end_and_keep_their_shape() -> None:
    direct: list[Any] = [1]
    direct.append(direct)
    indirect: list[Any] = [1, [1]]
    indirect[1].append(indirect)
    assert text(direct) != text(indirect)
    point = Point(1, 2)
    point.x = point  # type: ignore[assignment]
    assert text(point) == text(point)


def test_sharing_is_part_of_the_text() -> None:
    shared = [1]
    assert text([shared, shared]) != text([[1], [1]])


def test_a_weak_reference_stands_for_what_it_refers_to() -> None:
    target, other = Point(1, 2), Point(1, 3)
    assert text(weakref.ref(target)) != text(weakref.ref(other))


def test_containers_and_tensors_read_by_content_are_collected() -> None:
    inner, mapping, tensor = [1], {"a": 1}, torch.zeros(2)
    point = Point(1, 2)
    walker = Walker()
    walker.walk("value", [inner, mapping, tensor, point])
    for value, how in ((inner, "content"), (mapping, "content"), (point, "object"), (tensor, "bytes"), (tensor, "object")):
        assert any(found is value and cells.how == how for found, cells in walker.cells)
