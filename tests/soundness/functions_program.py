"""Random modules that apply autograd Functions, as text, and the steps they are trained by. The same seed gives the same."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from functions_frame import HEADER
from functions_steps import BACKWARDS, CHANGES, LAYOUTS, LOGGED_AGAIN
from functions_text import FUNCTION_PARTS, NET_PARTS, Parts, clashes, class_of, net_of

_ROWS = (3, 3, 3, 3, 5, 2, 1, 4)
_SIZES = (1.0, 1.0, 1.0, 12.0, 12.0, 0.1)
_AVOIDED = 0.93  # of the Functions whose parts clash


@dataclass(frozen=True)
class Step:
    """Describes one call and its backward, and what changes before.

    rows: of the input; size: of its numbers; layout: how it lies in memory; gradient: whether it requires one
    """

    change: str = "nothing"
    backward: str = "loss"
    rows: int = 3
    size: float = 1.0
    layout: str = "rows"
    gradient: bool = False
    train: bool = True
    seed: int = 0


@dataclass(frozen=True)
class Program:
    """Describes a module and its steps.

    functions, net: by name of a part, the way in which it is written, of each Function and of the module
    """

    functions: tuple[Parts, ...]
    net: Parts
    steps: tuple[Step, ...]

    def source(self) -> str:
        """Returns the text of the module."""
        return HEADER + self.body()

    def body(self) -> str:
        """Returns what the text has after what all have."""
        classes = "".join(class_of(number, parts) for number, parts in enumerate(self.functions))
        return classes + net_of(self.functions, self.net)


def draw(seed: int) -> Program:
    """Draws the program of a seed."""
    rng = random.Random(seed)
    strange = rng.choice((0.3, 0.5, 0.7, 1.0))
    functions = tuple(_function(rng, strange) for _ in range(rng.choice((1, 1, 2, 2, 3))))
    net = _drawn(rng, NET_PARTS, strange)
    gradient = rng.random() < 0.25
    steps = [_step(rng, number, gradient) for number in range(rng.randint(5, 6))]
    return Program(functions, net, tuple(_without_documented(step, functions) for step in steps))


def _without_documented(step: Step, functions: tuple[Parts, ...]) -> Step:
    """Leaves out what docs/bypasses.md says a graph does otherwise: random numbers of a backward whose forward runs once more."""
    draws = any(parts["derivative"] == "random" for parts in functions)
    return replace(step, backward="loss") if draws and step.backward in LOGGED_AGAIN else step


def _function(rng: random.Random, strange: float) -> Parts:
    """Draws the parts of a Function; PyTorch refuses few of those that are drawn, as the error says little."""
    while clashes(parts := _drawn(rng, FUNCTION_PARTS, strange)) and rng.random() < _AVOIDED:
        pass
    return parts


def _drawn(rng: random.Random, parts: dict[str, tuple[dict[str, object], float]], strange: float) -> Parts:
    chosen = {}
    for part, (table, often) in parts.items():
        names = [*table]
        chosen[part] = rng.choice(names) if rng.random() < strange * often else names[0]
    return chosen


def _step(rng: random.Random, number: int, gradient: bool) -> Step:
    """Draws a step; the first one is plain, so that what others do first comes after the export."""
    return Step(
        change=rng.choice([*CHANGES]) if number and rng.random() < 0.5 else "nothing",
        backward="loss" if rng.random() < 0.4 or not number else rng.choice([*BACKWARDS]),
        rows=rng.choice(_ROWS),
        size=rng.choice(_SIZES) if number else 1.0,
        layout=rng.choice([*LAYOUTS]) if rng.random() < 0.1 else "rows",
        gradient=gradient and rng.random() < 0.8,
        train=rng.random() < 0.9,
        seed=rng.randrange(1 << 20),
    )
