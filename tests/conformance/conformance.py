"""Compares Rekindle with eager on suites that others wrote: outputs, gradients, buffers, random numbers.

Each call ends up right in a graph ("onnx": without PyTorch's own operators; "torch": with some), right in eager with a
reason, or wrong. The exit status is 1 when anything is wrong.
"""

from __future__ import annotations

import argparse
import collections
import json
import logging
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import comparison
import modules
import opinfo
import programs
import rekindle
import rows
import torch
from comparison import Outcome
from device_of_tests import fuse_on, load_test_device, replay_from_the_first_run

_SUITES = {
    "opinfo": opinfo.run,  # torch's operator database
    "rows": rows.run,  # the same on rows that a mask chooses
    "modules": modules.run,  # torch's module database
    "programs": programs.run,  # random ones
}
_PLACES = ("onnx", "torch", "eager", "wrong", "skipped")


def category(outcome: Outcome) -> str:
    """Where a call ran, or that it was wrong."""
    return outcome.place if outcome.right else "wrong"


def worst(outcomes: list[Outcome]) -> str:
    """The category of several calls of one thing: wrong before eager before graphs; skipped only if all are."""
    found = {category(outcome) for outcome in outcomes}
    return next(place for place in ("wrong", "eager", "torch", "onnx", "skipped") if place in found)


def summarize(outcomes: list[Outcome]) -> dict[str, list[str]]:
    """Names of what was tried, calls of one thing together, by category."""
    together: dict[str, list[Outcome]] = collections.defaultdict(list)
    for outcome in outcomes:
        together[outcome.name.split("#")[0]].append(outcome)
    table: dict[str, list[str]] = {place: [] for place in _PLACES}
    for name, calls in together.items():
        table[worst(calls)].append(name)
    return table


def report(outcomes: list[Outcome]) -> None:
    """What is not right in a graph, with reasons, then the counts."""
    calls: dict[tuple[str, str, str], list[str]] = collections.defaultdict(list)
    for outcome in outcomes:
        if category(outcome) in ("wrong", "eager"):
            name, _, number = outcome.name.partition("#")
            calls[category(outcome), name, outcome.reason].append(number)
    for (place, name, reason), numbers in calls.items():
        print(f"{place:6} {name}{'#' * any(numbers)}{','.join(numbers)}: {reason}")
    table = summarize(outcomes)
    replayed = sum(outcome.replayed for outcome in outcomes)
    print(", ".join(f"{place} {len(names)}" for place, names in table.items()) + f", calls replayed {replayed}" * bool(replayed))


def _part(text: str) -> slice:
    """Reads 2/3 as every third entry, from the second on."""
    number, _, count = text.partition("/")
    if not (number.isdecimal() and count.isdecimal() and 1 <= int(number) <= int(count)):
        raise argparse.ArgumentTypeError(f"{text} is no part such as 2/3")
    return slice(int(number) - 1, None, int(count))


def main() -> int:
    """Parse the command line and run one suite."""
    if sys.argv[1:2] == ["onnx-node"]:  # these four have options of their own
        import onnx_node

        return onnx_node.main(sys.argv[2:])
    if sys.argv[1:2] == ["models"]:
        import models

        return models.main(sys.argv[2:])
    if sys.argv[1:2] == ["training"]:
        import training_suite

        return training_suite.main(sys.argv[2:])
    if sys.argv[1:2] == ["ranks"]:
        import ranks_suite

        return ranks_suite.main(sys.argv[2:])
    parser = argparse.ArgumentParser(prog="conformance", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    suites = (
        "torch's operators, the same on rows that a mask chooses, torch's modules, or random programs "
        "(models, training, ranks and onnx-node have a --help of their own)"
    )
    parser.add_argument("suite", choices=_SUITES, help=suites)
    parser.add_argument("--only", default="", metavar="TEXT", help="names that contain TEXT; of programs, their seeds: 3,17")
    parser.add_argument(
        "--samples",
        type=int,
        default=2,
        help="calls of each operator or module, or programs (default 2; 0: all)",
    )
    parser.add_argument(
        "--dtype",
        default="float32",
        choices=("float32", "float64", "bfloat16"),
        help="of operators and modules",
    )
    parser.add_argument("--part", type=_part, default=slice(None), metavar="I/N", help="of N parts of the operators, the I-th")
    parser.add_argument("--device", default="cpu", help='as torch names it, or "test": that of tests/device')
    parser.add_argument(
        "--replay", action="store_true", help="five calls of each, by launches that the device repeats (cuda_graphs)"
    )
    parser.add_argument("--fuse", action="store_true", help="pointwise operators that follow from each other as one kernel")
    parser.add_argument("--json", action="store_true", help="one JSON object: counts, and every outcome")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    if arguments.device == "test":
        load_test_device()
    if arguments.replay:
        replay_from_the_first_run(arguments.device)
        comparison.calls = 5
    if arguments.fuse:
        fuse_on(arguments.device)
    with tempfile.TemporaryDirectory() as directory:
        graphs = {"cuda_graphs": arguments.replay, "fused_kernels": arguments.fuse}
        log = "warning" if arguments.fuse else "off"  # a kernel that is refused is a warning
        options = rekindle.Options(cache_dir=Path(directory), cache="off", log=log, **graphs)
        of_dtype = {} if arguments.suite == "programs" else {"dtype": getattr(torch, arguments.dtype)}
        of_dtype |= {"part": arguments.part} if arguments.suite in ("opinfo", "rows") else {}
        run = _SUITES[arguments.suite]
        outcomes = list(_shown(run(arguments.only, arguments.samples or sys.maxsize, options, arguments.device, **of_dtype)))
    if arguments.json:
        counts = {place: len(names) for place, names in summarize(outcomes).items()}
        print(json.dumps({"counts": counts, "outcomes": [vars(outcome) for outcome in outcomes]}, indent=1))
    else:
        report(outcomes)
    return int(any(not outcome.right for outcome in outcomes))


def _shown(outcomes: Iterator[Outcome]) -> Iterator[Outcome]:
    for outcome in outcomes:
        print(f"{category(outcome):7} {outcome.name}", file=sys.stderr)
        yield outcome


if __name__ == "__main__":
    sys.exit(main())
