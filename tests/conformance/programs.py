"""Random PyTorch programs as a suite: 5 to 60 operations with views, writes in place, casts and random numbers among them.

A program is drawn while it runs: an operation that PyTorch refuses, or whose results grow without bound, is drawn again. The
same seed gives the same program.
"""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Iterator
from typing import Any

import rekindle
import torch
from comparison import Outcome, try_call
from random_operations import OPERATIONS, RANDOM
from random_operations_edges import EDGES
from random_operations_more import MORE, WRITERS
from random_operations_rare import RARE, RARE_WRITERS
from torch import nn

_LARGEST = 1e3  # of the numbers in a program
_SMALLEST = 1e-2  # of the sum of a result: one that is all rounding cannot be compared
_MOST = 4096  # elements of a value
_TRIES = 20
_WIDE = 10_000  # programs from this seed on draw from all operations, and need not read the random numbers that they draw
_RARE = 30_000  # every second operation of programs from this seed on is a rare one, and more sizes are 0 and 1
_ALL = {**OPERATIONS, **MORE}
_KNOWN = {**_ALL, **RARE, **EDGES}  # those of EDGES are for others to draw from
assert len(_KNOWN) == len(OPERATIONS) + len(MORE) + len(RARE) + len(EDGES)
# Not a limit of what a graph can hold, but a graph that is not right: it must not count as right because eager then runs.
_DEFECTS = ("verification_failed", "export_failed")


@dataclasses.dataclass(frozen=True)
class Line:
    """values[inputs] and arguments go into the operation; what it returns are values more."""

    operation: str
    inputs: list[int]
    arguments: tuple[Any, ...]

    @property
    def results(self) -> int:
        """How many values the line adds."""
        return _KNOWN[self.operation].results

    def run(self, values: list[torch.Tensor]) -> list[torch.Tensor]:
        """The values that the line adds."""
        result = _KNOWN[self.operation].run([values[i] for i in self.inputs], self.arguments)
        return [result] if isinstance(result, torch.Tensor) else [*result]


class Program(nn.Module):
    """Runs its lines on its inputs and a parameter; returns the values at `results`, in single precision: a float64 may
    have been computed from numbers that are no more precise than that."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.sin(torch.arange(size, dtype=torch.float32)))
        self.lines: list[Line] = []
        self.results: list[int] = []

    def forward(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        """The values at `results`."""
        values = [*inputs, self.weight * 1]
        for line in self.lines:
            values += line.run(values)
        results = [values[i] for i in self.results]
        return [_in_single_precision(x) for x in results]

    def text(self, inputs: int) -> str:
        """A line for each operation, the values numbered as they are in `Line.inputs`."""
        lines = []
        for start, line in _numbered(self.lines, inputs + 1):
            names = ", ".join(f"v{start + i}" for i in range(line.results))
            lines.append(f"{names} = {line.operation}({line.inputs}, {line.arguments})")
        return "\n".join([*lines, f"return {self.results}"])


def _numbered(lines: list[Line], first: int) -> Iterator[tuple[int, Line]]:
    """Lines with the positions of the first values that they add."""
    for line in lines:
        yield first, line
        first += line.results


def _in_single_precision(value: torch.Tensor) -> torch.Tensor:
    single = {torch.float64: torch.float32, torch.complex128: torch.complex64}
    return value.to(single[value.dtype]) if value.dtype in single else value


def _inputs(rng: random.Random, seed: int) -> list[torch.Tensor]:
    sizes = [rng.randint(1, 4) if seed < _RARE else rng.choice([0, 1, 1, 2, 2, 3, 3, 4, 4, 5]) for _ in range(3)]
    generator = torch.Generator().manual_seed(rng.randrange(1 << 30))
    found = []
    for _ in range(rng.randint(1, 3)):
        shape = sizes[rng.randint(0, 2) :] if rng.random() < 0.9 else [0, *sizes[1:]]
        dtype = torch.float64 if rng.random() < 0.2 else torch.float32
        value = torch.randn(shape, generator=generator, dtype=dtype)
        if rng.random() < 0.2 and value.dim() > 1:
            value = value.transpose(0, -1).contiguous().transpose(0, -1)
        found.append(value.requires_grad_(rng.random() < 0.7))
    return found


def _bounded(value: torch.Tensor) -> bool:
    if value.numel() > _MOST:
        return False
    counts = value.is_floating_point() or value.is_complex()
    return not counts or value.numel() == 0 or bool(value.detach().abs().max() < _LARGEST)


def draw(seed: int) -> tuple[Program, list[torch.Tensor]]:
    """A program that eager runs forward and backward, and its inputs."""
    rng = random.Random(seed)
    while True:
        inputs = _inputs(rng, seed)
        program = Program(inputs[0].shape[-1] if inputs[0].dim() else 1)
        torch.manual_seed(0)
        values = [*(x.detach().clone().requires_grad_(x.requires_grad) for x in inputs), program.weight * 1]
        for _ in range(rng.randint(5, 60)):
            _add_line(rng, program, values, seed)
        known = range(len(inputs), len(values))
        results = {len(values) - 1, *rng.sample(known, min(len(known), rng.randint(1, 3)))}
        if seed < _WIDE:
            results |= _random_values(program, len(inputs) + 1)
        program.results = sorted(results)
        if _runs(program, inputs):
            return program, inputs


def _random_values(program: Program, first: int) -> set[int]:
    """Positions of the drawn values; first: of the value that the first line adds."""
    return {i for i, line in _numbered(program.lines, first) if line.operation in RANDOM}


def _drawn_name(rng: random.Random, seed: int) -> str:
    if seed >= _RARE and rng.random() < 0.5:
        return rng.choice([*RARE])
    return rng.choice([*(OPERATIONS if seed < _WIDE else _ALL)])


def _overlap(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether what a write to `a` reads from `b` depends on the order in which it goes through memory."""
    alike = (a.shape, a.stride(), a.storage_offset()) == (b.shape, b.stride(), b.storage_offset())
    return a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() and not alike


def _add_line(rng: random.Random, program: Program, values: list[torch.Tensor], seed: int) -> None:
    first = len(values) - sum(line.results for line in program.lines)
    for _ in range(_TRIES):
        name = _drawn_name(rng, seed)
        drawn = _KNOWN[name].draw(rng, values)
        if drawn is None or (seed >= _WIDE and name in WRITERS | RARE_WRITERS and _overlap(*(values[i] for i in drawn[0]))):
            continue
        line = Line(name, *drawn)
        if name == "write over" and drawn[0][0] in _random_values(program, first):
            continue
        versions = [value._version for value in values]
        try:
            results = line.run(values)
        except (RuntimeError, IndexError, ValueError, TypeError):
            if versions == [value._version for value in values]:
                continue
            raise
        if all(map(_bounded, results)) or versions != [value._version for value in values]:
            values += results
            program.lines.append(line)
            return


def _runs(program: Program, inputs: list[torch.Tensor]) -> bool:
    """Whether eager gives bounded results and gradients; a write may have changed what a gradient needs."""
    fresh = [x.detach().clone().requires_grad_(x.requires_grad) for x in inputs]
    try:
        results = program(*fresh)
        if roots := [(x.abs() if x.is_complex() else x).double().sum() for x in results if x.requires_grad]:
            sum(roots).backward()
    except RuntimeError:
        return False
    finally:
        program.weight.grad = None
    if any(x.is_floating_point() and 0 < x.detach().abs().sum() < _SMALLEST for x in results):
        return False
    return all(_bounded(x) for x in [*results, *(x.grad for x in fresh if x.grad is not None)])


def _range(text: str) -> range:
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def run(pattern: str, samples: int, options: rekindle.Options, device: str = "cpu") -> Iterator[Outcome]:
    """One outcome a program, named `program seed`: seeds 0 to `samples`, or those in `pattern`, as "3,17" or "10000-10999"."""
    seeds = [seed for part in pattern.split(",") for seed in _range(part)] if pattern else range(samples)
    for seed in seeds:
        program, inputs = draw(seed)
        outcome = try_call(f"program {seed}", program, tuple(inputs), {}, options, device)
        if outcome.place == "eager" and outcome.reason.startswith(_DEFECTS):
            outcome = dataclasses.replace(outcome, right=False)
        if not outcome.right and pattern == str(seed):
            print(program.text(len(inputs)))
        yield outcome
