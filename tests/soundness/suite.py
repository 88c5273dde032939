"""Runs cases as pairs of processes, judges them, and prints a table. See case.py for what a case is."""

from __future__ import annotations

import argparse
import collections
import contextlib
import pathlib
import queue
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import cases_attributes
import cases_code
import cases_dispatch
import cases_harmless
import cases_held
import cases_held_of_libraries
import cases_imports
import cases_inputs
import cases_kinds
import cases_modules
import cases_operators
import cases_process
import cases_reads
import cases_settings
import cases_state
import cases_torch
import cases_values
import cases_world
from case import Case, write
from server import Worker, run_fresh

CASES: tuple[Case, ...] = (
    *cases_code.CASES,
    *cases_dispatch.CASES,
    *cases_values.CASES,
    *cases_attributes.CASES,
    *cases_reads.CASES,
    *cases_kinds.CASES,
    *cases_state.CASES,
    *cases_held.CASES,
    *cases_held_of_libraries.CASES,
    *cases_modules.CASES,
    *cases_inputs.CASES,
    *cases_torch.CASES,
    *cases_operators.CASES,
    *cases_settings.CASES,
    *cases_world.CASES,
    *cases_imports.CASES,
    *cases_process.CASES,
    *cases_harmless.CASES,
)
_WORKERS = 2
Run = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True)
class Verdict:
    """Of one case in one mode. did: what the second process did. wrong: what is wrong, or empty. said: how Rekindle explains
    what the second process did."""

    case: Case
    mode: str
    did: str
    wrong: str
    said: str = ""

    @property
    def is_explained(self) -> bool:
        """Whether the explanation names what was changed."""
        return self.case.explained in self.said


class Suite:
    """Cases that run in the background, several at a time; `verdicts` waits for those of one case, and runs one that does not."""

    def __init__(self, cases: Iterable[Case] = (), fresh: bool = False, workers: int = _WORKERS) -> None:
        self._fresh = fresh
        self._workers: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        if not fresh:
            for _ in range(workers):
                self._workers.put(Worker())
        self._pool = ThreadPoolExecutor(workers)
        self._futures: dict[str, Future[list[Verdict]]] = {case.id: self._pool.submit(self._run, case) for case in cases}

    def verdicts(self, case: Case) -> list[Verdict]:
        """One per mode."""
        running = self._futures.get(case.id)
        return self._run(case) if running is None else running.result()

    def close(self) -> None:
        self._pool.shutdown(cancel_futures=True)
        while not self._workers.empty():
            self._workers.get().close()

    def _run(self, case: Case) -> list[Verdict]:
        with tempfile.TemporaryDirectory() as name, self._runner(case) as run:
            first = run(_job(case, pathlib.Path(name), second=False))
            second = run(_job(case, pathlib.Path(name), second=True))
        error = first.get("error") or second.get("error")
        if error:
            return [Verdict(case, mode, "error", error) for mode in case.modes]
        return [_verdict(case, mode, first[mode], second[mode]) for mode in case.modes]

    @contextlib.contextmanager
    def _runner(self, case: Case) -> Iterator[Run]:
        if self._fresh or case.fresh:
            yield lambda job: run_fresh(job, case.flags if job["second"] else ())
            return
        worker = self._workers.get()
        try:
            yield worker.run
        finally:
            self._workers.put(worker)


def _job(case: Case, root: pathlib.Path, second: bool) -> dict[str, Any]:
    code = root / (case.second_directory if second else case.directory)
    code.mkdir(exist_ok=True)
    write(case.second_files() if second else case.first_files(), code)
    return {
        "second": second,
        "code": str(code),
        "cache": str(root / "cache"),
        "both": case.both,
        "start": case.start if second else "",
        "mutate": case.mutate if second else "",
        "call": case.call,
        "env": case.env if second else {},
        "modes": case.modes,
    }


def _verdict(case: Case, mode: str, first: dict[str, Any], second: dict[str, Any]) -> Verdict:
    said = "\n".join([second["explanation"], *second["why"]])
    return Verdict(case, mode, second["did"], _wrong(case, first, second), said)


def _wrong(case: Case, first: dict[str, Any], second: dict[str, Any]) -> str:
    """What is wrong with a pair, the worst first."""
    for name, result in (("second", second), ("first", first)):
        if result["differs"]:
            return f"the {name} process ({result['did']}) computes something else than eager: {result['differs']}"
    expected = "export" if case.populates else "bypass"
    if first["did"] != expected:
        return f"the first process was meant to end in {expected}: {first['did']} {first['why']}"
    if case.harmless:
        return "" if second["did"] == "hit" else f"the second process does not hit: {second['did']} {second['why']}"
    if second["did"] == "hit":
        return "the second process hits"
    if case.matters and first["eager"] == second["eager"]:
        return "eager computes the same in both processes, so the case shows nothing"
    return ""


def table(verdicts: list[Verdict]) -> str:
    """One line per hazard class. hit: of a change, a stale result; export, bypass: how the others were caught."""
    rows: dict[str, collections.Counter[str]] = {}
    for verdict in verdicts:
        row = rows.setdefault("harmless" if verdict.case.harmless else verdict.case.hazard, collections.Counter())
        row["tried"] += 1
        row[verdict.did] += 1
        row["failed"] += bool(verdict.wrong)
        row["explained"] += not verdict.case.harmless and verdict.is_explained
    total = sum(rows.values(), collections.Counter())
    heads = ("tried", "hit", "export", "bypass", "failed", "explained")
    lines = [f"{'hazard':<26}" + "".join(f"{head:>10}" for head in heads)]
    lines += [f"{name:<26}" + "".join(f"{row[head]:>10}" for head in heads) for name, row in [*rows.items(), ("all", total)]]
    return "\n".join([*lines, f"explanations that name the change: {explained_rate(verdicts):.1%}"])


def explained_rate(verdicts: Iterable[Verdict]) -> float:
    """The part of the caught changes whose explanation names them."""
    caught = [verdict for verdict in verdicts if not verdict.case.harmless and not verdict.wrong]
    return sum(verdict.is_explained for verdict in caught) / max(1, len(caught))


def main() -> int:
    parser = argparse.ArgumentParser(description="Populate a cache, change one thing, and see that nothing stale is served.")
    parser.add_argument("--fresh", action="store_true", help="an interpreter of its own for every process instead of a fork")
    parser.add_argument("-k", metavar="TEXT", nargs="*", default=[""], help="only cases whose name contains one of these")
    parser.add_argument("--unexplained", action="store_true", help="print explanations that do not name the change")
    arguments = parser.parse_args()
    cases = [case for case in CASES if any(text in case.id for text in arguments.k)]
    suite = Suite(cases, arguments.fresh)
    try:
        verdicts = []
        for case in cases:
            for verdict in suite.verdicts(case):
                verdicts.append(verdict)
                if verdict.wrong:
                    print(f"FAILED {case.id} [{verdict.mode}]: {verdict.wrong.strip().splitlines()[-1]}", flush=True)
                elif arguments.unexplained and not case.harmless and not verdict.is_explained:
                    print(f"UNEXPLAINED {case.id} [{verdict.mode}], without {case.explained!r}: {verdict.said}", flush=True)
    finally:
        suite.close()
    print(table(verdicts))
    return int(any(verdict.wrong for verdict in verdicts))


if __name__ == "__main__":
    sys.exit(main())
