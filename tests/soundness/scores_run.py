"""Runs a random program of scores_program.py wrapped, in eager and in eager with float64, step by step, and compares."""

from __future__ import annotations

import copy
import importlib.util
import math
import pathlib
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import rekindle
import torch
from rekindle.lookup import store
from scores_compare import ERROR, Seen, differences
from scores_program import VALUES, Program, Step
from scores_steps import BACKWARDS, Call
from torch import nn


@dataclass
class Outcome:
    """sources: of each call, as of rekindle.Status, or "eager", or "raised" where eager's forward raises; joined: whether a
    plan makes the gradient of scores together with those of their layer; refused: writes before a backward that only Rekindle
    refuses; step, wrong: what differed first, if anything."""

    sources: list[str] = field(default_factory=list)
    bypass: list[str] = field(default_factory=list)
    joined: bool = False
    refused: int = 0
    step: int = -1
    wrong: list[str] = field(default_factory=list)


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
        return call.seen | {f"gradient of {name}": _copied(x.grad) for name, x in named if x.requires_grad}

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


def _copied(gradient: torch.Tensor | None) -> torch.Tensor | None:
    return None if gradient is None else gradient.detach().clone()


def _load(program: Program, directory: pathlib.Path) -> Any:
    path = directory / "scores_subject.py"
    path.write_text(program.source())
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    sys.modules[path.stem] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


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


def _only_refused(step: Step, ours: Seen, eager: Seen) -> bool:
    """Tells whether one side alone refuses a write to the scores before the backward, as it has saved them."""
    errors = [seen.get(ERROR) for seen in (ours, eager)]
    return step.backward.startswith("write") and all(error is None or "inplace operation" in str(error) for error in errors)


def run(program: Program, directory: pathlib.Path) -> Outcome:
    """Runs a program, whose module and cache are in the directory, up to the first step that differs."""
    directory.mkdir(parents=True, exist_ok=True)
    dtype = getattr(torch, program.dtype)
    torch.manual_seed(1)
    net = _load(program, directory).Net().to(dtype)
    options = {} if program.level is None else {"memory_level": program.level}
    inner, double = copy.deepcopy(net), copy.deepcopy(net).double()
    wrapped = rekindle.Module(inner, rekindle.Options(cache_dir=str(directory / "cache"), log="off", **options))
    sides = [Side(program, inner, wrapped, dtype), Side(program, net, net, dtype), Side(program, double, double, torch.float64)]
    outcome = Outcome()
    for number, step in enumerate(program.steps):
        before = rekindle.status(wrapped).eager_calls
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            ours, eager, exact = (side.run(step) for side in sides)
        status = rekindle.status(wrapped)
        ran = "eager" if status.eager_calls > before else status.source
        outcome.sources.append(ran if "type" in eager else "raised")
        if type(ours.get(ERROR)) is not type(eager.get(ERROR)) and _only_refused(step, ours, eager):
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
    outcome.bypass = [f"{code}: {message}" for code, message in rekindle.status(wrapped).bypass]
    return outcome
