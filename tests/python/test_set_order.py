"""The order of the items of a set, which differs from process to process, is seen however it shows."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import types
from typing import Any

import pytest
import torch
from fingerprint_support import Recorder, load
from rekindle import _native
from rekindle.process import world
from rekindle.reasons import Bypass, Reason
from rekindle.recording import interpreter_events

TOP = """
import collections, functools, itertools, operator
import torch
from torch import nn

NAMES = {"alpha", "be", "gam"}
FROZEN = frozenset(NAMES)
THINGS = {nn.Linear, nn.ReLU, nn.Tanh}
PAIRS = {("alpha", 1), ("be", 2)}
NESTED = {frozenset({1}), frozenset({2})}
NUMBERS = {3, 1, 2}

class Names(set):
    pass

class Reversed(set):
    def __iter__(self): return reversed(list(super().__iter__()))

class Listed(list):
    pass

OURS, BACKWARDS = Names(NAMES), Reversed(NAMES)

def both(*items): return items

def extended(items):
    found = []
    found.extend(items)
    return found

def added(items):
    found = [0]
    found += items
    return found

def assigned(items):
    found = [0, 1]
    found[:] = items
    return found

def unpacked(items):
    first, second, third = items
    return first

def first_and_rest(items):
    first, *rest = items
    return first

def conditional(items, other):
    return len([*(items if other else other), *[1, 2]])

def handled(items):
    try:
        raise ValueError
    except ValueError:
        return [0, *items]

def in_a_loop(items):
    for _ in range(2):
        with torch.no_grad():
            found = [(0, [1, *items])]
    return found

def generated(items):
    yield 1
    yield both(0, *items)

def popped(items):
    return items.copy().pop()
"""

SHOWN = {
    "for": "[item for item in NAMES]",
    "iter": "next(iter(NAMES))",
    "its method": "next(NAMES.__iter__())",
    "frozen": "list(FROZEN)",
    "subclass": "list(OURS)",
    "subclass that iterates in its own way": "list(BACKWARDS)",
    "subclass, sorted": "sorted(BACKWARDS, key=len)",
    "list": "list(NAMES)",
    "its init": "list.__init__([], NAMES)",
    "subclass of list": "Listed(NAMES)",
    "tuple": "tuple(NAMES)",
    "dict.fromkeys": "dict.fromkeys(NAMES)",
    "OrderedDict.fromkeys": "collections.OrderedDict.fromkeys(NAMES)",
    "deque": "collections.deque(NAMES)",
    "Counter": "collections.Counter(NAMES)",
    "join": "','.join(NAMES)",
    "text": "str(NAMES)",
    "text of a format": "f'{NAMES}'",
    "text of what holds it": "repr([NAMES])",
    "unpacked": "unpacked(NAMES)",
    "first and rest": "first_and_rest(NAMES)",
    "in a list": "[*NAMES]",
    "in a list, of a constant": "[*{'alpha', 'be', 'gam'}]",
    "in a tuple": "(0, *NAMES)",
    "as arguments": "both(*NAMES)",
    "among arguments": "both(0, *NAMES, 1)",
    "of a union": "[0, *(NAMES | {'delta'})]",
    "of a condition": "conditional(NAMES, 1)",
    "in a handler": "handled(NAMES)",
    "in a loop": "in_a_loop(NAMES)",
    "in a generator": "list(generated(NAMES))",
    "list.extend": "extended(NAMES)",
    "map of list.extend": "list(map([].extend, [NAMES]))",
    "list +=": "added(NAMES)",
    "operator.iadd": "operator.iadd([], NAMES)",
    "list[:] =": "assigned(NAMES)",
    "pop": "popped(NAMES)",
    "map": "list(map(len, NAMES))",
    "zip": "list(zip(NAMES, 'abc'))",
    "enumerate": "list(enumerate(NAMES))",
    "reduce": "functools.reduce(operator.add, NAMES)",
    "chain": "list(itertools.chain(NAMES))",
    "product": "list(itertools.product(NAMES))",
    "max with a key": "max(NAMES, key=len)",
    "sorted with a key": "sorted(NAMES, key=lambda name: 0)",
    "sorted with a C key": "sorted(NAMES, key=len, reverse=True)",
    "sorted, partly ordered": "sorted(NESTED)",
    "any of a generator": "any(len(name) > 2 for name in NAMES)",
}
OF_OBJECTS = {
    "for": "[item for item in THINGS]",
    "list": "list(THINGS)",
    "dict.fromkeys": "dict.fromkeys(THINGS)",
    "in a list": "[0, *THINGS]",
    "pop": "popped(THINGS)",
    "sorted": "sorted(THINGS, key=str)",
}
NOT_SHOWN = {
    "in": "'be' in NAMES",
    "len": "len(NAMES)",
    "union": "NAMES | {'delta'}",
    "copy": "set(NAMES)",
    "sorted": "sorted(NAMES)",
    "sorted backwards": "sorted(NAMES, key=None, reverse=True)",
    "sorted pairs": "sorted(PAIRS)",
    "any": "any(NAMES)",
    "all": "all(NAMES)",
    "numbers": "[*NUMBERS]",
    "one": "list({'alpha'})",
    "list of a list": "[*['alpha', 'be']]",
    "arguments": "both(1, *(2, 3))",
}


def orders(expression: str) -> set[str]:
    """Which orders the recording of a forward that computes an expression notes."""
    lines = "class Net(nn.Module):\n    def forward(self, x):\n"
    model = load("subject", f"{TOP}\n{lines}        found = {expression}\n        return x\n").Net()
    with Recorder() as recorder:
        model(torch.zeros(2))
    return {name for kind, _, name, _ in recorder.observations if kind == "order"}


@pytest.mark.parametrize("name", SHOWN)
def test_the_order_of_a_set_of_texts_is_noted(name: str) -> None:
    assert orders(SHOWN[name])


@pytest.mark.parametrize("name", OF_OBJECTS)
def test_the_order_of_a_set_of_objects_is_noted(name: str) -> None:
    assert "objects" in orders(OF_OBJECTS[name])


@pytest.mark.parametrize("name", NOT_SHOWN)
def test_what_does_not_show_the_order_is_not_noted(name: str) -> None:
    assert not orders(NOT_SHOWN[name])


def test_a_class_of_sets_that_is_made_meanwhile_is_pythons_own_afterwards() -> None:
    told: list[Any] = []
    _native.watch_sets(told.append)
    made = type("Made", (set,), {})
    list(made("ab"))
    _native.unwatch_sets()
    assert made("ab") in told
    told.clear()
    assert sorted(made("ab")) == ["a", "b"]
    assert not told


def test_everything_is_as_ever_while_watched_and_afterwards() -> None:
    names = {"alpha", "be", "gam"}

    def taken() -> Any:
        return list(names), sorted(names, key=len, reverse=True), [0, *names], dict.fromkeys(names, 1), str(names), any(names)

    expected, told = taken(), []
    _native.watch_sets(told.append)
    watched = taken()
    _native.unwatch_sets()
    assert watched == expected and told
    told.clear()
    assert taken() == expected and not told


def test_where_a_recording_cannot_begin_everything_is_as_before(monkeypatch: pytest.MonkeyPatch) -> None:
    getitem = type(os.environ).__getitem__

    def refuse(self: Any) -> None:
        raise Bypass(Reason.EXPORT_FAILED, "all taken")

    recorder = Recorder()
    monkeypatch.setattr("rekindle.recording.interpreter_events.MonitoringHook.start", refuse)
    monkeypatch.setattr("rekindle.recording.recorder.call_hook", interpreter_events.MonitoringHook)
    with pytest.raises(Bypass, match="all taken"), recorder:
        pass
    assert type(os.environ).__getitem__ is getitem
    assert recorder._probe not in sys.meta_path


@pytest.mark.skipif(sys.version_info < (3, 13), reason="the stack is read from Python 3.13 on")
def test_the_depth_of_the_stack_is_known_at_each_instruction() -> None:
    import asyncio
    import dis

    from rekindle.key.code.stack_depth import depths_at

    modules = [asyncio.base_events, dis, types, subprocess, torch.nn.functional, torch.nn.modules.module]
    found = 0
    for module in modules:
        for function in vars(module).values():
            code = getattr(function, "__code__", None)
            if isinstance(code, types.CodeType):
                depths = depths_at(code, dis.opmap["RETURN_VALUE"])
                assert set(depths.values()) <= {1}
                found += len(depths)
    assert found > 50


def test_the_order_that_names_alone_decide_is_told_by_them() -> None:
    assert world.order_name({1, 2}) is None
    assert world.order_name({object(), 1}) == "objects"
    assert world.order_name({"a b", "c"}) == "texts"
    drawn = random.Random(0)
    for count in range(2, 12):
        items = {f"name{drawn.randrange(10**6)}" for _ in range(count)}
        name = world.order_name(items)
        if name != "texts":
            assert world.order_text(str(name)).split() == list(items)
    removed = {"one", "two", "three"}
    removed.discard("two")
    assert world.order_name(removed) == "texts"
    taken = {"one", "two", "three", "four"}
    taken.pop()
    assert world.order_name(taken) == "texts"
