"""A forward that asks whether two objects are one is answered as in eager: after changes, in later processes, for other calls.

A key says what values are, so that equal objects read alike; see key/values/places.py.
"""

from __future__ import annotations

import types
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import python_process
import rekindle
import torch
from rekindle.lookup import store
from torch import nn

SUM, MEAN = object(), object()
FACTORS = {SUM: 2.0, MEAN: 3.0}
NEGATED = {SUM}
PAIRS = [[1.0], [1.0]]
NAMESPACE = types.SimpleNamespace(first=SUM)
LAMBDAS = [lambda x: x, lambda x: x]
WEAK: weakref.WeakKeyDictionary[Any, float] = weakref.WeakKeyDictionary()
SHARED = torch.ones(3)
RELU = nn.ReLU()
ACTIVATIONS = frozenset({RELU})
BY_TENSOR = {SHARED: 5.0}


class Config:
    """Is equal to others like it in all that a key says."""


CONFIGS = [Config(), Config()]
WEAK[CONFIGS[0]] = 4.0


class Net(nn.Module):
    OTHER = SUM

    def __init__(self, asks: Callable[[Any, torch.Tensor], bool], mode: Any) -> None:
        super().__init__()
        self.linear, self.asks, self.mode = nn.Linear(3, 3), asks, mode

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * (2.0 if self.asks(self, x) else 3.0)


def defaults(mode: Any, other: Any = SUM) -> bool:
    return mode is other


def made_in(other: Any) -> Callable[[Any], bool]:
    return lambda mode: mode is other


of_closure = made_in(SUM)

# How a forward asks, and the values of an attribute for which it is told True and False.
QUESTIONS: dict[str, tuple[Callable[[Any, torch.Tensor], bool], Any, Any]] = {
    "a sentinel": (lambda net, x: net.mode is SUM, SUM, MEAN),
    "the key of a dict": (lambda net, x: FACTORS[net.mode] == 2.0, SUM, MEAN),
    "the item of a set": (lambda net, x: net.mode in NEGATED, SUM, MEAN),
    "equal lists": (lambda net, x: net.mode is PAIRS[0], PAIRS[0], PAIRS[1]),
    "equal objects": (lambda net, x: net.mode is CONFIGS[0], CONFIGS[0], CONFIGS[1]),
    "equal functions": (lambda net, x: net.mode is LAMBDAS[0], LAMBDAS[0], LAMBDAS[1]),
    "a namespace": (lambda net, x: net.mode is NAMESPACE.first, SUM, MEAN),
    "a weak key": (lambda net, x: net.mode in WEAK, CONFIGS[0], CONFIGS[1]),
    "a default": (lambda net, x: defaults(net.mode), SUM, MEAN),
    "a closure": (lambda net, x: of_closure(net.mode), SUM, MEAN),
    "a class attribute": (lambda net, x: net.mode is net.OTHER, SUM, MEAN),
    "an attribute within": (lambda net, x: net.mode[0] is SUM, [SUM], [MEAN]),
    "its own address": (lambda net, x: id(net.mode) == id(SUM), SUM, MEAN),
}


def wrapped(module: nn.Module, cache_dir: Any) -> nn.Module:
    return rekindle.Module(module, options=rekindle.Options(start="wait", cache_dir=cache_dir))


def check(module: nn.Module, graphed: nn.Module, *arguments: Any) -> None:
    torch.testing.assert_close(graphed(*arguments), module(*arguments))


@pytest.mark.parametrize("name", QUESTIONS)
@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_an_attribute_becomes_another_object_like_it(tmp_path: Path, name: str, order: tuple[int, int]) -> None:
    question = QUESTIONS[name]
    net = Net(question[0], question[order[0]])
    graphed = wrapped(net, tmp_path)
    x = torch.randn(2, 3)
    for place in (*order, *order):
        net.mode = question[place]
        check(net, graphed, x)
    assert rekindle.status(graphed).eager_calls == 0 or name == "its own address"


@pytest.mark.parametrize("name", QUESTIONS)
def test_another_module_is_told_otherwise_from_the_same_cache(tmp_path: Path, name: str) -> None:
    asks, *modes = QUESTIONS[name]
    for mode in (*modes, *modes):
        net = Net(asks, mode)
        check(net, wrapped(net, tmp_path), torch.randn(2, 3))


PROGRAM = """
import sys, torch, rekindle
from rekindle.lookup import store
from torch import nn
SUM, MEAN = object(), object()
class Net(nn.Module):
    def __init__(self, mode):
        super().__init__()
        self.mode = mode
    def forward(self, x):
        return x.sum(1) if self.mode is SUM else x.mean(1)
net = Net({"sum": SUM, "mean": MEAN}[sys.argv[2]])
graphed = rekindle.Module(net, options=rekindle.Options(start="wait", cache_dir=sys.argv[1]))
x = torch.arange(6.0).reshape(2, 3)
assert torch.equal(graphed(x), net(x)), sys.argv
print(rekindle.status(graphed).source)
"""


def test_later_processes_find_the_graph_of_their_own_answer(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    arguments = str(program), str(tmp_path / "cache")
    runs = [python_process.run(*arguments, mode, check=True) for mode in ("sum", "mean", "mean", "sum")]
    sources = [run.stdout.strip() for run in runs]
    assert sources == ["export", "export", "local", "local"]


# What exports run on copies of is another object there: such forwards run in eager.
OF_COPIES: dict[str, Callable[[Any, torch.Tensor], bool]] = {
    "a buffer": lambda net, x: net.shared is SHARED,
    "a plain tensor": lambda net, x: net.plain is SHARED,
    "a module": lambda net, x: net.relu is RELU,
    "a module in a set": lambda net, x: net.relu in ACTIVATIONS,
    "a tensor as a key": lambda net, x: net.shared in BY_TENSOR,
    "an argument": lambda net, x: x is SHARED,
}


@pytest.mark.parametrize("name", OF_COPIES)
def test_what_is_copied_for_an_export_is_not_taken_for_another_object(tmp_path: Path, name: str) -> None:
    net = Net(OF_COPIES[name], None)
    net.register_buffer("shared", SHARED)
    net.relu, net.plain = RELU, [SHARED][0]
    graphed = wrapped(net, tmp_path)
    check(net, graphed, SHARED)
    assert rekindle.status(graphed).source == "eager"
    (reason, why), *_ = rekindle.status(graphed).bypass
    assert reason == "opaque_value" and "test_identity." in why and "copies" in why


class Asking(nn.Module):
    def __init__(self, asks: Callable[..., bool]) -> None:
        super().__init__()
        self.linear, self.asks, self.own = nn.Linear(3, 3), asks, [1.0, 2.0]

    def forward(self, x: torch.Tensor, *others: Any) -> torch.Tensor:
        return self.linear(x) * (2.0 if self.asks(self, x, *others) else 3.0)


ROWS = [torch.randn(2, 3)]
LISTED = [1.0, 2.0]
NAMED = {"rows": ROWS[0]}

# How a forward asks about its arguments, and those of calls with different answers.
OF_ARGUMENTS: dict[str, tuple[Callable[..., bool], Callable[[Asking], list[tuple[Any, ...]]]]] = {
    "two lists": (lambda net, x, a, b: a is b, lambda net: [(ROWS, ROWS), (ROWS, [*ROWS])]),
    "two dicts": (lambda net, x, a, b: a is b, lambda net: [(NAMED, NAMED), (NAMED, {**NAMED})]),
    "nested": (lambda net, x, a: a[0] is a[1], lambda net: [([ROWS, ROWS],), ([ROWS, [*ROWS]],)]),
    "the module's": (lambda net, x, a: a is net.own, lambda net: [([1.0, 2.0],), (net.own,)]),
    "a global": (lambda net, x, a: a is LISTED, lambda net: [([1.0, 2.0],), (LISTED,)]),
    "a global tensor": (lambda net, x, a: a is SHARED, lambda net: [(torch.ones(3),), (SHARED,)]),
}


@pytest.mark.parametrize("name", OF_ARGUMENTS)
@pytest.mark.parametrize("turned", [False, True])
def test_arguments_are_told_apart(tmp_path: Path, name: str, turned: bool) -> None:
    asks, calls_of = OF_ARGUMENTS[name]
    net = Asking(asks)
    graphed = wrapped(net, tmp_path)
    calls = calls_of(net)[::-1] if turned else calls_of(net)
    x = torch.randn(2, 3)
    for arguments in (*calls, *calls):
        check(net, graphed, x, *arguments)
    of_globals = name.startswith("a global")  # which an export has no copies of
    assert of_globals or (rekindle.status(graphed).eager_calls, rekindle.status(graphed).exports) == (0, 2)


def test_equal_objects_of_equal_programs_share_a_graph(tmp_path: Path) -> None:
    def made() -> Net:
        return Net(QUESTIONS["equal lists"][0], [1.0])  # not one of the global's

    first, second = (wrapped(made(), tmp_path) for _ in range(2))
    for module in (first, second):
        module(torch.randn(2, 3))
    assert rekindle.status(second).source == "local"


def test_the_explanation_of_a_miss_names_the_places(tmp_path: Path) -> None:
    net = Net(QUESTIONS["a sentinel"][0], SUM)
    graphed = wrapped(net, tmp_path)
    x = torch.randn(2, 3)
    graphed(x)
    store.flush()
    net.mode = MEAN
    found = rekindle.explain(graphed, x)
    assert found.outcome == "miss" and any("model.mode" in one.old for one in found.differences), str(found)
