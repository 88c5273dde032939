"""Reports what the benchmark measured: samples, their medians and ratios to eager, the machine, and the tables."""

import dataclasses
import importlib.metadata
import json
import os
import platform
import statistics
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trial_process import PHASES, Measurement

# The measured quantities: the field, the heading and the factor from its unit to the heading's.
_QUANTITIES = (
    ("first_step_seconds", "first step, s", 1),
    ("start_seconds", "with process start, s", 1),
    ("step_seconds", "step, ms", 1000),
    ("peak_mib", "peak, MiB", 1),
    ("peak_growth_mib", "peak after imports, MiB", 1),
)


@dataclass
class Samples:
    """Collects what one subject measured: one number per round, and one median step time per turn."""

    first_step_seconds: list[float] = field(default_factory=list)  # from building the model to the end of the step
    start_seconds: list[float] = field(default_factory=list)  # from the process's start to the end of the first step
    step_seconds: list[float] = field(default_factory=list)  # a median per turn
    peak_mib: list[float] = field(default_factory=list)  # of the process
    peak_growth_mib: list[float] = field(default_factory=list)  # of the process, over what its imports took
    statuses: list[dict[str, Any]] = field(default_factory=list)  # those of Rekindle, see trial.py

    def add(self, measurement: Measurement) -> None:
        """Takes over what a finished process measured."""
        self.first_step_seconds.append(measurement.first_step_seconds)
        self.start_seconds.append(measurement.start_seconds)
        self.peak_mib.append(measurement.peak_mib)
        self.peak_growth_mib.append(measurement.peak_growth_mib)
        if measurement.status is not None:
            self.statuses.append(measurement.status)


def spread(values: list[float]) -> dict[str, float]:
    """Returns the median, the lowest and the highest."""
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def summarize(samples: Samples, eager: Samples | None) -> dict[str, Any]:
    """Returns a subject's samples with their spreads and, where eager ran too, the spreads of the paired ratios."""
    summary: dict[str, Any] = {"samples": dataclasses.asdict(samples)}
    for name, _, _ in _QUANTITIES:
        values = getattr(samples, name)
        if not values:  # a cold process takes no turns
            continue
        summary[name] = spread(values)
        if eager is not None and samples is not eager:
            pairs = zip(values, getattr(eager, name), strict=True)
            summary[name]["ratio"] = spread([value / reference for value, reference in pairs])
    if samples.statuses:
        summary["sources"] = sorted({status["source"] for status in samples.statuses})
        summary["reasons"] = sorted({reason for status in samples.statuses for reason in status["reasons"]})
        summary["phases"] = {phase: spread([status["phases"][phase] for status in samples.statuses]) for phase in PHASES}
    return summary


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _machine_facts(threads: int) -> dict[str, Any]:
    """Describes the machine and the versions.

    threads: those of the processes that were measured
    """
    import torch  # here: the parent of trials needs it for its version only

    versions = {"python": platform.python_version(), "torch": torch.__version__}
    for package in ("transformers", "rekindle"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return {
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "threads": threads,
        "load_average": os.getloadavg()[0],
        "system": platform.platform(),
        **versions,
    }


def _cell(numbers: dict[str, float], factor: float = 1) -> str:
    median, low, high = (factor * numbers[key] for key in ("median", "low", "high"))
    digits = 0 if median >= 100 else 2
    return f"{median:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"


def _print_table(rows: list[list[str]]) -> None:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    for row in rows:
        cells = [f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)]
        print("  ".join([row[0].ljust(widths[0]), *cells[1:]]).rstrip())
    print()


def _print_quantities(subjects: dict[str, dict[str, Any]]) -> None:
    """Prints two tables: what was measured, and the ratios to eager."""
    headings = [heading for _, heading, _ in _QUANTITIES]
    measured = [["median [lowest, highest]", *headings]]
    ratios = [["ratio to eager", *headings]]
    for label, summary in subjects.items():
        found = [(summary.get(name), factor) for name, _, factor in _QUANTITIES]
        measured.append([label, *(_cell(numbers, factor) if numbers else "-" for numbers, factor in found)])
        if any(numbers and "ratio" in numbers for numbers, _ in found):
            ratios.append([label, *(_cell(numbers["ratio"]) if numbers else "-" for numbers, _ in found)])
    _print_table(measured)
    if len(ratios) > 1:
        _print_table(ratios)


def _print_phases(subjects: dict[str, dict[str, Any]]) -> None:
    wrapped = {label: summary for label, summary in subjects.items() if "sources" in summary}
    if not wrapped:
        return
    rows = [["within the first step, s", *PHASES.values(), "graph from"]]
    for label, summary in wrapped.items():
        phases = [_cell(summary["phases"][phase]) for phase in PHASES]
        rows.append([label, *phases, ", ".join(summary["sources"])])
    _print_table(rows)
    for label, summary in wrapped.items():
        for reason in summary["reasons"]:
            print(f"{label} did not serve every call: {reason}\n")


def print_models(models: dict[str, dict[str, dict[str, Any]]]) -> None:
    """Prints one block per model."""
    for model, subjects in models.items():
        print(f"{model}\n{'=' * len(model)}")
        _print_quantities(subjects)
        _print_phases(subjects)


def print_result(result: dict[str, Any], threads: int, as_json: bool, print_tables: Callable[[], None]) -> None:
    """Prints what a benchmark found and the machine, as one JSON object or as tables that end with an empty line."""
    facts = _machine_facts(threads)
    if as_json:
        print(json.dumps({"machine": facts, **result}, indent=2))
        return
    print_tables()
    print("Machine: " + ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in facts.items()))
