"""Stands in for sizes that stay open in an export: integers to the forward, values of the graph to the trace.

A forward that computes with a size and gives it to torch leaves the arithmetic in the graph. A forward that asks for its value (a
branch, a loop, an index) makes the graph right for some sizes only: each such question becomes a guard, whose answer at other
sizes the graph itself computes before it is run at them.

An example: `n = x.shape[0]` is 4 at the export. `y.view(n // 2, -1)` puts the division into the graph. `if n > 3` adds the guard
"4 > 3 is True"; a call with n = 2 answers it otherwise, and does not run this graph. `range(n)` fixes the dimension: the graph is
for 4 only.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any

import torch

from rekindle.process.torch_internals import disabled_torch_function
from rekindle.sizes.shapes import Place

CLOSED = "_rekindle_closed"  # a mark on tensors of which no size is open

_ARITHMETIC: dict[str, tuple[Callable[[int, int], int], Callable[[torch.Tensor, torch.Tensor], torch.Tensor]]] = {
    "add": (operator.add, torch.add),
    "sub": (operator.sub, torch.sub),
    "mul": (operator.mul, torch.mul),
    "floordiv": (operator.floordiv, lambda a, b: torch.div(a, b, rounding_mode="floor")),
    "mod": (operator.mod, torch.remainder),
}
_COMPARISONS = {name: (getattr(operator, name), getattr(torch, name)) for name in ("eq", "ne", "lt", "le", "gt", "ge")}
_SIGNS = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">="}
# The rest of what an int can do gives numbers that the trace does not follow.
_FOLLOWED_NO_FURTHER = """
    truediv rtruediv pow rpow and rand or ror xor rxor lshift rlshift rshift rrshift divmod rdivmod
    int float index invert str repr format round reduce_ex complex
""".split()
_TEXTS = frozenset(("repr", "str", "format"))
# Modules that look up what they know of a shape, and work it out instead where a size cannot be hashed.
_TAKES_SYMBOLS = frozenset({"einops.einops"})


@dataclass
class Guard:
    """Holds a question about sizes whose answer the graph has to find again."""

    where: str  # `file.py:12 in forward`
    what: str  # of the question, for a person
    value: int  # the answer
    traced: torch.Tensor  # the graph's answer, a 0-dim integer or boolean
    is_small: bool = False  # whether nobody asked: the trace is for this size of 0 or 1 only


class SizeTrace:
    """Collects what the forward of one export asks of sizes. `where` names the place in the user's code that runs.

    is_for_message: tells of code that makes a text of a size whether only an error would show it
    """

    def __init__(self, where: Callable[[], str], is_for_message: Callable[[FrameType], bool] = lambda frame: False) -> None:
        self.is_for_message = is_for_message
        self.guards: list[Guard] = []
        self.numbers: list[TracedSize] = []  # in the forward's result
        self.fixed: dict[Place, str] = {}  # dimensions of inputs whose size the forward asked for -> where
        self.strides: str | None = None  # where the forward asked for strides that the sizes do not tell
        self._where = where

    def ask(self, value: int, traced: torch.Tensor, what: str, is_small: bool = False) -> None:
        """Adds a guard."""
        self.guards.append(Guard(self._where(), what, int(value), traced, is_small))

    def fix(self, size: TracedSize) -> int:
        """Returns the value of a size, on which the graph depends from now on."""
        if size.place is not None:
            self.fixed.setdefault(size.place, self._where())
        else:
            self.ask(size.value, size.traced, f"a size == {size.value}")
        return size.value

    def fix_places(self, places: Iterable[Place]) -> None:
        """Fixes the sizes of dimensions of inputs, as fix() does."""
        for place in places:
            self.fixed.setdefault(place, self._where())

    def number(self, value: Any) -> int | None:
        """Adds a size to those that the forward returns, and gives its position among them; None for anything else."""
        if not is_traced(value):
            return None
        self.numbers.append(value)
        return len(self.numbers) - 1

    @property
    def has_answers(self) -> bool:
        """Tells whether there is anything to ask the graph."""
        return bool(self.guards or self.numbers)

    def ask_for_strides(self) -> None:
        """Notes that the forward asks for the strides of a tensor that may not be contiguous."""
        self.strides = self.strides or self._where()

    def answers(self) -> torch.Tensor | None:
        """Returns what the graph answers to all guards, and the numbers that the forward returns, as one int64 vector."""
        return stacked([*self.guards, *self.numbers])

    def split_off(self, is_checked: Callable[[torch.Tensor], bool]) -> list[Guard]:
        """Takes away the guards whose answers satisfy a test, and returns them."""
        taken = [guard for guard in self.guards if is_checked(guard.traced)]
        self.guards = [guard for guard in self.guards if not any(guard is other for other in taken)]
        return taken


def stacked(asked: Sequence[Guard | TracedSize]) -> torch.Tensor | None:
    """Returns what a trace has for numbers that it asked for, as one int64 vector; None for none."""
    return torch.stack([one.traced.to(torch.int64) for one in asked]) if asked else None


class TracedSize(torch.SymInt):
    """Stands for an int in all that can be asked of it; torch's functions take it where they take an int."""

    def __init__(self, value: int, traced: torch.Tensor, trace: SizeTrace, place: Place | None = None) -> None:
        self.node = None  # nothing but a TraceMode hands it to torch, and not as it is
        self.value = value  # at this call
        self.traced = traced  # what computes it, a 0-dim tensor of the trace
        self.trace = trace
        self.place = place  # the dimension of an input that it is the size of, if it is one's

    @property
    def __class__(self) -> type:
        return int

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not hasattr(int, name):
            raise AttributeError(f"'int' object has no attribute {name!r}")
        return getattr(self.trace.fix(self), name)

    def __bool__(self) -> bool:
        return self != 0

    def __pos__(self) -> TracedSize:
        return self

    def __neg__(self) -> Any:
        return 0 - self

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    __trunc__ = __floor__ = __ceil__ = __pos__

    def __copy__(self) -> TracedSize:
        return self

    def __deepcopy__(self, memo: Any) -> TracedSize:
        return self


def is_traced(value: Any) -> bool:
    """Tells whether a value is a traced size; isinstance says that it is an int."""
    return type(value) is TracedSize


def _is_number(value: Any) -> bool:
    return type(value) in (int, bool, TracedSize)


def _tensor_of(value: Any) -> Any:
    return value.traced if is_traced(value) else int(value)


def _value_of(value: Any) -> int:
    return value.value if is_traced(value) else value


def in_trace(function: Callable[..., torch.Tensor], a: Any, b: Any) -> torch.Tensor:
    """Computes with two numbers in the trace, whatever modes there are. One of both is a tensor of the trace."""
    with disabled_torch_function():
        first, second = _tensor_of(a), _tensor_of(b)
        return function(first if isinstance(first, torch.Tensor) else torch.full((), first, device="cpu"), second)


def _define_arithmetic(name: str) -> None:
    compute, traced = _ARITHMETIC[name]

    def apply(self: TracedSize, a: Any, b: Any, other: Any) -> Any:
        if _is_number(other):
            return TracedSize(compute(_value_of(a), _value_of(b)), in_trace(traced, a, b), self.trace)
        if isinstance(other, torch.Tensor):
            return NotImplemented  # the tensor knows how
        return compute(*(self.trace.fix(x) if is_traced(x) else x for x in (a, b)))

    setattr(TracedSize, f"__{name}__", lambda self, other: apply(self, self, other, other))
    setattr(TracedSize, f"__r{name}__", lambda self, other: apply(self, other, self, other))


def _define_comparison(name: str) -> None:
    compare, traced = _COMPARISONS[name]

    def apply(self: TracedSize, other: Any) -> Any:
        if isinstance(other, torch.Tensor):
            return NotImplemented
        if not _is_number(other):
            return compare(self.trace.fix(self), other) if isinstance(other, float) else NotImplemented
        value = compare(self.value, _value_of(other))
        if other is self or (self.place is not None and is_traced(other) and other.place == self.place):
            return value
        self.trace.ask(value, in_trace(traced, self, other), f"{self.value} {_SIGNS[name]} {_value_of(other)} is {value}")
        return value

    setattr(TracedSize, f"__{name}__", apply)


def _define_rest(name: str) -> None:
    def apply(self: TracedSize, *rest: Any) -> Any:
        if name in _TEXTS and self.trace.is_for_message(sys._getframe(1)):
            return getattr(self.value, f"__{name}__")(*rest)
        rest = tuple(self.trace.fix(other) if is_traced(other) else other for other in rest)
        value = self.trace.fix(self)
        found = getattr(value, f"__{name}__")(*rest)
        if found is not NotImplemented or not rest or not isinstance(rest[0], (float, complex)):
            return found
        # Python would ask the number now, which takes nothing but an int of its own for one.
        return getattr(type(rest[0])(value), f"__{name}__")(*rest)

    setattr(TracedSize, f"__{name}__", apply)


def _hash(self: TracedSize) -> int:
    """Returns the hash of the value, which the graph depends on then; raises TypeError where sizes may be symbols instead."""
    if sys._getframe(1).f_globals.get("__name__") in _TAKES_SYMBOLS:
        raise TypeError("unhashable type: a size that stays open")
    return hash(self.trace.fix(self))


TracedSize.__hash__ = _hash  # type: ignore[method-assign]
for _name in _ARITHMETIC:
    _define_arithmetic(_name)
for _name in _COMPARISONS:
    _define_comparison(_name)
for _name in _FOLLOWED_NO_FURTHER:
    _define_rest(_name)


class TracedShape(tuple):
    """Holds the sizes of a tensor, of which some may be traced, as a torch.Size does."""

    __slots__ = ()

    @property
    def __class__(self) -> type:
        return torch.Size

    def numel(self) -> Any:
        """Returns the product of the sizes."""
        product: Any = 1
        for size in self:
            product = product * size
        return product

    def __getitem__(self, index: Any) -> Any:
        found = tuple.__getitem__(self, index)
        return TracedShape(found) if type(found) is tuple else found

    def __reduce__(self) -> Any:
        return torch.Size, (tuple(map(int, self)),)


def swapped(value: Any, swap: Callable[[TracedSize], Any]) -> Any:
    """Returns an argument of torch's, or a result of a forward's, with `swap` of each traced size in its place."""
    kind = type(value)
    if kind is TracedSize:
        return swap(value)
    if kind is TracedShape:
        items = [swapped(item, swap) for item in tuple(value)]
        return torch.Size(items) if all(type(item) is int for item in items) else tuple(items)
    if kind is list or kind is tuple:
        return kind(swapped(item, swap) for item in value)
    if kind is dict:
        return {name: swapped(item, swap) for name, item in value.items()}
    if kind is slice:
        return slice(*(swapped(item, swap) for item in (value.start, value.stop, value.step)))
    return value


def contains_traced(value: Any) -> bool:
    """Tells whether swapped() would change anything."""
    kind = type(value)
    if kind is dict:
        return any(map(contains_traced, value.values()))
    if kind is slice:
        return any(map(contains_traced, (value.start, value.stop, value.step)))
    if kind in (list, tuple, TracedShape):
        return any(map(contains_traced, tuple(value)))
    return kind is TracedSize
