"""Random programs that read values by random paths, and change one thing at a time between calls: `scripts/soundness random`.

Each program runs wrapped and unwrapped side by side; after every call and every change all that can be seen of the two must be
equal. See random_program.py for what a program is, random_programs/ for what it is made of, random_state.py for what is seen.
"""

from __future__ import annotations

import argparse
import collections
import json
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

from random_found import FOUND
from random_program import Program, draw
from random_programs import CONSTRUCTS
from random_shrink import shrink
from random_worker import Worker

_SECOND_CALLS = 4  # of a second process
_TOLD = 100  # programs after which the time is told


def job_of(program: Program) -> dict[str, Any]:
    """What a worker is to do for a program."""
    job = {"source": program.source(), "steps": [str(step) for step in program.steps], "through": program.through}
    if program.second is not None:
        calls = [step for step in program.steps if step.is_call][:_SECOND_CALLS]
        job["second"] = [str(program.second), *map(str, calls)]
    return job


class Programs:
    """Runs programs on several workers at once."""

    def __init__(self, jobs: int) -> None:
        self._workers: SimpleQueue[Worker] = SimpleQueue()
        self._own = Worker()  # for questions about what failed, which do not wait for the programs in the queue
        for _ in range(jobs):
            self._workers.put(Worker())
        self._pool = ThreadPoolExecutor(jobs)

    def run(self, job: dict[str, Any]) -> dict[str, Any]:
        """The outcome of one job."""
        worker = self._workers.get()
        try:
            return worker.run(job)
        finally:
            self._workers.put(worker)

    def outcomes(self, programs: dict[str, Program]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Those of all programs, in their order."""
        futures = {name: self._pool.submit(self.run, job_of(program)) for name, program in programs.items()}
        for name, future in futures.items():
            yield name, future.result()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        self._own.close()
        while not self._workers.empty():
            self._workers.get().close()

    def is_steady(self, program: Program) -> bool:
        """Whether two unwrapped twins are equal, so that a difference is Rekindle's."""
        return not self._own.run({**job_of(program), "plain": True})["wrong"]

    def shrunk(self, program: Program, wrong: dict[str, Any]) -> tuple[Program, dict[str, Any]]:
        """The smallest program that still fails, and how it does."""
        last = wrong["step"] if wrong["step"] >= 0 and not wrong["text"].startswith("second") else None
        small = shrink(program, lambda each: bool(self._own.run(job_of(each))["wrong"]), last)
        return small, self._own.run(job_of(small))["wrong"]


def text_of(program: Program, wrong: dict[str, Any]) -> str:
    """A failing program for a reader."""
    job = job_of(program)
    lines = [
        job["source"].partition("from torch import nn\n")[2],
        "# steps" + (" through the wrapper" if program.through else ""),
    ]
    lines += job["steps"]
    if "second" in job:
        lines += ["# steps of a second process", *job["second"]]
    lines += [f"# wrong at step {wrong['step']}: {wrong['text']}", *wrong["differences"][:12], wrong.get("traceback") or ""]
    return "\n".join(lines)


def programs_of(arguments: argparse.Namespace) -> dict[str, Program]:
    """Those that a command line asks for, by seed or name."""
    seeds = range(arguments.seed, arguments.seed + arguments.programs)
    if arguments.only in FOUND:
        return {arguments.only: FOUND[arguments.only]}
    if arguments.only and arguments.only.isdigit():
        seeds = range(int(arguments.only), int(arguments.only) + 1)
    only = arguments.only if arguments.only in CONSTRUCTS else None
    return {str(seed): draw(seed, arguments.calls, only, arguments.processes) for seed in seeds}


def report(counts: collections.Counter[str], failed: list[str], reasons: collections.Counter[str], seconds: float) -> str:
    """What the run found, in a few lines."""
    tried = max(1, counts["calls"] - counts["raised"])
    lines = [f"{counts['programs']} programs, {counts['calls']} calls, {len(failed)} programs wrong, {seconds:.0f} s"]
    lines += [f"in graphs: {counts['graphs'] / tried:.1%} of the {tried} calls that do not raise"]
    lines += [f"    {count:6} {reason}" for reason, count in reasons.most_common(12)]
    return "\n".join([*lines, *([f"wrong: {' '.join(failed)}"] if failed else [])])


def main() -> int:
    parser = argparse.ArgumentParser(description="Random programs, wrapped and unwrapped, one change at a time.")
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    parser.add_argument("--calls", type=int, default=12)
    parser.add_argument("--processes", action="store_true", help="every program in a second process as well, not every second")
    parser.add_argument("--only", metavar="S", help="a seed, the name of a construct, or of a program that failed once")
    parser.add_argument("--shrink", action="store_true", help="make what fails small before it is printed")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", action="store_true", help="a line for each program")
    arguments = parser.parse_args()
    programs = programs_of(arguments)
    running = Programs(arguments.jobs)
    counts: collections.Counter[str] = collections.Counter()
    reasons: collections.Counter[str] = collections.Counter()
    failed, start = [], time.monotonic()
    try:
        for name, outcome in running.outcomes(programs):
            if counts["programs"] % _TOLD == _TOLD - 1:
                print(f"{counts['programs'] + 1} programs, {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
            counts.update(programs=1, calls=outcome["calls"], graphs=outcome["graphs"], raised=outcome["sources"].count("raised"))
            reasons.update({text.partition(":")[0] for text in outcome["bypass"]})
            if arguments.json:
                pieces = [piece.name for piece in programs[name].pieces]
                print(json.dumps({"program": name, "pieces": pieces, **outcome}), flush=True)
            if outcome["wrong"]:
                failed.append(name)
                program, wrong = programs[name], outcome["wrong"]
                if not running.is_steady(program):
                    print(f"=== program {name}: unwrapped twins differ", file=sys.stderr, flush=True)
                elif arguments.shrink:
                    program, wrong = running.shrunk(program, wrong)
                if not arguments.json:
                    print(f"=== program {name}\n{text_of(program, wrong)}", flush=True)
    finally:
        running.close()
    print(report(counts, failed, reasons, time.monotonic() - start), file=sys.stderr if arguments.json else sys.stdout)
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
