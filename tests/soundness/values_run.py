"""Runs a random program of values_program.py wrapped and in eager, call by call, and compares."""

from __future__ import annotations

import pathlib
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import rekindle
import torch
from programs import Program as Operations
from rekindle.lookup import store
from stepwise_compare import ERROR, Seen
from stepwise_run import Outcome, copied
from values_judge import differences
from values_numbers import numbers
from values_program import Program, Step


@dataclass
class ValuesOutcome(Outcome):
    """Says how a program went. exports: how many there were."""

    exports: int = 0


class Side:
    """A module that runs the steps, called by way of `called`."""

    def __init__(self, program: Program, module: Operations, called: Callable[..., Any]) -> None:
        self._program = program
        self._module = module
        self._called = called

    def run(self, step: Step, context: AbstractContextManager[Any] | None = None) -> Seen:
        """Runs one step in a context, and says all that is to be compared of it."""
        arguments = self._program.arguments(step)
        with torch.no_grad():
            self._module.weight.copy_(self._program.weight(step))
        self._module.zero_grad()
        torch.manual_seed(step.seed)
        seen: Seen = {}
        try:
            with context or nullcontext(), torch.set_grad_enabled(step.gradients):
                results = self._called(*arguments)
                seen["type"] = type(results).__name__
                for i, x in enumerate(results):
                    seen |= {f"result {i}": x.detach().clone(), f"facts {i}": (x.requires_grad, x.dtype)}
                self._backward(step, [x for x in results if x.requires_grad])
        except Exception as error:
            seen[ERROR] = error
        seen["random state"] = torch.get_rng_state()
        leaves = [*arguments, self._module.weight]
        seen |= {f"gradient {i}": copied(x.grad) for i, x in enumerate(leaves) if x.requires_grad}
        return seen | {f"input {i} afterwards": x.detach().clone() for i, x in enumerate(arguments)}

    def _backward(self, step: Step, roots: list[torch.Tensor]) -> None:
        if roots:
            generator = torch.Generator().manual_seed(step.seed + 2)
            ordinary = [torch.randn(root.shape, generator=generator).to(root.dtype) for root in roots]
            torch.autograd.backward(roots, [numbers(step.cotangent, x, generator) for x in ordinary])


def run(program: Program, directory: pathlib.Path) -> ValuesOutcome:
    """Runs a program, whose cache is in the directory, up to the first call that differs."""
    directory.mkdir(parents=True, exist_ok=True)
    inner, net = program.module(), program.module()
    chosen = {"numerics": program.numerics} | ({} if program.level is None else {"memory_level": program.level})
    wrapped = rekindle.Module(inner, rekindle.Options(cache_dir=str(directory / "cache"), log="off", start="wait", **chosen))
    ours, eager = Side(program, inner, wrapped), Side(program, net, net)
    outcome = ValuesOutcome()
    for number, step in enumerate((Step(), *program.steps), -1):
        before = rekindle.status(wrapped).eager_calls
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mine, theirs = ours.run(step), eager.run(step)
            wrong = differences(mine, theirs, lambda context: eager.run(step, context))  # noqa: B023  (called at once)
        outcome.add(wrapped, before, theirs)
        if wrong:
            outcome.step, outcome.wrong = number, wrong
            break
    store.flush()
    outcome.exports = rekindle.status(wrapped).exports
    outcome.close(wrapped)
    return outcome
