"""Draws programs of several steps by seed, runs them, makes those that fail smaller, and reports: a suite of them."""

from __future__ import annotations

import argparse
import collections
import dataclasses
import multiprocessing
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from itertools import chain
from typing import Any

import random_suite
import torch
from stepwise_run import Outcome

_TOLD = 100  # programs after which the time is told


@dataclass(frozen=True)
class Suite:
    """Holds what one suite is made of. A program is a dataclass with `steps`, which are dataclasses, too.

    draw: makes the program of a seed; run: runs one in a directory; smaller: yields a program with one part less or plainer;
    text_of: shows one that failed; told: says more of the outcomes by seed, a line each.
    """

    name: str
    description: str
    draw: Callable[[int], Any]
    run: Callable[[Any, pathlib.Path], Any]
    smaller: Callable[[Any], Iterator[Any]]
    text_of: Callable[[Any, Any], str]
    told: Callable[[dict[int, Any]], list[str]]

    def attempt(self, program: Any, directory: pathlib.Path | None = None) -> Any:
        """Runs a program in a directory, or in one that is gone afterwards."""
        if directory is not None:
            return self.run(program, directory)
        with tempfile.TemporaryDirectory(prefix=f"rekindle-{self.name}", ignore_cleanup_errors=True) as made:
            return self.run(program, pathlib.Path(made))

    def shrink(self, program: Any, fails: Callable[[Any], bool]) -> Any:
        """Makes a program as small and plain as it still fails."""
        while (less := next(filter(fails, chain(fewer_steps(program), self.smaller(program))), None)) is not None:
            program = less
        return program

    def report(self, outcomes: dict[int, Outcome], seconds: float) -> str:
        """Says what a run found, in a few lines."""
        sources = collections.Counter(source for outcome in outcomes.values() for source in outcome.sources)
        reasons = collections.Counter(text[:90] for outcome in outcomes.values() for text in outcome.bypass)
        graphs = sources.total() - sources["raised"] - sources["eager"]
        counts = collections.Counter(programs=len(outcomes), calls=sources.total(), raised=sources["raised"], graphs=graphs)
        failed = [str(seed) for seed, outcome in outcomes.items() if outcome.wrong]
        lines = [f"sources of graphs: {dict(sources)}", *self.told(outcomes)]
        return "\n".join([*lines, random_suite.report(counts, failed, reasons, seconds)])

    def main(self) -> int:
        """Runs the programs that the command line asks for; returns 1 where one failed."""
        parser = argparse.ArgumentParser(description=self.description)
        parser.add_argument("--programs", type=int, default=100)
        parser.add_argument("--seed", type=int, default=0, help="of the first program")
        parser.add_argument("--shrink", action="store_true", help="make what fails small before it is printed")
        parser.add_argument("--keep", type=pathlib.Path, metavar="DIR", help="keep the caches; a second run then starts warm")
        parser.add_argument("--jobs", type=int, default=1, help="processes that run programs at once")
        arguments = parser.parse_args()
        torch.set_num_threads(1)  # the models are too small for more
        outcomes: dict[int, Any] = {}
        start = time.monotonic()
        for seed, outcome, text in self._outcomes(arguments):
            outcomes[seed] = outcome
            if outcome.wrong:
                print(f"=== program {seed}\n{text}", flush=True)
            if len(outcomes) % _TOLD == 0:
                print(f"{len(outcomes)} programs, {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
        print(self.report(outcomes, time.monotonic() - start))
        return int(any(outcome.wrong for outcome in outcomes.values()))

    def _outcomes(self, arguments: argparse.Namespace) -> Iterator[tuple[int, Any, str]]:
        """Yields the outcomes of the programs that a command line asks for, by seed, with a text of those that fail."""
        seeds = range(arguments.seed, arguments.seed + arguments.programs)
        if arguments.jobs == 1:
            yield from (self._outcome(seed, arguments.keep, arguments.shrink) for seed in seeds)
            return
        spawned = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(arguments.jobs, spawned, torch.set_num_threads, (1,)) as pool:
            futures = [pool.submit(self._outcome, seed, arguments.keep, arguments.shrink) for seed in seeds]
            yield from (future.result() for future in futures)

    def _outcome(self, seed: int, keep: pathlib.Path | None, shrinks: bool) -> tuple[int, Any, str]:
        program = self.draw(seed)
        outcome = self.attempt(program, keep and keep / str(seed))
        if not outcome.wrong:
            return seed, outcome, ""
        if not shrinks:
            return seed, outcome, self.text_of(program, outcome)
        small = self.shrink(program, lambda each: bool(self.attempt(each).wrong))
        return seed, outcome, self.text_of(small, self.attempt(small))


def fewer_steps(program: Any) -> Iterator[Any]:
    """Yields the program with one step less, or with one thing of a step plainer; the seed of a step stays."""
    steps = program.steps
    for i, step in enumerate(steps):
        if len(steps) > 1:
            yield dataclasses.replace(program, steps=steps[:i] + steps[i + 1 :])
        for plain in dataclasses.fields(step):
            if plain.name != "seed" and getattr(step, plain.name) != plain.default:
                one = dataclasses.replace(step, **{plain.name: plain.default})
                yield dataclasses.replace(program, steps=(*steps[:i], one, *steps[i + 1 :]))


def steps_of(program: Any, outcome: Outcome) -> list[str]:
    """Lists the steps of a program, with a mark at the one that differed."""
    return [f"{'->' if i == outcome.step else '  '} {step}" for i, step in enumerate(program.steps)]
