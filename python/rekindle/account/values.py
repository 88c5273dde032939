"""Holds what a plan says of its memory: a Value for each piece, a Phase for each program.

An example: the plan of `y = relu(x @ w)` in training has, among others, Value("y", "Relu", "model.py:7 in forward", "result",
saved=True, bytes=1024, offset=None, first=1, last=4): the caller gets it and the backward reads it, so it lies outside the arena.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Value:
    """Describes one piece of memory that a step makes.

    name: of the value in the graph; empty for scratch and for copies of results
    op: the op type of the node that makes it
    source: the line of Python that the node is from, as "model.py:31 in forward"; empty where the graph has none
    use: "saved": the backward reads what the forward made; "intermediate"; "scratch": during one instruction; "result";
        "gradient": what the backward gives to autograd
    saved: whether the backward reads it, which is also true of results that it reads
    bytes: in the arena, rounded up to the alignment of the device
    offset: in bytes from the arena's start; None: the value has memory of its own
    first, last: the instructions from which to which it lives, inclusive; those of the forward come before those of the backward
    """

    name: str
    op: str
    source: str
    use: str
    saved: bool
    bytes: int
    offset: int | None
    first: int
    last: int

    @property
    def where(self) -> str:
        """Names where it is made: the line of Python or, without one, the node."""
        return self.source or f"{self.op} {self.name}".strip()


@dataclass(frozen=True)
class Uncounted:
    """Names a value whose bytes nobody knows before it is computed; the fields are those of Value.

    Its sizes depend on data, or it is what PyTorch's autograd keeps of an operator.
    """

    name: str
    op: str
    source: str
    use: str
    saved: bool

    def __str__(self) -> str:
        return f"{self.name} ({', '.join(filter(None, (self.op, self.source)))})"


@dataclass(frozen=True)
class Phase:
    """Describes the memory of one of the three parts of a training step, in bytes.

    held: what is there all along: parameters, buffers, inputs and the optimizer's state, and for the optimizer the gradients
    live: the largest sum of live values in the arena, `live_at` the instruction where it is; 0 for the optimizer
    outside: the largest sum of live values that have memory of their own: results, gradients, what operators allocate
    total: held, the whole arena and `outside`: what the process has for the model at the peak of the phase
    """

    held: int
    live: int
    live_at: int
    outside: int
    total: int
    instructions: int


@dataclass(frozen=True)
class Budget:
    """Describes how a plan keeps a memory budget.

    bytes: the budget. It is kept if the account's `activations` are not more.
    without: what the activations would take without it
    instructions: those that run a second time, in the backward
    share: of the step's estimated time that these add
    """

    bytes: int
    without: int
    instructions: int
    share: float


@dataclass(frozen=True)
class Saved:
    """Sums up what one line of Python leaves for the backward."""

    where: str
    bytes: int
    values: tuple[str, ...]  # their names in the graph, the largest first


def values_of(plan: Any) -> tuple[Value, ...]:
    """Returns the values of a _native.MemoryAccount."""
    return tuple(
        Value(
            value.name, value.op, value.source, value.use.name, value.saved, value.bytes, value.offset, value.first, value.last
        )
        for value in plan.values
    )  # fmt: skip


def budget_of(plan: Any) -> Budget | None:
    """Returns how a _native.MemoryAccount keeps its budget; None if it has none."""
    of = plan.budget
    return None if of is None else Budget(of.bytes, of.without, of.instructions, of.share)


def uncounted_of(plan: Any) -> tuple[Uncounted, ...]:
    """Returns the values of a _native.MemoryAccount that are in no sum."""
    return tuple(Uncounted(value.name, value.op, value.source, value.use.name, value.saved) for value in plan.uncounted)


def saved_by_line(values: Iterable[Value]) -> list[Saved]:
    """Groups the saved values by where they are made, the largest group first."""
    groups: dict[str, list[Value]] = defaultdict(list)
    for value in sorted(values, key=lambda value: -value.bytes):
        if value.saved:
            groups[value.where].append(value)
    found = [
        Saved(where, sum(value.bytes for value in each), tuple(value.name for value in each)) for where, each in groups.items()
    ]
    return sorted(found, key=lambda group: (-group.bytes, group.where))


def largest_scratch(values: Iterable[Value]) -> int:
    """Returns the largest sum of scratch that one instruction has, in bytes."""
    sums: dict[int, int] = defaultdict(int)
    for value in values:
        if value.use == "scratch":
            sums[value.first] += value.bytes
    return max(sums.values(), default=0)
