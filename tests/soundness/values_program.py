"""Random programs of operators, and the calls they get: one with ordinary numbers, then some with numbers at the edges.

A program is drawn while it runs on ordinary numbers, of two batch sizes if it is to run with others. The same seed gives the same
program.
"""

from __future__ import annotations

import dataclasses
import itertools
import random
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from programs import _KNOWN, Line, _bounded, _overlap
from programs import Program as Operations
from random_operations_edges import EDGES
from random_operations_more import WRITERS
from random_operations_rare import _COMPLEX, RARE_WRITERS
from values_numbers import COTANGENTS, INTEGERS, LAYOUTS, MASKS, NUMBERS, numbers

_TRIES = 20
_MANY_TRIES = 100  # of inputs that suit one operator
_OTHER = 3  # how much larger the second batch is while a program is drawn
_BATCHES = (2, 3, 5, 8, 33)
# Casts of infinities to integers, and fractions of them, are whatever the processor makes of them; products of complex infinities
# depend on where the numbers lie.
_UNDEFINED = {"long", "to int", "frexp", "real and imaginary", *_COMPLEX}
_PLAIN = [name for name in _KNOWN if name not in EDGES and name not in _UNDEFINED]
_EDGES = [*EDGES]
_NAMES = [*_EDGES, *_PLAIN]
_SINGLE = 3  # one in so many programs has one operator
_DTYPES = ("float32",) * 6 + ("float64", "bfloat16", "float16")
_INTEGERS = ("int64", "int64", "int32", "int16", "int8", "uint8")


@dataclass(frozen=True)
class Input:
    """Describes one argument.

    sizes: without that of a batch; positive: ordinary numbers are at least 0.1; gradient: whether it is asked for
    """

    dtype: str
    sizes: tuple[int, ...]
    batched: bool = True
    positive: bool = False
    gradient: bool = False

    def make(self, batch: int, generator: torch.Generator) -> torch.Tensor:
        """Returns ordinary numbers, which are the same in every dtype but for rounding."""
        shape = (batch, *self.sizes) if self.batched else self.sizes
        dtype = getattr(torch, self.dtype)
        if dtype is torch.bool:
            return torch.rand(shape, generator=generator) < 0.4
        if not dtype.is_floating_point:
            return torch.randint(0, 7, shape, generator=generator).to(dtype)
        x = torch.randn(shape, generator=generator)
        return (x.abs() + 0.1 if self.positive else x).to(dtype)


@dataclass(frozen=True)
class Step:
    """Describes one call and its backward.

    numbers, integers, masks: the kind of what is given; only: the one input that has such numbers, -1 for all; weight: the kind
    of the parameter's numbers; batch: another batch size, 0 for the program's own
    """

    numbers: str = "ordinary"
    integers: str = "ordinary"
    masks: str = "ordinary"
    only: int = -1
    weight: str = "ordinary"
    layout: str = "dense"
    batch: int = 0
    cotangent: str = "ordinary"
    gradients: bool = True
    seed: int = 0


@dataclass(frozen=True)
class Program:
    """lines: work on the inputs and a weight of `size` numbers, see programs.py; results: positions of values; steps: the calls
    after the first, whose numbers are ordinary; level, numerics: the options memory_level and numerics."""

    lines: tuple[Line, ...]
    results: tuple[int, ...]
    inputs: tuple[Input, ...]
    steps: tuple[Step, ...]
    batch: int = 3
    size: int = 4
    dtype: str = "float32"
    level: int | None = None
    numerics: str = "fast"

    def module(self) -> Operations:
        """Returns the module that runs the lines."""
        made = Operations(self.size).to(getattr(torch, self.dtype))
        made.lines, made.results = [*self.lines], [*self.results]
        return made

    def arguments(self, step: Step) -> list[torch.Tensor]:
        """Returns what a step gives the module, new each time."""
        found = []
        for i, one in enumerate(self.inputs):
            generator = torch.Generator().manual_seed(step.seed + 10 * i)
            x = one.make(step.batch or self.batch, generator)
            if x.is_floating_point():
                x = numbers(step.numbers, x, generator) if step.only in (-1, i) else x
            else:
                x = MASKS[step.masks](x, generator) if x.dtype is torch.bool else INTEGERS[step.integers](x, generator)
            found.append(LAYOUTS[step.layout](x).requires_grad_(one.gradient and step.gradients))
        return found

    def weight(self, step: Step) -> torch.Tensor:
        """Returns the numbers of the parameter for a step."""
        ordinary = torch.sin(torch.arange(self.size, dtype=torch.float32)).to(getattr(torch, self.dtype))
        return numbers(step.weight, ordinary, torch.Generator().manual_seed(step.seed + 1))


def draw(seed: int) -> Program:
    """Draws the program of a seed: every third one has one operator, each of them in turn, and numbers of every kind."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _drawn(random.Random(seed), _NAMES[seed // _SINGLE % len(_NAMES)] if seed % _SINGLE == 0 else "")


def _drawn(rng: random.Random, name: str) -> Program:
    """Draws a program of an operator, or, without a name or where no input that is drawn suits it, of several."""
    for attempt in itertools.count():
        sizes = [rng.choice((1, 2, 3, 4, 5, 8, 17)) if rng.random() < 0.7 else rng.randint(1, 4) for _ in range(2)]
        dtype = rng.choice(_DTYPES)
        program = Program((), (), _inputs(rng, sizes, dtype), (), rng.choice((2, 3, 4, 4, 9)), sizes[-1], dtype)
        alone = name if attempt < _MANY_TRIES else ""
        program = _with_lines(rng, program, rng.random() < 0.75, alone)
        if program.lines and _is_ordinary(program):
            steps = tuple(_step(rng, program) for _ in range(rng.randint(6, 12)))
            if alone:
                steps = (*steps[:4], *_every_kind(rng, program))
            level, numerics = rng.choice((None, None, None, 0, 2)), rng.choice(("fast", "fast", "fast", "eager"))
            return dataclasses.replace(program, steps=steps, level=level, numerics=numerics)
    raise AssertionError


def _inputs(rng: random.Random, sizes: list[int], dtype: str) -> tuple[Input, ...]:
    found = []
    for _ in range(rng.randint(1, 3)):
        own = tuple(sizes[rng.randint(0, 2) :])
        gradient, positive = rng.random() < 0.8, rng.random() < 0.3
        found.append(Input(rng.choice(_DTYPES) if rng.random() < 0.15 else dtype, own, rng.random() < 0.8, positive, gradient))
    found[0] = dataclasses.replace(found[0], batched=True)
    if rng.random() < 0.3:
        found.append(Input(rng.choice(_INTEGERS), tuple(sizes[rng.randint(0, 2) :]), rng.random() < 0.6))
    if rng.random() < 0.4:
        found.append(Input("bool", found[0].sizes, True))
    return tuple(found)


def _step(rng: random.Random, program: Program) -> Step:
    def kind(table: Iterable[str], often: float) -> str:
        return rng.choice([*table]) if rng.random() < often else "ordinary"

    return Step(
        numbers=kind(NUMBERS, 0.9),
        integers=kind(INTEGERS, 0.6),
        masks=kind(MASKS, 0.6),
        only=rng.randrange(len(program.inputs)) if rng.random() < 0.25 else -1,
        weight=kind(NUMBERS, 0.15),
        layout=rng.choice([*LAYOUTS]) if rng.random() < 0.25 else "dense",
        batch=rng.choice(_BATCHES) if rng.random() < 0.25 else 0,
        cotangent=kind(COTANGENTS, 0.5),
        gradients=rng.random() < 0.95,
        seed=rng.randrange(1 << 20),
    )


def _every_kind(rng: random.Random, program: Program) -> Iterator[Step]:
    """Yields a step for numbers of every kind, and one for cotangents of every kind, which need no graph of their own."""
    own: dict[str, Any] = {"only": -1, "layout": "dense", "batch": 0, "gradients": True}
    for kind in NUMBERS:
        yield dataclasses.replace(_step(rng, program), numbers=kind, **own)
    for kind in COTANGENTS:
        yield Step(cotangent=kind, seed=rng.randrange(1 << 20))


def _with_lines(rng: random.Random, program: Program, sized: bool, name: str) -> Program:
    """Adds lines. sized: they run with another batch size as well; name: of the operator of a single one."""
    module, sides = program.module(), []
    for batch in (program.batch, program.batch * _OTHER)[: 1 + sized]:
        arguments = program.arguments(Step(batch=batch))
        sides.append([*(x.detach().clone().requires_grad_(x.requires_grad) for x in arguments), module.weight * 1])
    first = len(sides[0])
    for _ in range(1 if name else rng.choice((1, 2, 3, 4, 6, 9, 14))):
        _add_line(rng, module.lines, sides, name)
    known = range(first, len(sides[0]))
    unread = {*known} - {i for line in module.lines for i in line.inputs}  # of which a graph leaves out errors as well
    results = {len(sides[0]) - 1, *unread, *rng.sample(known, min(len(known), rng.choice((0, 0, 1, 3))))}
    return dataclasses.replace(program, lines=tuple(module.lines), results=tuple(sorted(results)))


def _add_line(rng: random.Random, lines: list[Line], sides: list[list[torch.Tensor]], only: str) -> None:
    for _ in range(_TRIES):
        name = only or rng.choice(_EDGES if rng.random() < 0.6 else _PLAIN)
        drawn = _KNOWN[name].draw(rng, sides[0])
        if drawn is None or (name in WRITERS | RARE_WRITERS and _overlap(*(sides[0][i] for i in drawn[0]))):
            continue
        line, results = Line(name, *drawn), []
        versions = [[value._version for value in values] for values in sides]
        try:
            results = [line.run(values) for values in sides]
        except (RuntimeError, IndexError, ValueError, TypeError):
            results = []
        written = versions != [[value._version for value in values] for values in sides]
        if results and (written or all(_bounded(value) for found in results for value in found)):
            for values, found in zip(sides, results, strict=True):
                values += found
            lines.append(line)
            return
        if written:  # half of a line has run
            return


def _is_ordinary(program: Program) -> bool:
    """Tells whether the first call has bounded results and gradients in eager."""
    module, arguments = program.module(), program.arguments(Step())
    torch.manual_seed(0)
    try:
        results = module(*arguments)
        roots = [x.double().sum() for x in results if x.requires_grad]
        if roots:
            sum(roots).backward()
    except (RuntimeError, IndexError, ValueError, TypeError):
        return False
    return all(_bounded(x) for x in [*results, *(x.grad for x in arguments if x.grad is not None)])
