"""Trains one program of training/ through Rekindle and in eager, step by step in turn, in this process; prints one JSON object.

    python training_run.py vision.vae --cache-dir DIR --steps 40 --variants rekindle,eager

The first variant makes each step first, so that eager has imported nothing for Rekindle. "nudged" is eager from parameters
that are one rounding error away, which shows how far rounding carries.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib
import json
import logging
import random
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy
import rekindle
import torch
from comparison import nudge, seed_all
from torch import nn


class Training:
    """Runs a program with random states of its own; keeps the modules that it wraps, its losses and its seconds by step."""

    def __init__(self, program: Callable[[Callable[[nn.Module], nn.Module]], Iterator[float]], wrap: Callable) -> None:
        self.wrapped: list[nn.Module] = []
        self.losses: list[float] = []
        self.seconds: list[float] = []
        self._states = self._seeded()
        self._wrap = wrap
        self._program = program
        self._steps: Iterator[float] | None = None

    def step(self) -> None:
        """Trains one step."""
        self._set(self._states)
        start = time.perf_counter()
        if self._steps is None:
            self._steps = self._program(self._keep)
        self.losses.append(next(self._steps))
        self.seconds.append(time.perf_counter() - start)
        self._states = self._states_now()

    def _keep(self, module: nn.Module) -> nn.Module:
        self.wrapped.append(self._wrap(module))
        return self.wrapped[-1]

    @staticmethod
    def _states_now() -> tuple[Any, ...]:
        return torch.get_rng_state(), random.getstate(), numpy.random.get_state()

    @staticmethod
    def _set(states: tuple[Any, ...]) -> None:
        torch.set_rng_state(states[0])
        random.setstate(states[1])
        numpy.random.set_state(states[2])

    @classmethod
    def _seeded(cls) -> tuple[Any, ...]:
        seed_all(0)
        return cls._states_now()


def status_of(module: nn.Module) -> dict[str, Any]:
    """Returns how a wrapped module ran, for a report."""
    status = rekindle.status(module)
    return {
        "source": status.source, "exports": status.exports, "hits": status.hits, "eager_calls": status.eager_calls,
        "bypass": status.bypass, "parts": [dataclasses.asdict(part) for part in status.parts],
    }  # fmt: skip


def main() -> None:
    """Runs the trainings in turn and prints what they did."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--cache-dir", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--variants", default="rekindle,eager")
    parser.add_argument("--log", default="off")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    module, _, name = given.program.partition(".")
    program = getattr(importlib.import_module(f"training.{module}"), name)
    options = rekindle.Options(cache_dir=given.cache_dir, log=given.log)
    wraps = {"rekindle": lambda made: rekindle.Module(made, options), "eager": lambda made: made, "nudged": nudge}
    trainings = {name: Training(program, wraps[name]) for name in given.variants.split(",")}
    for _ in range(given.steps):
        for training in trainings.values():
            training.step()
    report: dict[str, Any] = {
        name: {"losses": training.losses, "seconds": training.seconds} for name, training in trainings.items()
    }
    if "rekindle" in trainings and "eager" in trainings:
        report["modules"] = [status_of(module) for module in trainings["rekindle"].wrapped]
        report["parameters"] = _distances(trainings["rekindle"].wrapped, trainings["eager"].wrapped)
    if "nudged" in trainings:
        report["nudged_parameters"] = _distances(trainings["nudged"].wrapped, trainings["eager"].wrapped)
    print(json.dumps(report))


def _distances(mine: list[nn.Module], theirs: list[nn.Module]) -> list[list[float]]:
    """Returns per parameter how far it is from eager's, and the norm of that."""
    return [
        [float((p.detach() - q.detach()).norm()), float(q.detach().norm())]
        for a, b in zip(mine, theirs, strict=True)
        for p, q in zip(a.parameters(), b.parameters(), strict=True)
    ]


if __name__ == "__main__":
    main()
