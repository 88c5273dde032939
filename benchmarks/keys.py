"""Measures what a lookup costs before there is a session, and what recording costs an export: `scripts/bench keys`.

Each number comes from fresh processes: a start pays for what it does first. Two clocks: the wall, and the time that the
process itself computed, which other work on the machine does not lengthen. Nothing is written but standard output.
"""

import argparse
import functools
import statistics
import sys
import tempfile
from typing import Any

from figures import spread
from report import print_result
from trial_process import measured_by

_TARGETS = {"BERT-base, hit": 50, "70B-shaped, key": 250}  # milliseconds
_RECORDING_TARGET = 3.0  # per cent
_CLOCKS = ("wall", "cpu")


def progress(text: str) -> None:
    """Tells what is being measured."""
    print(text, file=sys.stderr, flush=True)


def summarize(runs: list[dict[str, Any]]) -> dict[str, Any]:
    """Returns the spreads of each part and of the sum of all, by clock; and what was measured."""
    summary: dict[str, Any] = {name: value for name, value in runs[0].items() if name not in _CLOCKS}
    for clock in _CLOCKS:
        parts = {name: spread([run[clock][name] for run in runs]) for name in runs[0][clock]}
        summary[clock] = {**parts, "all": spread([sum(run[clock].values()) for run in runs])}
    return summary


def overhead(pairs: list[dict[str, list[float]]]) -> dict[str, Any]:
    """Returns by how many per cent an export with the recorder took longer than its twin without, by clock."""
    return {clock: spread([100 * (pair[clock][0] / pair[clock][1] - 1) for pair in pairs]) for clock in _CLOCKS} | {
        "export_seconds": statistics.median(pair["wall"][1] for pair in pairs)
    }


def measure(rounds: int) -> dict[str, Any]:
    """Measures everything: `rounds` hits, as many keys of the large model, and as many pairs of exports."""
    trial = functools.partial(measured_by, "keys_trial.py")
    with tempfile.TemporaryDirectory(prefix="rekindle-bench-") as directory:
        progress("BERT-base: export")
        trial("fill", directory)
        hits, keys = [], []
        for number in range(rounds):
            progress(f"round {number + 1}: hit of BERT-base, key of the 70B-shaped model")
            hits.append(trial("hit", directory))
            keys.append(trial("deep"))
    progress(f"BERT-base: {rounds} pairs of exports, with and without the recorder")
    pairs = trial("recording", str(rounds))["pairs"]
    subjects = dict(zip(_TARGETS, (summarize(hits), summarize(keys)), strict=True))
    return {"lookups": subjects, "recording": overhead(pairs)}


def _cell(numbers: dict[str, float], factor: float = 1000) -> str:
    median, low, high = (factor * numbers[key] for key in ("median", "low", "high"))
    return f"{median:.1f} [{low:.1f}, {high:.1f}]"


def print_tables(result: dict[str, Any]) -> None:
    """Prints one table per subject, and the overhead of recording."""
    for label, summary in result["lookups"].items():
        facts = ", ".join(f"{value} {name.replace('_', ' ')}" for name, value in summary.items() if name not in _CLOCKS)
        print(f"{label} ({facts})")
        rows = [("ms, median [lowest, highest]", "wall", "computed")]
        rows += [(name, *(_cell(summary[clock][name]) for clock in _CLOCKS)) for name in summary["wall"]]
        rows.append(("target", f"{_TARGETS[label]}", ""))
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        for name, wall, cpu in rows:
            print(f"  {name:<{widths[0]}}  {wall:>{widths[1]}}  {cpu:>{widths[2]}}".rstrip())
        print()
    recording = result["recording"]
    print(
        f"recording, % of an export of {recording['export_seconds']:.1f} s: wall {_cell(recording['wall'], 1)}, "
        f"computed {_cell(recording['cpu'], 1)}; target {_RECORDING_TARGET:.0f}\n"
    )


def main(arguments: list[str]) -> None:
    """Measures, and prints the report."""
    parser = argparse.ArgumentParser(prog="bench keys", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5, help="fresh starts, and pairs of exports (default: 5)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    options = parser.parse_args(arguments)
    if options.rounds < 1:
        parser.error(f"--rounds is {options.rounds}: it must be at least 1")
    result = measure(options.rounds)
    print_result(result, 1, options.json, lambda: print_tables(result))
