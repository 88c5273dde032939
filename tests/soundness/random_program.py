"""Random programs: a module as text, whose forward comes by values in a few of many ways, and steps: calls, and changes
between them, that may or may not matter. The same seed gives the same program."""

from __future__ import annotations

import dataclasses
import random
import re
import textwrap
from dataclasses import dataclass

from random_calls import CALLS
from random_changes import GENERAL, drawn
from random_programs import CONSTRUCTS
from random_programs.construct import Construct

_HEADER = """import argparse, collections, contextlib, contextvars, copy, dataclasses, enum, functools, itertools, logging, math
import os, sys, threading, types, typing, warnings
import numpy as np
import torch, torch.utils.checkpoint, torch.nn.utils.parametrize
import torch.nn.functional as F
from torch import nn
"""
_INPUTS = ("x(3, 4)",) * 6 + (
    "x(2, 4)",
    "x(1, 4)",
    "x(5, 4)",
    "x(3, 4, grad=True)",
    "x(3, 4, grad=True)",
    "x(4, 3).t()",
    "x(6, 4)[::2]",
    "x(3, 4, grad=True) * 2",
)
_RARE_INPUTS = (
    "x(3, 4, dtype=torch.float64)",
    "x(2, 3, 4)",
    "x(4)",
    "x(0, 4)",
    "x(3, 5)",
    "x(4).expand(3, 4)",
    "x(3, 8)[:, ::2]",
    "x(2, 2, 4).transpose(0, 1)",
    "x(3, 4, dtype=torch.bfloat16)",
    "torch.arange(12).view(3, 4)",
    "x(3, 4).as_subclass(nn.Parameter)",
    "last()",
    "again()",
    "net.lin.weight",
    "net.lin.weight.data",
)
_CALLS = ("call",) * 20 + ("call_without_grad",) * 4 + ("call_and_step",) * 2 + tuple(name for name in CALLS if name != "call")
_PLACES = ("forward",) * 4 + ("method", "submodule")


@dataclass(frozen=True)
class Piece:
    """A construct of a program: its name, the number that stands for `$`, and where its lines are."""

    name: str
    number: int
    place: str = "forward"

    @property
    def construct(self) -> Construct:
        return CONSTRUCTS[self.name]

    def text(self, text: str) -> str:
        """With the piece's number, about what the piece is in."""
        text = text.replace("$", str(self.number))
        if self.place == "submodule":
            text = text.replace("net.", f"net.sub{self.number}.")
            text = re.sub(r"\bmod\.Net\b", f"mod.Sub{self.number}", re.sub(r"\(net\)", f"(net.sub{self.number})", text))
        return text


@dataclass(frozen=True)
class Step:
    """A call, or a change. number: of the piece that a change is about. inputs: what a call is given; arguments: further
    ones with the number of the piece that takes them."""

    text: str
    number: int = 0
    inputs: str = ""
    arguments: tuple[tuple[int, str], ...] = ()

    @property
    def is_call(self) -> bool:
        return bool(self.inputs)

    def __str__(self) -> str:
        return f"{self.text}({', '.join([self.inputs, *(text for _, text in self.arguments)])})" if self.is_call else self.text


@dataclass(frozen=True)
class Program:
    """pieces, steps; through: whether changes go through the wrapper; second: the change that a second process starts
    with, if there is to be one."""

    pieces: tuple[Piece, ...]
    steps: tuple[Step, ...]
    through: bool = False
    second: Step | None = None

    def source(self) -> str:
        """The module."""
        pieces = [p for p in self.pieces if p.place != "submodule"]
        classes = [_class("Net", "Base", pieces, self.pieces)]
        classes += [_class(f"Sub{p.number}", "Base", [p], []) for p in self.pieces if p.place == "submodule"]
        tops = [_part(p, "top").rstrip() for p in self.pieces if p.construct.top]
        meta = "\n".join(filter(None, (_part(p, "meta") for p in self.pieces)))
        base = _body("\n".join(filter(None, (_part(p, "base") for p in self.pieces))))
        if meta:
            base = f"class Meta(type):\n{_body(meta)}\nclass Base(nn.Module, metaclass=Meta):\n{base}"
        else:
            base = f"class Base(nn.Module):\n{base}"
        return "\n".join([_HEADER, *tops, base, *classes])

    def without(self, number: int) -> Program:
        """Without a piece and all that is about it."""
        steps = [
            dataclasses.replace(step, arguments=tuple(a for a in step.arguments if a[0] != number))
            for step in self.steps
            if step.number != number
        ]
        second = None if self.second and self.second.number == number else self.second
        return dataclasses.replace(
            self, pieces=tuple(p for p in self.pieces if p.number != number), steps=tuple(steps), second=second
        )


def _part(piece: Piece, name: str) -> str:
    return getattr(piece.construct, name).replace("$", str(piece.number))


def _body(text: str) -> str:
    return textwrap.indent(text.rstrip() or "pass", "    ")


def _class(name: str, base: str, own: list[Piece], all_of_them: tuple[Piece, ...] | list[Piece]) -> str:
    """A module with the pieces `own`; those of `all_of_them` that are in submodules are called."""
    members, init, uses = [], ["super().__init__()", "self.lin = nn.Linear(4, 4)"], []
    for piece in all_of_them or own:
        names = [p.replace("$", str(piece.number)).partition("=")[0] for p in piece.construct.parameters]
        given = ", ".join(["x", "y", "out", *names])
        if piece in own:
            members.append(_part(piece, "members"))
            init.append(_part(piece, "init"))
        if piece not in own:
            init.append(f"self.sub{piece.number} = Sub{piece.number}()")
            uses.append(f"y = self.sub{piece.number}({given})")
        elif piece.place == "method":
            members.append(f"def part{piece.number}(self, {given}):\n{_body(_part(piece, 'use'))}\n    return y")
            uses.append(f"y = self.part{piece.number}({given})")
        else:
            uses.append(_part(piece, "use"))
    parameters = [p.replace("$", str(piece.number)) for piece in all_of_them or own for p in piece.construct.parameters]
    has_results = any("out[" in piece.construct.use for piece in all_of_them)
    if name == "Net":
        head, first, last = (
            ", ".join(["self", "x", *parameters]),
            "y = self.lin(x)\nout = {}",
            "return (y, out)" if has_results else "return y",
        )
    else:
        head, first, last = ", ".join(["self", "x", "y", "out", *parameters]), "", "return y"
    init_text = "def __init__(self):\n" + _body("\n".join(filter(None, init)))
    forward = f"def forward({head}):\n" + _body("\n".join(filter(None, [first, *uses, last])))
    return f"class {name}({base}):\n" + _body("\n".join(filter(None, [*members, init_text, forward])))


def draw(seed: int, calls: int = 12, only: str | None = None, processes: bool = False) -> Program:
    """The program of a seed. only: the construct that it must have, alone or beside others; processes: there is a second process
    in any case, not only in every second program."""
    rng = random.Random(seed)
    names = [*CONSTRUCTS]
    weights = [CONSTRUCTS[name].weight for name in names]
    count = rng.choice((1, 1, 2, 2, 3, 3, 4))
    chosen = [only] if only else []
    while len(chosen) < count:
        chosen += [name for name in rng.choices(names, weights) if name not in chosen]
    pieces = tuple(Piece(name, i + 1, rng.choice(_PLACES)) for i, name in enumerate(chosen))
    steps: list[Step] = []
    for call in range(calls):
        if call and rng.random() < 0.75:
            steps.append(_change(rng, pieces, steps))
        steps.append(_call(rng, pieces))
    changes = [step for step in steps if not step.is_call and not step.text.startswith("undo")]
    if processes and not changes:
        changes = [Step("gc.collect()")]
    second = rng.choice(changes) if changes and (rng.random() < 0.5 or processes) else None
    return Program(pieces, tuple(steps), rng.random() < 0.5, second)


def _change(rng: random.Random, pieces: tuple[Piece, ...], steps: list[Step]) -> Step:
    before = [step for step in steps if not step.is_call and not step.text.startswith("undo")]
    if before and rng.random() < 0.15:
        last = before[-1] if rng.random() < 0.7 else rng.choice(before)
        return Step(f"undo({last.text!r})", last.number)
    changing = [piece for piece in pieces if piece.construct.changes]
    if changing and rng.random() < 0.8:
        piece = rng.choice(changing)
        return Step(drawn(rng, piece.text(rng.choice(piece.construct.changes))), piece.number)
    return Step(drawn(rng, rng.choice(GENERAL)))


def _call(rng: random.Random, pieces: tuple[Piece, ...]) -> Step:
    inputs = rng.choice(_RARE_INPUTS if rng.random() < 0.06 else _INPUTS)
    arguments = []
    for piece in pieces:
        if piece.construct.arguments and rng.random() < 0.8:
            text = rng.choice(piece.construct.arguments).replace("$", str(piece.number))
            text = piece.text(text) if "net." in text else text
            arguments.append((piece.number, drawn(rng, text)))
    call = rng.choice(_CALLS)
    # Which repeats the forward (docs/python-ops.md), so that a Function logs once more.
    if call == "call_for_second_gradients" and any(piece.construct.name == "function that logs" for piece in pieces):
        call = "call"
    return Step(call, 0, inputs, tuple(arguments))
