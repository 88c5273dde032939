"""Tortures the export cache, and jobs of several ranks, with real processes: killed, fed damaged files, starved.

usage: scripts/torture [kill|corrupt|faults|ranks ...] [--rounds N] [--seed S] [--build DIR]

Everything is derived from the seed but the moments of the kills. Exits with 1, and names the seed, the round and the
kept directory, when a committed entry was lost, a wrong byte came back, something crashed, hung or did not recover.
"""

from __future__ import annotations

import argparse
import collections
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

import corruption
import faults
import ranks
from worker import Broken, Worker

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROCESSES = 4
ROUNDS_PER_DIRECTORY = 20  # then a fresh one, so that rounds do not grow slower
ENTRIES = 8


def kill_rounds(worker: Worker, rounds: int, seed: int) -> str:
    """Four processes read and write one directory and are killed at random moments, again and again."""
    choose = random.Random(seed)
    committed: list[str] = []
    total = repaired = 0
    directory = pathlib.Path(tempfile.mkdtemp(prefix="rekindle-torture-"))
    for number in range(rounds):
        if number % ROUNDS_PER_DIRECTORY == 0:
            shutil.rmtree(directory)
            committed = []
        with Worker.kept_on_failure(directory, f"kill round {number}, seed {seed}"):
            running = [worker.churn(directory, f"{seed}-{number}-{i}") for i in range(PROCESSES)]
            time.sleep(choose.uniform(0.02, 0.6))
            for process in running:
                process.kill()
            for process in running:
                names = worker.committed_by(process)
                committed += names
                total += len(names)
            report = worker.use(directory, committed)
            if report["lost"]:
                raise Broken(f"committed entries are lost: {report['lost'][:5]}")
            if not report["stored"] or not report["clean"]:
                raise Broken(f"the cache does not recover: {report}")
            repaired += report["problems"] > 0
    shutil.rmtree(directory, ignore_errors=True)
    killed = f"{rounds} rounds of {PROCESSES} killed processes, {total} committed entries"
    return f"{killed}: none lost, no wrong byte; {repaired} rounds needed a repair"


def corrupt_rounds(worker: Worker, rounds: int, seed: int) -> str:
    """One random corruption of one random file a round; then everything is used."""
    base = pathlib.Path(tempfile.mkdtemp(prefix="rekindle-torture-"))
    template = base / "template"
    names = worker.fill(template, ENTRIES, f"{seed}")
    table: dict[str, collections.Counter[str]] = collections.defaultdict(collections.Counter)
    for number in range(rounds):
        choose = random.Random(f"{seed}-{number}")
        directory = base / "cache"
        shutil.copytree(template, directory, symlinks=True)
        what = corruption.corrupt(directory, choose)
        with Worker.kept_on_failure(directory, f"corrupt round {number}, seed {seed}: {what}"):
            if what.place == "format" and worker.refuses(directory):
                restore_format(directory, template)  # what the message asks for; nothing was touched
            report = worker.use(directory, names)
            check_corruption(report, what)
        kind = table[what.place]
        kind["rounds"] += 1
        kind["lost"] += len(report["lost"])
        kind["noticed"] += report["corrupt"] > 0 or report["problems"] > 0
        shutil.rmtree(directory)
    shutil.rmtree(base)
    rows = [
        f"  {place:<10} {kind['rounds']:>5} rounds, noticed in {kind['noticed']}, entries lost {kind['lost']}"
        for place, kind in sorted(table.items())
    ]
    return "\n".join(
        [
            f"{rounds} corruptions, {len(names)} entries each: no crash, no hang, no wrong byte, every cache works again",
            *rows,
        ]
    )


def restore_format(directory: pathlib.Path, template: pathlib.Path) -> None:
    """Does for the file `format` what a person would."""
    path = directory / "format"
    path.rmdir() if path.is_dir() else path.unlink(missing_ok=True)
    shutil.copy(template / "format", path)


def check_corruption(report: dict, what: corruption.Corruption) -> None:
    """Damage to one file loses at most the entries whose own bytes it hit, is counted, and is over afterwards."""
    if len(report["lost"]) > what.most_lost:
        raise Broken(f"{len(report['lost'])} entries are lost, {what.most_lost} at most were damaged")
    if report["lost"] and report["corrupt"] == 0 and not what.removes:
        raise Broken("entries are lost and nothing was counted")
    if not report["stored"] or not report["clean"]:
        raise Broken(f"the cache does not work again: {report}")


def fault_rounds(worker: Worker, rounds: int, seed: int) -> str:
    """Each fault once, whatever the number of rounds."""
    lines = []
    for name, scenario in faults.SCENARIOS.items():
        directory = pathlib.Path(tempfile.mkdtemp(prefix="rekindle-torture-"))
        with Worker.kept_on_failure(directory, f"fault {name}"):
            lines.append(f"  {name}: {scenario(worker, directory)}")
        shutil.rmtree(directory, ignore_errors=True)
    return "\n".join([f"{len(lines)} faults", *lines])


TORTURES: dict[str, tuple[Callable[[Worker, int, int], str], int]] = {
    "kill": (kill_rounds, 40),
    "corrupt": (corrupt_rounds, 100),
    "faults": (fault_rounds, 1),
    "ranks": (lambda worker, rounds, seed: ranks.rounds(rounds, seed), 2),
}


def run(options: argparse.Namespace) -> Iterator[str]:
    """One line or more for each torture that passed; raises Broken at the first that did not."""
    worker = Worker(ROOT / options.build)
    for name in options.torture or TORTURES:
        start = time.monotonic()
        torture, rounds = TORTURES[name]
        text = torture(worker, options.rounds or rounds, options.seed)
        yield f"torture: {name}: {text} ({time.monotonic() - start:.0f} s)"


def main() -> int:
    """Parses the command line and prints what passed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("torture", nargs="*", help="kill, corrupt, faults, ranks; default: all of them")
    parser.add_argument("--rounds", type=int, help="default: 40 of kill, 100 of corrupt, 2 of ranks")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--build", default="build", help="the build directory whose worker runs")
    options = parser.parse_args()
    if unknown := set(options.torture) - set(TORTURES):
        parser.error(f"no torture {', '.join(unknown)}; there are {', '.join(TORTURES)}")
    try:
        for line in run(options):
            print(line, flush=True)
    except (Broken, subprocess.TimeoutExpired) as error:
        print(f"torture: FAILED: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
