"""Properties of the texts and digests behind the key, over generated values: equal in every process, unequal otherwise."""

from __future__ import annotations

import base64
import json
import math
import os
import pathlib
import pickle
import struct
import subprocess
import sys
import types
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from rekindle.key.code.code_objects import code_digest
from rekindle.key.values.walker import Walker, value_text
from rekindle.process.digest import digest_leaves, digest_parts
from rekindle.process.world import order_mark

_PLAIN = st.one_of(
    st.none(), st.booleans(), st.integers(), st.integers(1 << 70, 1 << 15_000), st.floats(), st.text(), st.binary(max_size=40),
    st.complex_numbers(), st.text(st.characters(categories=["Cs"]), max_size=3),
)  # fmt: skip
_HASHABLE = st.one_of(st.none(), st.booleans(), st.integers(), st.text(), st.tuples(st.integers(), st.text()))


def _containers(inner: Any) -> Any:
    return st.one_of(
        st.lists(inner, max_size=4), st.lists(inner, max_size=4).map(tuple), st.dictionaries(_HASHABLE, inner, max_size=4),
        st.sets(_HASHABLE, max_size=4), st.frozensets(_HASHABLE, max_size=4),
        st.dictionaries(st.text(max_size=4), inner, max_size=3).map(lambda d: types.SimpleNamespace(**d)),
    )  # fmt: skip


_VALUES = st.recursive(_PLAIN, _containers, max_leaves=12)


def read(value: Any) -> Any:
    """What a value reads like, as data that Python compares: types told apart, floats by their bits, sets without order but of
    numbers."""
    kind = type(value)
    if kind is float:
        return (kind, "nan" if math.isnan(value) else struct.pack(">d", value))
    if kind is complex:
        return (kind, read(value.real), read(value.imag))
    if kind in (list, tuple):
        return (kind, *map(read, value))
    if kind in (set, frozenset):
        return (kind, frozenset(map(read, value)), order_mark(value))
    if kind is dict:
        return (kind, *((read(key), read(item)) for key, item in value.items()))
    if kind is types.SimpleNamespace:
        return (kind, *((key, read(item)) for key, item in vars(value).items()))
    return (kind, value)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(_VALUES, _VALUES)
def test_texts_are_equal_exactly_if_values_read_alike(left: Any, right: Any) -> None:
    assert (value_text("v", left) == value_text("v", right)) == (read(left) == read(right))


@settings(deadline=None)
@given(st.lists(_VALUES, min_size=1, max_size=3), st.lists(_VALUES, min_size=1, max_size=3))
def test_fields_do_not_run_into_each_other(left: list[Any], right: list[Any]) -> None:
    def digest(values: list[Any]) -> str:
        walker = Walker()
        for index, value in enumerate(values):
            walker.walk(f"field{index}", value)
        return digest_leaves(walker.leaves)

    assert (digest(left) == digest(right)) == ([*map(read, left)] == [*map(read, right)])


@given(st.lists(st.binary(max_size=12), max_size=4), st.lists(st.binary(max_size=12), max_size=4))
def test_parts_do_not_run_into_each_other(left: list[bytes], right: list[bytes]) -> None:
    assert (digest_parts(left) == digest_parts(right)) == (left == right)


_NAMES = st.one_of(st.text(min_size=1, max_size=4), st.sampled_from(["a", "b", "a.b", "a['b']", "'a'", "[0]"]))


class Node:
    """An object whose attributes may have any name."""


def _node(parts: list[tuple[str, int | None]]) -> Node:
    """Attributes by name: a number, or a node below that takes the rest."""
    top = node = Node()
    for name, value in parts:
        if value is None:
            below = Node()
            vars(node)[name] = below
            node = below
        else:
            vars(node)[name] = value
    return top


def _shape(node: Node) -> Any:
    return [(name, _shape(item) if type(item) is Node else item) for name, item in vars(node).items()]


_PARTS = st.lists(st.tuples(_NAMES, st.one_of(st.none(), st.integers(0, 1))), max_size=4)


@given(_PARTS, _PARTS)
def test_attributes_do_not_run_into_each_other(left: Any, right: Any) -> None:
    left, right = _node(left), _node(right)
    assert (value_text("v", left) == value_text("v", right)) == (_shape(left) == _shape(right))


_CONSTANTS = st.one_of(
    st.booleans(), st.integers(-5, 5), st.integers(1 << 20_000, 1 << 20_001), st.floats(allow_nan=False), st.text(max_size=5),
    st.binary(max_size=5),
)  # fmt: skip


@settings(deadline=None)
@given(_CONSTANTS, _CONSTANTS)
def test_code_differs_exactly_if_its_constants_do(left: Any, right: Any) -> None:
    def digest(constant: Any) -> str:
        code = (lambda: 0).__code__
        return code_digest(code.replace(co_consts=(None, constant)))

    assert (digest(left) == digest(right)) == (read(left) == read(right))


_ELSEWHERE = """
import base64, json, pickle, sys
from rekindle.key.values.walker import value_text
print(json.dumps([value_text("v", value) for value in pickle.loads(base64.b64decode(sys.stdin.read()))]))
"""


def test_equal_values_have_equal_texts_in_another_process_with_another_hash_seed() -> None:
    found: list[Any] = []

    @settings(database=None, max_examples=80, deadline=None, derandomize=True)
    @given(_VALUES)
    def collect(value: Any) -> None:
        found.append(value)

    collect()
    environment = {**os.environ, "PYTHONHASHSEED": "4242", "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run(
        [sys.executable, "-c", _ELSEWHERE], input=base64.b64encode(pickle.dumps(found)).decode(), env=environment,
        capture_output=True, text=True, timeout=120, check=True, cwd=pathlib.Path(__file__).parent,
    )  # fmt: skip
    assert json.loads(done.stdout.splitlines()[-1]) == [value_text("v", value) for value in found]


# Changing one of these changes every key there is: raise versions.FORMAT with it.
PINNED = {
    "list": ([1, True, 1.0, "1", None, -0.0], "[1, True, 1.0, '1', None, -0.0]"),
    "nested": ([[1], {"a": (2, b"3")}], "list[2] 27192a6a9f69f9fd74453b8940cea7d2"),
    "set": ({"b", "a"}, "set [\"'a'\", \"'b'\"]"),
    "huge": (1 << 70, "int 400000000000000000"),
    "huge in a list": ([1 << 70_000], "list[1] a57951574f107dda1f23e580cfab9671"),
    "attribute names": (types.SimpleNamespace(**{"a.b": 1}), "namespace[1] 3e6a954abf10f08cd59aea17213fed98"),
}


@pytest.mark.parametrize("name", PINNED)
def test_texts_are_pinned(name: str) -> None:
    value, text = PINNED[name]
    assert value_text("v", value) == text
