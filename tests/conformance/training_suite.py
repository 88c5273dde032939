"""Trains public programs in their shape with one line changed, beside eager: a row a program of training/.

Each runs in fresh processes: once in eager for its first step, once with an empty cache (cold), once with the cache that
this filled (warm). Losses and parameters are compared with eager's, step by step. It runs from graphs ("graph"), from
graphs with eager between them ("parts"), in eager ("eager"), or is "wrong"; "absent": a package is not installed. exports:
graphs made cold and warm. first: seconds of the first step in eager, cold and warm. step: how much longer a step takes than
eager's of the same turn, the median after the first 20, warm. The exit status is 1 when anything is wrong.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from training import PROGRAMS

_WARM_UP = 20  # steps after which a program may be no slower than eager
_AMPLIFIED = 4.0  # times what one rounding error in the parameters becomes
_TOLERANCE = 1e-3
_RUN = Path(__file__).with_name("training_run.py")
PLACES = ("graph", "parts", "eager", "wrong", "absent")


@dataclasses.dataclass
class Row:
    """Tells what became of one program.

    place: one of PLACES
    exports: graphs made cold and warm
    first: seconds of the first step in eager, cold and warm
    step: a step's time over eager's, warm
    reason: what is wrong, or why some of it ran in eager
    """

    name: str
    place: str
    exports: tuple[int, int] = (0, 0)
    first: tuple[float, float, float] = (0.0, 0.0, 0.0)
    step: float = 0.0
    reason: str = ""

    def text(self) -> str:
        """Returns a row of a table in Markdown."""
        exports, first = " / ".join(map(str, self.exports)), " / ".join(f"{seconds:.2f}" for seconds in self.first)
        return f"| {self.name} | {self.place} | {exports} | {first} | {self.step:.2f} | {self.reason.replace('|', '/')} |"


def try_program(name: str, steps: int) -> Row:
    """Runs one program in its three processes."""
    with tempfile.TemporaryDirectory() as cache:
        try:
            eager = _report(name, cache, 1, "eager")
            cold = _report(name, cache, steps, "rekindle,eager,nudged")
            warm = _report(name, cache, steps, "rekindle,eager")
        except Failed as failed:
            absent = "ModuleNotFoundError" in str(failed)
            return Row(name, "absent" if absent else "wrong", reason=str(failed))
    nudged = distances(cold["nudged"]["losses"], cold["eager"]["losses"])
    carried = [apart for apart, _ in cold["nudged_parameters"]]
    wrong = difference(cold, nudged, carried) or difference(warm, nudged, carried)
    place, reason = place_of(warm["modules"])
    exports = tuple(sum(module["exports"] for module in report["modules"]) for report in (cold, warm))
    first = tuple(report[variant]["seconds"][0] for report, variant in ((eager, "eager"), (cold, "rekindle"), (warm, "rekindle")))
    pairs = list(zip(warm["rekindle"]["seconds"], warm["eager"]["seconds"], strict=True))[_WARM_UP:]
    step = statistics.median(mine / theirs for mine, theirs in pairs) if pairs else 0.0
    return Row(name, "wrong" if wrong else place, exports, first, step, wrong or reason)


class Failed(Exception):
    """Says that a program ended with an error, by its last line."""


def _report(name: str, cache: str, steps: int, variants: str) -> dict[str, Any]:
    command = [sys.executable, str(_RUN), name, "--cache-dir", cache, "--steps", str(steps), "--variants", variants]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"})
    if done.returncode != 0:
        raise Failed(f"{variants}: {(done.stderr.strip().splitlines() or ['no output'])[-1]}")
    return json.loads(done.stdout.splitlines()[-1])


def distances(mine: list[float], theirs: list[float]) -> list[float]:
    """Returns how far each number is from its counterpart."""
    return [abs(a - b) for a, b in zip(mine, theirs, strict=True)]


def difference(report: dict[str, Any], nudged: list[float], carried: list[float]) -> str:
    """Returns where losses or parameters are farther from eager's than rounding carries them; empty where nowhere.

    nudged, carried: how far one rounding error carries the losses, and the parameters
    """
    explained = 0.0
    theirs = report["eager"]["losses"]
    for i, (apart, loss) in enumerate(zip(distances(report["rekindle"]["losses"], theirs), theirs, strict=True)):
        explained = max(explained, _AMPLIFIED * nudged[i])
        if not apart <= max(_TOLERANCE * max(1.0, abs(loss)), explained):
            return f"after {i} steps the loss is {apart:.2e} from eager's {loss:.4g}, and {nudged[i]:.2e} one rounding error away"
    floor = max((norm for _, norm in report["parameters"]), default=0.0) * 1e-2
    relative = explained / max(1.0, max(map(abs, theirs)))
    for i, (apart, norm) in enumerate(report["parameters"]):
        if not apart <= max(max(1e-2, relative) * max(norm, floor), _AMPLIFIED * carried[i]):
            what = f"after training, parameter {i} is {apart:.2e} from eager's, whose norm is {norm:.2e}"
            return f"{what}, and {carried[i]:.2e} one rounding error away"
    return ""


def place_of(modules: list[dict[str, Any]]) -> tuple[str, str]:
    """Returns where the calls of a program ran, and why some ran in eager."""
    reason = "; ".join(dict.fromkeys(f"{code}: {text}" for module in modules for code, text in module["bypass"]))
    if all(module["eager_calls"] == 0 and module["source"] not in ("eager", "none") for module in modules):
        return "graph", reason
    graphs = sum(part["source"] not in ("eager", "none") for module in modules for part in module["parts"] or [module])
    return ("parts", f"{graphs} parts; {reason}") if graphs else ("eager", reason)


def _rows(pattern: str, steps: int) -> Iterator[Row]:
    for module, names in PROGRAMS.items():
        for name in names:
            if any(part in f"{module}.{name}" for part in pattern.split(",")):
                row = try_program(f"{module}.{name}", steps)
                print(f"{row.place:6} {row.name}", file=sys.stderr)
                yield row


def show(rows: Iterator[Any], columns: Sequence[str], as_json: bool) -> int:
    """Prints rows as they come, then the counts of their places; returns 1 when any is wrong.

    rows: dataclasses with a place and a text()
    """
    if not as_json:
        print(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}", flush=True)
    found = []
    for row in rows:
        found.append(row)
        if not as_json:
            print(row.text(), flush=True)
    counts = collections.Counter(row.place for row in found)
    if as_json:
        print(json.dumps({"counts": counts, "rows": [dataclasses.asdict(row) for row in found]}, indent=1))
    else:
        print(", ".join(f"{place} {counts[place]}" for place in PLACES))
    return int(counts["wrong"] > 0)


def main(arguments: list[str] | None = None) -> int:
    """Prints a table, then the counts; 1 when anything is wrong."""
    parser = argparse.ArgumentParser(
        prog="conformance training", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--only", default="", metavar="TEXT", help="programs whose name contains TEXT, or one of several: vae,lora"
    )
    parser.add_argument("--steps", type=int, default=60, help="of each program (default 60)")
    parser.add_argument("--json", action="store_true", help="one JSON object: counts, and every row")
    given = parser.parse_args(arguments)
    return show(_rows(given.only, given.steps), ("program", "ran in", "exports", "first", "step", "notes"), given.json)


if __name__ == "__main__":
    sys.exit(main())
