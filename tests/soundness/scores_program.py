"""Random models that return scores beside a loss, as text, and the steps they are trained by. The same seed gives the same."""

from __future__ import annotations

import dataclasses
import random
import re
from dataclasses import dataclass
from typing import Any

from scores_losses import ARGUMENTS, FURTHER, LOSSES, RESULTS, UNKNOWN
from scores_parts import BIASES, CHANGES, FEATURES, HEADS, LAYOUTS
from stepwise_backwards import BACKWARDS

# Of each part of a forward its ways, and how often it is another than the plainest.
PARTS: dict[str, tuple[dict[str, Any], float]] = {
    "features": (FEATURES, 0.8),
    "head": (HEADS, 0.9),
    "bias": (BIASES, 0.4),
    "change": (CHANGES, 0.35),
    "layout": (LAYOUTS, 0.6),
    "loss": (LOSSES, 0.4),
    "further": (FURTHER, 0.35),
    "last": (FURTHER, 0.15),
    "results": (RESULTS, 0.5),
}
_SIZES = ((3, 2), (4, 3), (1, 1), (2, 5), (5, 2), (1, 4), (0, 2), (6, 1), (2, 2), (7, 3))
_MANY = ((130, 2), (4, 128), (1, 700), (257, 2), (3, 233))
_LARGE = 8  # one in so many programs has scores whose gradient comes in blocks
VALUES = {"plain": 1.0, "nan": float("nan"), "inf": float("inf"), "-inf": -float("inf"), "zero": 0.0, "large": 1e4}
_HEADER = """import torch
import torch.nn.functional as F
from torch import nn


def P(*sizes):
    return nn.Parameter(torch.randn(sizes))


"""


@dataclass(frozen=True)
class Step:
    """Describes one call and its backward.

    sizes: of the labels; ignored: which of these are; gradients: of which inputs there are; values: what a row of the input is
    multiplied by; update: whether parameters move afterwards
    """

    backward: str = "loss"
    sizes: tuple[int, int] = (3, 2)
    train: bool = True
    accumulate: bool = False
    ignored: str = "none"
    gradients: str = ""
    values: str = "plain"
    update: bool = True
    seed: int = 0


@dataclass(frozen=True)
class Program:
    """parts: by name, the way in which each is written; arguments: of the loss; flat: labels have one dimension, not two;
    level: the option memory_level."""

    parts: dict[str, str]
    steps: tuple[Step, ...]
    arguments: str = ""
    classes: int = 6
    width: int = 4
    flat: bool = False
    dtype: str = "float32"
    level: int | None = None

    @property
    def ignored(self) -> int:
        """Returns the label that the loss leaves out."""
        found = re.search(r"ignore_index=(-?\d+)", self.arguments)
        return int(found[1]) if found else -100

    @property
    def columns(self) -> int:
        """Returns how many numbers an input has for each label."""
        return self.width + (self.parts["features"] == "later columns")

    def source(self) -> str:
        """Returns the text of the module."""
        chosen = {part: table[self.parts[part]] for part, (table, _) in PARTS.items()}
        scores, labels, count = chosen["layout"]
        forward = [f"h = {chosen['features'][1]}", f"z = {chosen['head'][1]}", "first = z", f"z = {chosen['bias'][1]}"]
        forward += [f"z = {chosen['change'][1]}", f"s, y = {scores}, {labels}", "more = []", f"loss = {chosen['loss'][1]}"]
        forward += [chosen["further"][1], chosen["last"][1], f"return {chosen['results'][1]}"]
        init = ["super().__init__()", *(chosen[part][0] for part in chosen if part != "layout")]
        if "weights" in self.arguments:
            init.append("self.register_buffer('weights', torch.rand($N) + 0.1)")
        head = "    def __init__(self):\n" + _lines(init) + "\n    def forward(self, x, t, u):\n" + _lines(forward)
        names = {"O": self._known_arguments(), "N": count, "D": "0" if self.parts["layout"] == "one row" else "1"}
        names |= {"C": str(self.classes), "K": str(self.width), "I": str(self.ignored)}
        for name, text in names.items():  # what stands for a number of classes has $C in it
            head = head.replace(f"${name}", text)
        return f"{_HEADER}class Net(nn.Module):\n{head}"

    def _known_arguments(self) -> str:
        unknown = UNKNOWN.get(self.parts["loss"], "")
        return ", ".join(text for text in self.arguments.split(", ") if not unknown or not text.startswith(unknown))


def _lines(statements: list[str]) -> str:
    return "".join(f"        {line}\n" for line in statements if line)


def draw(seed: int) -> Program:
    """Draws the program of a seed."""
    rng = random.Random(seed)
    large = seed % _LARGE == _LARGE - 1
    strange = 0.2 if large else rng.choice((0.2, 0.35, 0.6, 1.0))
    parts = {}
    for part, (table, often) in PARTS.items():
        names = [*table]
        parts[part] = rng.choice(names) if rng.random() < strange * often else names[0]
    arguments = rng.choice(ARGUMENTS) if rng.random() < 0.7 else ""
    if parts["layout"] == "joined rows" and "weights" in arguments:  # which have no known number
        arguments = ""
    gradients = rng.choice(("", "", "", "x", "x", "u", "xu"))
    steps: list[Step] = []
    for _ in range(rng.randint(2, 3) if large else rng.randint(3, 7)):
        steps.append(dataclasses.replace(_step(rng, large), gradients=gradients))
    classes = rng.choice((1500, 4002, 9000) if large else (6, 6, 4, 8, 10, 2, 34))
    flat, dtype = rng.random() < 0.35, rng.choice(("float32", "float32", "float64"))
    return Program(
        parts, tuple(steps), arguments, classes, rng.choice((4, 4, 5, 8, 3)), flat, dtype, rng.choice((None, None, None, 0, 1, 2))
    )


def _step(rng: random.Random, large: bool) -> Step:
    return Step(
        backward="loss" if rng.random() < 0.4 else rng.choice([*BACKWARDS]),
        sizes=rng.choice(_MANY if large and rng.random() < 0.7 else _SIZES),
        train=rng.random() < 0.85,
        accumulate=rng.random() < 0.15,
        ignored=rng.choice(("none", "none", "none", "some", "some", "all")),
        values="plain" if rng.random() < 0.6 else rng.choice([*VALUES]),
        update=rng.random() < 0.6,
        seed=rng.randrange(1 << 20),
    )
