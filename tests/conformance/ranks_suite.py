"""Trains programs that several ranks train together with one line changed, beside eager: a row a program of ranks/.

Each runs in fresh processes, a rank each, over gloo: in eager for its first step, with empty caches (cold), with the caches
that these filled (warm), and with a full cache in rank 0 and empty ones in the others (mixed), each rank's cache being its
own. Losses and parameters are compared with eager's, in every rank, step by step. It runs from graphs ("graph"), from
graphs with eager between them ("parts"), in eager ("eager"), or is "wrong"; "absent": a package is not installed. exports:
graphs made by all ranks cold, warm and mixed. first: seconds of the slowest rank's first step in eager, cold and warm. step:
how much longer rank 0's step takes than eager's of the same turn, the median after the first 10, warm. in graphs: the part of
the time of its operators, without those of optimizer and communication, that nodes of graphs take. The exit status is 1 when
anything is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from ranks import PROGRAMS
from training_suite import PLACES, Failed, difference, distances, place_of, show

_WARM_UP = 10  # steps after which times count
_LIMIT = 300  # seconds for all ranks of a program
_RUN = Path(__file__).with_name("ranks_run.py")

Reports = list[dict[str, Any]]  # one a rank


@dataclasses.dataclass
class Row:
    """Tells what became of one program.

    place: one of PLACES
    exports: graphs made cold, warm and mixed, by all ranks
    first: seconds of the slowest rank's first step in eager, cold and warm
    step: a step's time over eager's, warm
    in_graphs: the part of the operators' time that is that of graphs' nodes, without optimizer and communication; of rank 0,
        warm; None if nothing was seen
    reason: what is wrong, or why some of it ran in eager
    """

    name: str
    ranks: int
    place: str
    exports: tuple[int, ...] = (0, 0, 0)
    first: tuple[float, ...] = (0.0, 0.0, 0.0)
    step: float = 0.0
    in_graphs: float | None = None
    reason: str = ""

    def text(self) -> str:
        """Returns a row of a table in Markdown."""
        exports, first = " / ".join(map(str, self.exports)), " / ".join(f"{seconds:.2f}" for seconds in self.first)
        in_graphs = "-" if self.in_graphs is None else f"{self.in_graphs:.0%}"
        figures = f"{exports} | {first} | {self.step:.2f} | {in_graphs}"
        return f"| {self.name} | {self.ranks} | {self.place} | {figures} | {self.reason.replace('|', '/')} |"


def try_program(name: str, ranks: int, steps: int) -> Row:
    """Runs one program four times."""
    with tempfile.TemporaryDirectory() as directory:
        caches = [Path(directory, f"cache{rank}") for rank in range(ranks)]
        try:
            eager = _reports(name, caches, 1, "eager")
            cold = _reports(name, caches, steps, "rekindle,eager,nudged")
            warm = _reports(name, caches, steps, "rekindle,eager")
            for cache in caches[1:]:
                shutil.rmtree(cache, ignore_errors=True)
            mixed = _reports(name, caches, steps, "rekindle,eager")
        except Failed as failed:
            absent = "ModuleNotFoundError" in str(failed)
            return Row(name, ranks, "absent" if absent else "wrong", reason=str(failed))
    wrong = next(filter(None, (_wrong(cold, reports) for reports in (cold, warm, mixed))), "")
    places = [place_of(report["modules"]) for report in warm]
    place, reason = max(places, key=lambda found: PLACES.index(found[0]))
    exports = tuple(sum(module["exports"] for one in reports for module in one["modules"]) for reports in (cold, warm, mixed))
    first = tuple(
        max(one[variant]["seconds"][0] for one in reports)
        for reports, variant in ((eager, "eager"), (cold, "rekindle"), (warm, "rekindle"))
    )
    pairs = list(zip(warm[0]["rekindle"]["seconds"], warm[0]["eager"]["seconds"], strict=True))[_WARM_UP:]
    step = statistics.median(mine / theirs for mine, theirs in pairs) if pairs else 0.0
    return Row(name, ranks, "wrong" if wrong else place, exports, first, step, warm[0]["in_graphs"], wrong or reason)


def _wrong(cold: Reports, reports: Reports) -> str:
    """Returns what differs from eager in a rank; what a rounding error becomes is known from the cold run."""
    for rank, (report, noisy) in enumerate(zip(reports, cold, strict=True)):
        nudged = distances(noisy["nudged"]["losses"], noisy["eager"]["losses"])
        if found := difference(report, nudged, [apart for apart, _ in noisy["nudged_parameters"]]):
            return f"rank {rank}: {found}"
    return ""


def _reports(name: str, caches: list[Path], steps: int, variants: str) -> Reports:
    """Runs all ranks of a program; returns what each prints. Raises Failed if one fails, or is not done in time."""
    with tempfile.TemporaryDirectory() as directory, contextlib.ExitStack() as ending:
        errors = [ending.enter_context(Path(directory, f"errors{rank}").open("w+")) for rank in range(len(caches))]
        processes = [
            subprocess.Popen(
                [
                    sys.executable, str(_RUN), name, "--meet", f"{directory}/meet", "--cache-dir", str(cache),
                    "--steps", str(steps), "--variants", variants,
                ],
                text=True, stdout=subprocess.PIPE, stderr=errors[rank], env=_environment(rank, len(caches)),
            )
            for rank, cache in enumerate(caches)
        ]  # fmt: skip
        for process in processes:
            ending.callback(process.kill)
        found: Reports = []
        for rank, process in enumerate(processes):
            try:
                output, _ = process.communicate(timeout=_LIMIT)
            except subprocess.TimeoutExpired:
                raise Failed(f"{variants}: rank {rank} is not done after {_LIMIT} s") from None
            if process.returncode != 0:
                errors[rank].seek(0)
                said = errors[rank].read().strip().splitlines() or ["no output"]
                raise Failed(f"{variants}: rank {rank}: {said[-1]}")
            found.append(json.loads(output.strip().splitlines()[-1]))
        return found


def _environment(rank: int, ranks: int) -> dict[str, str]:
    of_rank = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks)}
    return {**os.environ, **of_rank, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29511", "OMP_NUM_THREADS": "1"}


def _rows(pattern: str, ranks: int, steps: int) -> Iterator[Row]:
    for module, names in PROGRAMS.items():
        for name in names:
            if any(part in f"{module}.{name}" for part in pattern.split(",")):
                row = try_program(f"{module}.{name}", ranks, steps)
                print(f"{row.place:6} {row.name}", file=sys.stderr)
                yield row


def main(arguments: list[str] | None = None) -> int:
    """Prints a table, then the counts; 1 when anything is wrong."""
    parser = argparse.ArgumentParser(prog="conformance ranks", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="programs whose name contains TEXT, or one of several: plain,sharded"
    )
    parser.add_argument("--ranks", type=int, default=2, help="processes of each program (default 2)")
    parser.add_argument("--steps", type=int, default=30, help="of each program (default 30)")
    parser.add_argument("--json", action="store_true", help="one JSON object: counts, and every row")
    given = parser.parse_args(arguments)
    columns = ("program", "ranks", "ran in", "exports", "first", "step", "in graphs", "notes")
    return show(_rows(given.only, given.ranks, given.steps), columns, given.json)


if __name__ == "__main__":
    sys.exit(main())
