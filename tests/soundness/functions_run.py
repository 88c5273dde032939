"""Runs a random program of functions_program.py wrapped and in eager, step by step, and compares all that is seen."""

from __future__ import annotations

import logging
import pathlib
import warnings
from typing import Any

import rekindle
import torch
from functions_bodies import LAID_OUT_BY_DATA
from functions_program import Program, Step
from functions_steps import BACKWARDS, CHANGES, LAYOUTS, LOGGED_AGAIN, change
from functions_text import Parts
from rekindle.lookup import store
from stepwise_backwards import Call
from stepwise_compare import ERROR, Seen, differences
from stepwise_run import Outcome, copied, load, only_refused

# How finely results are compared: a graph adds up in another order; with bfloat16 somewhere.
_ROUNDING, _HALF = 2.0**-17, 2.0**-8


class _Notes(logging.Handler):
    """Keeps what Functions log, in order."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: list[Any] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.kept.append(record.args)


class Side:
    """Runs the steps on a module of its own, with what is defined beside it."""

    def __init__(self, program: Program, directory: pathlib.Path, name: str, options: rekindle.Options | None) -> None:
        self._mod = load(program.source(), directory, name)
        self._notes = _Notes()
        self._mod.LOG.addHandler(self._notes)
        torch.manual_seed(1)
        self._net = self._mod.Net()
        self._is_logged_once = not any(map(_runs_again, program.functions))
        self._has_strides = not any(parts["branch"] in LAID_OUT_BY_DATA for parts in program.functions)
        self.called = self._net if options is None else rekindle.Module(self._net, options)

    def run(self, step: Step) -> Seen:
        """Runs one step, and says all that is to be compared of it."""
        self._net.train(step.train)
        change(CHANGES[step.change], self._net, self._mod)
        self._net.zero_grad()
        self._notes.kept = []
        torch.manual_seed(step.seed)
        call = Call(self.called, self._net, [_input(step)], step.seed)
        try:
            BACKWARDS[step.backward](call)
        except Exception as error:
            call.seen[ERROR] = error
        call.seen["random state"] = torch.get_rng_state()
        named = [*self._net.named_parameters(), ("x", call.inputs[0])]
        if not self._has_strides:
            call.seen |= {name: value[:-1] for name, value in call.seen.items() if name.startswith("facts")}
        seen = call.seen | {f"gradient of {name}": copied(x.grad) for name, x in named if x.requires_grad}
        return seen | self._kept(step) | {"input afterwards": call.inputs[0].detach().clone()}

    def _kept(self, step: Step) -> Seen:
        """Returns what the step has left, besides results and gradients."""
        net, numbers = self._net, []
        texts = [_without_numbers(each, numbers) for each in self._notes.kept]
        seen: Seen = {}
        if self._is_logged_once and step.backward not in LOGGED_AGAIN:
            seen |= {"log": texts, "logged numbers": torch.tensor(numbers)}
        seen["lists"] = [net.numbers, net.names, [*net.notes]]
        seen["auxiliary"] = net.auxiliary if net.auxiliary is None else net.auxiliary.detach().clone()
        return seen | {"buffer": net.buffer.clone(), "table": self._mod.TABLE.clone()}


def _runs_again(parts: Parts) -> bool:
    """Tells whether a forward runs once more on one side only: in eager for a checkpoint, which a graph does not repeat, or where
    Rekindle is told to (docs/python-ops.md)."""
    return "checkpoint" in parts["place"] or parts["declaration"] == "recomputed"


def _without_numbers(value: Any, numbers: list[float]) -> Any:
    """Returns a value that is compared as it is, after its numbers with rounding are moved to a list."""
    if isinstance(value, float):
        numbers.append(value)
        return "number"
    return [_without_numbers(each, numbers) for each in value] if isinstance(value, tuple | list) else value


def _input(step: Step) -> torch.Tensor:
    x = torch.randn(step.rows, 4, generator=torch.Generator().manual_seed(step.seed)) * step.size
    return LAYOUTS[step.layout](x).requires_grad_(step.gradient)


def _begun_once(ours: Seen, eager: Seen) -> Seen:
    """Returns what is seen of a step in eager without what a graph had logged before it found that it cannot do the step.

    A Function that does in a later call what a graph cannot do, or raises, is called once more by eager, as are those before it.
    """
    if "log" not in eager or len(ours["log"]) <= len(eager["log"]):
        return ours
    left = iter(ours["log"])
    if not all(any(each == other for other in left) for each in eager["log"]):
        return ours
    return ours | {name: eager[name] for name in ("log", "logged numbers")}


def run(program: Program, directory: pathlib.Path) -> Outcome:
    """Runs a program, whose modules and cache are in the directory, up to the first step that differs."""
    directory.mkdir(parents=True, exist_ok=True)
    options = rekindle.Options(cache_dir=str(directory / "cache"), log="off")
    ours, theirs = Side(program, directory, "functions_subject", options), Side(program, directory, "functions_twin", None)
    rounds = any(parts["place"] == "autocast" or parts["result"] == "bfloat16" for parts in program.functions)
    outcome = Outcome()
    for number, step in enumerate(program.steps):
        before = rekindle.status(ours.called).eager_calls
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            mine, eager = ours.run(step), theirs.run(step)
        outcome.add(ours.called, before, eager)
        if outcome.sources[-1] in ("eager", "raised"):
            mine = _begun_once(mine, eager)
        rounding = _HALF if rounds or step.backward == "forward in autocast" else _ROUNDING
        if only_refused(step.backward, mine, eager):
            outcome.refused += ERROR in mine
        elif wrong := differences(mine, eager, eager, rounding):
            outcome.step, outcome.wrong = number, wrong
            break
    store.flush()
    outcome.close(ours.called)
    return outcome
