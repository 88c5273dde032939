"""Runs a random program of scores_program.py wrapped, in eager and in eager with float64, step by step, and compares."""

from __future__ import annotations

import copy
import math
import pathlib
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import rekindle
import torch
from rekindle.lookup import store
from scores_program import VALUES, Program, Step
from stepwise_backwards import BACKWARDS, Call
from stepwise_compare import ERROR, Seen, differences
from stepwise_run import Outcome, copied, load, only_refused
from torch import nn


@dataclass
class ScoresOutcome(Outcome):
    """Says how a program of scores went. joined: whether a plan makes their gradient together with those of their layer."""

    joined: bool = False


class Side:
    """A module that runs the steps, called by way of `called`."""

    def __init__(self, program: Program, module: nn.Module, called: Callable[..., Any], dtype: torch.dtype) -> None:
        self.module = module
        self._program = program
        self._called = called
        self._dtype = dtype

    def run(self, step: Step) -> Seen:
        """Runs one step, and says all that is to be compared of it."""
        torch.manual_seed(step.seed)
        self.module.train(step.train)
        if not step.accumulate:
            self.module.zero_grad()
        call = Call(self._called, self.module, self._inputs(step), step.seed)
        try:
            BACKWARDS[step.backward](call)
        except Exception as error:
            call.seen[ERROR] = error
        named = [*self.module.named_parameters(), *zip("xtu", call.inputs)]
        return call.seen | {f"gradient of {name}": copied(x.grad) for name, x in named if x.requires_grad}

    def _inputs(self, step: Step) -> list[torch.Tensor]:
        generator = torch.Generator().manual_seed(step.seed)
        sizes = (math.prod(step.sizes),) if self._program.flat else step.sizes
        x = torch.randn(*sizes, self._program.columns, generator=generator)
        labels = torch.randint(self._program.classes, sizes, generator=generator)
        numbers = torch.randn(*sizes, 3, generator=generator)
        share = {"none": 0.0, "some": 0.3, "all": 1.0}[step.ignored]
        labels[torch.rand(sizes, generator=generator) < share] = self._program.ignored
        x[sizes[0] // 2 :][:1] *= VALUES[step.values]
        found = [x.to(self._dtype), labels, numbers.to(self._dtype)]
        return [value.requires_grad_(name in step.gradients) for name, value in zip("xtu", found)]

    def move(self, step: Step, eager: nn.Module) -> None:
        """Takes over eager's parameters, where the step moves them, and its gradients, so that no rounding adds up."""
        for mine, theirs in zip(self.module.parameters(), eager.parameters(), strict=True):
            if step.update:
                with torch.no_grad():
                    mine.copy_(theirs)
            mine.grad = None if theirs.grad is None else theirs.grad.to(mine.dtype, copy=True)


def _rounding(program: Program) -> float:
    """Returns how finely the program rounds: the distance of 1 to the next number."""
    if program.parts["change"] == "bfloat16":
        return 2.0**-8
    if program.dtype == "float32":
        return 2.0**-23
    return 2.0**-19 if "float()" in program.source() else 2.0**-45  # the float64 twin does not tell eager's own error


def _descend(module: nn.Module) -> None:
    """Moves parameters against their gradients, unless one is infinite."""
    known = [p for p in module.parameters() if p.grad is not None]
    if all(p.grad.isfinite().all() for p in known):
        with torch.no_grad():
            for p in known:
                p.sub_(0.05 * p.grad.clamp(-5, 5))


def run(program: Program, directory: pathlib.Path) -> ScoresOutcome:
    """Runs a program, whose module and cache are in the directory, up to the first step that differs."""
    directory.mkdir(parents=True, exist_ok=True)
    dtype = getattr(torch, program.dtype)
    torch.manual_seed(1)
    net = load(program.source(), directory, "scores_subject").Net().to(dtype)
    options = {} if program.level is None else {"memory_level": program.level}
    inner, double = copy.deepcopy(net), copy.deepcopy(net).double()
    wrapped = rekindle.Module(inner, rekindle.Options(cache_dir=str(directory / "cache"), log="off", **options))
    sides = [Side(program, inner, wrapped, dtype), Side(program, net, net, dtype), Side(program, double, double, torch.float64)]
    outcome = ScoresOutcome()
    for number, step in enumerate(program.steps):
        before = rekindle.status(wrapped).eager_calls
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ours, eager, exact = (side.run(step) for side in sides)
        outcome.add(wrapped, before, eager)
        if only_refused(step.backward, ours, eager):
            outcome.refused += ERROR in ours
        elif wrong := differences(ours, eager, exact, _rounding(program)):
            outcome.step, outcome.wrong = number, wrong
            break
        if step.update:
            _descend(net)
        for side in (sides[0], sides[2]):
            side.move(step, net)
    store.flush()
    plans = [variant.session.describe_plan() for kind in wrapped._runtime._kinds for variant in kind.graphs]
    outcome.joined = any("LinearCrossEntropyGradient" in plan for plan in plans)
    outcome.close(wrapped)
    return outcome
