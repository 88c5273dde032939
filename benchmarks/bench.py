"""Measures Rekindle beside eager, tuned allocators, torch.compile, ORTModule and the matrix products of a step, in one run.

A round starts every subject in a fresh process, one after the other, and lets it train: the time to its first step and where
it goes, the first steps summed, the peak memory. Blocks of further steps are taken in turn with an eager process that stays for
the round, for the time of a step. The subject that goes first changes from round to round. Ratios are taken within a round, or
within a turn, and only then summarized: whatever slows the machine down slows both sides. What cannot be measured here is named.

`bench keys` measures what finding a graph in the cache costs, `bench pythonop` what calling an autograd Function from a
graph costs, `bench observed` what statistics of all tensors of a step cost, `bench step` what a step costs besides its kernels,
`bench memory` what training takes where activations are most of it; `bench kernels` lists the kernels of a step. See their
`--help`.
"""

import argparse
import dataclasses
import datetime
import json
import os
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import bench_tables
import keys
import memory
import observed
import pythonop
import step
import step_kernels
from report import as_text, machine_facts
from rounds import Plan, Rounds, drop_settings, overhead
from subjects import SUBJECTS, with_needed
from targets import verdicts
from trial_process import AUTOCAST, TrialError
from workloads import WORKLOADS

_MODELS = ("gpt2-4", "gpt2-12", "bert", "llama", "vit", "resnet50", "t5", "mlp")


def _names(known: Any) -> Callable[[str], list[str]]:
    """Returns how to read a list of names, with commas, that have to be among the known ones."""

    def read(text: str) -> list[str]:
        names = [name for name in text.split(",") if name]
        unknown = [name for name in names if name not in known]
        if unknown or not names:
            raise argparse.ArgumentTypeError(f"{unknown[0] if unknown else text!r} is unknown: choose from {', '.join(known)}")
        return list(dict.fromkeys(names))

    return read


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} is not a whole number of at least 1")
    return int(text)


def _counts(text: str) -> list[int]:
    return list(dict.fromkeys(map(_positive, text.split(","))))


def _cpus(text: str) -> set[int]:
    """Reads CPUs as `0,1` or `0-3`; each has to be one that this process may use."""
    found: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        if not first.isdecimal() or not (last or first).isdecimal():
            raise argparse.ArgumentTypeError(f"{text} is no list of CPUs such as 0,1 or 0-3")
        found |= set(range(int(first), int(last or first) + 1))
    allowed = os.sched_getaffinity(0)
    if not found or not found <= allowed:
        raise argparse.ArgumentTypeError(f"{text} has CPUs that this process may not use: it has {sorted(allowed)}")
    return found


def _python(text: str) -> str:
    if not os.access(text, os.X_OK):
        raise argparse.ArgumentTypeError(f"{text} is no program: name the interpreter that has onnxruntime-training")
    return str(Path(text).absolute())


def _file(text: str) -> Path:
    path = Path(text)
    if not path.absolute().parent.is_dir():
        raise argparse.ArgumentTypeError(f"{text} cannot be written: there is no directory {path.absolute().parent}")
    return path


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=_names(WORKLOADS), default=[*_MODELS], help=f"default: {','.join(_MODELS)}")
    parser.add_argument(
        "--subjects",
        type=_names(SUBJECTS),
        default=[*SUBJECTS],
        help=f"default: all of {', '.join(SUBJECTS)}; eager and those that fill another one's cache always run",
    )
    parser.add_argument("--threads", type=_counts, help="such as 1,2 (default: that of the CPUs)")
    parser.add_argument("--pin", type=_cpus, metavar="CPUS", help="keeps all processes on these CPUs, such as 0,1 or 0-3")
    parser.add_argument("--rounds", type=_positive, default=3, help="fresh starts of every subject (default: 3)")
    parser.add_argument("--steps", type=_positive, default=100, help="steps of each start that are summed (default: 100)")
    parser.add_argument("--turns", type=_positive, default=4, help="blocks of steps beside eager, per start (default: 4)")
    parser.add_argument("--turn-steps", type=_positive, default=5, help="steps of a block (default: 5)")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--device", default="cpu", help="as torch names it; on cuda, peaks are those of its memory")
    parser.add_argument("--autocast", choices=AUTOCAST, help="train with forwards in autocast to this dtype")
    parser.add_argument("--ortmodule", type=_python, metavar="PYTHON", help="an interpreter that has onnxruntime-training")
    parser.add_argument("--json", type=_file, metavar="FILE", help="writes all figures, also while the run goes on")
    parser.add_argument("--picture", type=_file, metavar="FILE.png", help="draws starts and steps")
    parser.add_argument("--write", type=_file, metavar="FILE.md", help="writes a page with verdicts, such as docs/benchmarks.md")
    parser.add_argument("--read", type=Path, metavar="FILE", help="measures nothing: reports what --json wrote before")
    parsed = parser.parse_args(arguments)
    parsed.threads = parsed.threads or [len(parsed.pin or os.sched_getaffinity(0))]
    if not 0 <= parsed.dropout < 1:
        parser.error(f"--dropout is {parsed.dropout}: it must be at least 0 and less than 1")
    if parsed.device != "cpu" and (why := _why_no_device(parsed.device)):
        parser.error(f"--device is {parsed.device}: {why}")
    if parsed.read is not None and not parsed.read.is_file():
        parser.error(f"--read is {parsed.read}: there is no such file; --json FILE writes one")
    return parsed


def _why_no_device(name: str) -> str:
    """Returns why a tensor cannot be made on a device; nothing if it can."""
    import torch  # its processes import it; this one needs it for a device only

    try:
        torch.zeros(1, device=name)
    except (RuntimeError, AssertionError) as error:
        return str(error).splitlines()[0]
    return ""


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def measure(options: argparse.Namespace) -> dict[str, Any]:
    """Measures what the command line asks for; returns the machine, the settings and all records."""
    subjects = with_needed(options.subjects)
    names = ("models", "threads", "rounds", "steps", "turns", "turn_steps", "dropout", "ortmodule", "device", "autocast")
    plan = Plan(subjects=subjects, **{name: getattr(options, name) for name in names})
    drop_settings()
    if options.pin:
        os.sched_setaffinity(0, options.pin)  # processes that are started inherit it
    result: dict[str, Any] = {
        "date": datetime.date.today().isoformat(),
        "command": shlex.join(["./scripts/bench", *sys.argv[1:]]),
        "machine": machine_facts(", ".join(map(str, options.threads)), options.device),
        "settings": dataclasses.asdict(plan) | {"pin": sorted(options.pin or ())},
        "absent": plan.absent(),
        "records": [],
        "overhead": None,
    }
    for line in bench_tables.absences(result):
        _tell(line)

    def keep(records: list[dict[str, Any]]) -> None:
        result["records"] = records
        write_json(options.json, result)

    Rounds(plan, _tell, keep).measure()
    absent = {(entry["model"], entry["subject"]) for entry in result["absent"]}
    if "mlp" in plan.models and "rekindle-warm" in subjects and ("mlp", "rekindle-warm") not in absent:
        _tell("overhead of a step: bench step")
        result["overhead"] = overhead()
    result["verdicts"] = [dataclasses.asdict(verdict) for verdict in verdicts(result)]
    write_json(options.json, result)
    return result


def write_json(path: Path | None, result: dict[str, Any]) -> None:
    """Writes the figures as they are so far, if they are asked for."""
    if path is not None:
        path.write_text(json.dumps(result, indent=2) + "\n")


def report(options: argparse.Namespace, result: dict[str, Any]) -> None:
    """Prints the tables, and writes the page and the picture that are asked for."""
    print(bench_tables.as_text(result))
    print("\nMachine: " + as_text(result["machine"]))
    if options.write is not None:
        import bench_page  # here and below: what writes pages and pictures is needed for these only

        options.write.write_text(bench_page.page(result))
    if options.picture is not None:
        import bench_chart

        bench_chart.draw(result, options.picture)


def main() -> None:
    """Runs the benchmark that the first argument names, or that of training."""
    others = {"kernels": step_kernels, "keys": keys, "memory": memory, "observed": observed, "pythonop": pythonop, "step": step}
    try:
        if len(sys.argv) > 1 and sys.argv[1] in others:
            others[sys.argv[1]].main(sys.argv[2:])
            return
        options = parse_arguments(sys.argv[1:])
        report(options, measure(options) if options.read is None else json.loads(options.read.read_text()))
    except TrialError as error:
        sys.exit(f"bench: {error}")


if __name__ == "__main__":
    main()
