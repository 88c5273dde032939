"""Checks Rekindle on a GPU: one command, each section in a process of its own with a deadline, 560 s at most in all.

scripts/gpu-check                     on cuda: a table; the exit status is 1 when anything is wrong
scripts/gpu-check --jobs 8            eight sections at a time, where the machine has the cores, with twice the deadlines
scripts/gpu-check --json out.json     what ran where, beside it
scripts/gpu-check --dry-run           what would run
scripts/gpu-check --device test       on the device of tests/device, without a GPU: the sections are checked themselves
scripts/gpu-check --docs out.json     puts the table of a run into docs/cuda.md

A section is a program that prints a JSON object: {"right": 12, "wrong": ["..."], "skipped": 3, "note": "..."}. It has failed
when "wrong" is not empty, when it raises, or when its deadline has passed.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import dataclasses
import datetime
import json
import os
import pathlib
import subprocess
import sys
import time

_ROOT = pathlib.Path(__file__).parents[2]
_PATHS = ("tests/conformance", "tests/device", "tests/python", "tests/gpu", "benchmarks")
_DOCS = _ROOT / "docs" / "cuda.md"
_LOG = 20_000  # characters of what a section says on standard error
_BEGIN, _END = "<!-- gpu-check: begin -->", "<!-- gpu-check: end -->"


@dataclasses.dataclass(frozen=True)
class Section:
    """name: as in sections.py, or a suite of scripts/conformance with its arguments. seconds: its deadline."""

    name: str
    what: str
    seconds: int
    suite: tuple[str, ...] = ()

    def command(self, device: str) -> list[str]:
        """Returns what is run for a device."""
        conformance = [str(_ROOT / "tests" / "conformance" / "conformance.py"), *self.suite, "--json", "--device", device]
        own = [str(_ROOT / "tests" / "gpu" / "sections.py"), self.name, "--device", device]
        return [sys.executable, *(conformance if self.suite else own)]


SECTIONS = (
    Section("environment", "versions, the device, its driver", 20),
    Section("calls", "forwards that are served, and those on two devices", 30),
    Section("replays", "forwards and training by launches that the device repeats (cuda_graphs)", 30),
    Section("fused", "forwards and training with kernels of several operators (fused_kernels)", 40),
    Section("streams", "forwards and backwards on side streams, behind kernels that sleep", 30),
    Section("functions", "autograd Functions in graphs", 40),
    Section("steps", "allocations of a step, or waits on the test device, beside eager's", 40),
    Section("training", "6 models, 50 steps, beside eager", 40),
    Section("memory", "the most bytes allocated in steps of 8 sizes, beside eager's", 30),
    *(
        Section(f"operators {part}", "torch's operators", 40, ("opinfo", "--samples", "1", "--part", part))
        for part in ("1/3", "2/3", "3/3")
    ),
    Section("modules", "torch's modules", 50, ("modules", "--samples", "1")),
    Section("programs", "random programs, with fused_kernels", 40, ("programs", "--samples", "60", "--fuse")),
    Section("sanitizer", "compute-sanitizer over the section streams", 50),
)
assert sum(section.seconds for section in SECTIONS) <= 560


def _run(section: Section, device: str, seconds: int) -> dict[str, object]:
    """Runs a section; what it printed, with "seconds" and the end of its "log"."""
    start = time.monotonic()
    paths = [*(str(_ROOT / path) for path in _PATHS), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    command = section.command(device)
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=seconds, check=False, env=environment, cwd=_ROOT)
        found = _found(done.stdout)
        if found is None or (done.returncode and not found["wrong"]):
            found = {"right": 0, "wrong": [f"exit status {done.returncode}: {done.stderr.strip()[-600:]}"], "skipped": 0}
        found["log"] = done.stderr[-_LOG:]
    except subprocess.TimeoutExpired as late:
        log = (late.stderr or b"").decode(errors="replace")[-_LOG:]
        found = {"right": 0, "wrong": [f"not done after {seconds} s"], "skipped": 0, "log": log}
    found = {"name": section.name, "what": section.what, **found, "seconds": round(time.monotonic() - start, 1)}
    print(f"{section.name:12} {len(found['wrong'])} wrong, {found['seconds']} s", file=sys.stderr, flush=True)
    return found


def _found(printed: str) -> dict[str, object] | None:
    """The JSON object that a section prints last, in the form of this file; None if there is none."""
    try:
        made = json.loads(printed[printed.index("{") :])
    except ValueError:
        return None
    if "counts" not in made:
        return made
    wrong = [f"{one['name']}: {one['reason']}" for one in made["outcomes"] if not one["right"]]
    counts = made["counts"]
    right = sum(count for place, count in counts.items() if place not in ("wrong", "skipped"))
    note = ", ".join(f"{place} {count}" for place, count in counts.items())
    return {"right": right, "wrong": wrong, "skipped": counts["skipped"], "note": note}


def table(report: dict[str, object]) -> str:
    """A table of a run, as Markdown."""
    lines = [
        f"{report['device']}, {report['date']}:",
        "",
        "| section | right | wrong | skipped | seconds | |",
        "| -- | -- | -- | -- | -- | -- |",
    ]
    for one in report["sections"]:  # type: ignore[attr-defined]
        notes = one.get("note", "") or "; ".join(one["wrong"])[:120]
        lines.append(f"| {one['name']} | {one['right']} | {len(one['wrong'])} | {one['skipped']} | {one['seconds']} | {notes} |")
    return "\n".join(lines)


def write_docs(report: dict[str, object]) -> None:
    """Puts the table between the marks in docs/cuda.md."""
    text = _DOCS.read_text()
    head, _, rest = text.partition(_BEGIN)
    _DOCS.write_text(f"{head}{_BEGIN}\n\n{table(report)}\n\n{_END}{rest.partition(_END)[2]}")


def main() -> int:
    """Runs the sections."""
    parser = argparse.ArgumentParser(prog="gpu-check", description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("only", nargs="*", help="sections; without any, all")
    parser.add_argument("--device", default="cuda", help='as torch names it, or "test"')
    parser.add_argument("--jobs", type=int, default=1, help="sections that run at a time (default: 1)")
    parser.add_argument("--json", type=pathlib.Path, help="write what ran, and how it went, to this file")
    parser.add_argument("--dry-run", action="store_true", help="list the sections with their deadlines and commands")
    parser.add_argument("--docs", type=pathlib.Path, metavar="JSON", help="put a run's table into docs/cuda.md")
    given = parser.parse_args()
    if given.docs is not None:
        write_docs(json.loads(given.docs.read_text()))
        return 0
    chosen = [section for section in SECTIONS if not given.only or section.name in given.only]
    if given.dry_run:
        for section in chosen:
            print(f"{section.name:12} {section.seconds:4} s  {section.what}\n    {' '.join(section.command(given.device))}")
        print(f"{len(chosen)} sections, at most {sum(section.seconds for section in chosen)} s")
        return 0
    with concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        times = 1 if given.jobs == 1 else 2
        sections = list(pool.map(lambda section: _run(section, given.device, times * section.seconds), chosen))
    device = next((one["note"] for one in sections if one["name"] == "environment" and "note" in one), given.device)
    report = {"device": device, "date": datetime.date.today().isoformat(), "sections": sections}
    print(table(report))
    for one in sections:
        for wrong in one["wrong"]:
            print(f"wrong: {one['name']}: {wrong}")
    if given.json is not None:
        given.json.write_text(json.dumps(report, indent=1))
    return int(any(one["wrong"] for one in sections))


if __name__ == "__main__":
    sys.exit(main())
