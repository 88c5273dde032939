"""Makes the tables of a run of the benchmark, for a terminal and for a document."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from figures import PARTS, STARTUP, by_cell, ratios, spread, values
from subjects import SUBJECTS
from targets import Round, verdicts

_NONE = "-"
_TEXTS = ("", "target", "model", "note")  # the columns that are not numbers


@dataclass(frozen=True)
class Table:
    """Holds a table's heading and rows, the first column being names."""

    title: str
    rows: list[list[str]]  # the heading is the first

    def as_text(self) -> str:
        """Returns the table with aligned columns below its title."""
        widths = [max(map(len, column)) for column in zip(*self.rows)]
        sides = ["<" if heading in _TEXTS else ">" for heading in self.rows[0]]
        lines = [
            "  ".join(f"{cell:{side}{width}}" for cell, side, width in zip(row, sides, widths)).rstrip() for row in self.rows
        ]
        return "\n".join([self.title, *lines])

    def as_markdown(self) -> str:
        """Returns the table in Markdown."""
        rows = [self.rows[0], ["--"] * len(self.rows[0]), *self.rows[1:]]
        return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in row)} |" for row in rows)


def _shown(numbers: dict[str, float]) -> str:
    """Returns a spread; the median alone where all are one."""
    median, low, high = (numbers[key] for key in ("median", "low", "high"))
    digits = 0 if abs(median) >= 100 else 2
    return f"{median:.{digits}f}" + (f" [{low:.{digits}f}, {high:.{digits}f}]" if low < high else "")


def cell(numbers: Iterable[float], factor: float = 1) -> str:
    """Returns the median and, of numbers that differ, the lowest and highest; a dash without numbers."""
    found = [factor * number for number in numbers]
    return _shown(spread(found)) if found else _NONE


def _median(numbers: list[float], factor: float = 1) -> str:
    return f"{factor * statistics.median(numbers):.2f}" if numbers else _NONE


def _part(rounds: list[Round], name: str, group: str, part: str) -> list[float]:
    return [found[part] for found in values(rounds, name, group) if part in found]


def measured(rounds: list[Round], steps: int) -> Table:
    """Returns what each subject measured."""
    sums = f"steps 1 to {steps}, s"
    rows = [["", "process start to first step, s", "first step, s", sums, "step, ms", *PARTS, "peak, MiB"]]
    for name in SUBJECTS:
        steps_ms = values(rounds, name, "step_seconds")
        if steps_ms:
            figures = [cell(values(rounds, name, figure)) for figure in ("start_seconds", "first_step_seconds", "steps_seconds")]
            parts = [_median(_part(rounds, name, "parts", part), 1000) for part in PARTS]
            rows.append([name, *figures, cell(steps_ms, 1000), *parts, cell(values(rounds, name, "peak_mib"))])
    return Table("median [lowest, highest] of the rounds", rows)


def _without_optimizer(rounds: list[Round], name: str) -> list[float]:
    """Returns forward and backward over the floor's, in each round."""
    found = []
    for records in rounds:
        own, floor = records.get(name, {}), records.get("floor", {})
        if "step_ratio" in own and "step_ratio" in floor:
            share = 1 - own["parts"].get("optimizer", 0.0) / sum(own["parts"].values())
            found.append(share * own["step_ratio"] / floor["step_ratio"])
    return found


def compared(rounds: list[Round], steps: int) -> Table:
    """Returns the ratios of each subject to eager and to the floor, taken within rounds."""
    sums = f"steps 1 to {steps}"
    floors = ["step / floor", "forward and backward / floor"]
    rows = [["", "process start to first step", "first step", sums, "step", "peak", *floors]]
    for name in SUBJECTS:
        if values(rounds, name, "step_ratio"):
            figures = [cell(ratios(rounds, name, figure)) for figure in ("start_seconds", "first_step_seconds", "steps_seconds")]
            figures += [cell(values(rounds, name, "step_ratio")), cell(ratios(rounds, name, "peak_mib"))]
            floor = [cell(ratios(rounds, name, "step_ratio", "floor")), cell(_without_optimizer(rounds, name))]
            rows.append([name, *figures, *floor])
    return Table("ratios to eager, of the same round", rows)


def startups(rounds: list[Round]) -> Table:
    """Returns where the time from the process's start to the end of the first step went."""
    present = [name for name in SUBJECTS if values(rounds, name, "startup")]
    parts = [part for part in STARTUP if any(any(_part(rounds, name, "startup", part)) for name in present)]
    rows = [[name, *(_median(_part(rounds, name, "startup", part)) for part in parts)] for name in present]
    return Table("from process start to first step, s, medians", [["", *parts], *rows])


def notes(rounds: list[Round]) -> list[str]:
    """Returns what a reader must know of a model's figures: the export, versions, graphs' sources, failures, calls in eager."""
    found = []
    versions = {name: values(rounds, name, "torch") for name in SUBJECTS}
    found += [f"{name} ran with torch {own[0]}." for name, own in versions.items() if own and own[0] not in versions["eager"]]
    exports = values(rounds, "export", "export_seconds")
    if exports:
        found.append(f"torch.onnx.export of the model takes {cell(exports)} s.")
    for name in SUBJECTS:
        records = [records[name] for records in rounds if name in records]
        sources = dict.fromkeys(source for record in records for source in record.get("sources", ()))
        if sources:
            steps = [record["eager_steps"] for record in records if "eager_steps" in record]
            began = f", after {cell(steps)} steps in eager" if any(steps) else ""
            found.append(f"{name}: graph from {', '.join(sources)}{began}.")
        found += [f"{name} failed: {why}" for why in dict.fromkeys(r["failed"] for r in records if "failed" in r)]
        reasons = dict.fromkeys(reason for record in records for reason in record.get("reasons", ()))
        found += [f"{name}, in eager: {reason}" for reason in reasons]
    return found


def absences(result: dict[str, Any]) -> list[str]:
    """Returns what was not available, and why, subjects of the same reason together."""
    models: dict[tuple[str, str], list[str]] = {}
    for entry in result["absent"]:
        models.setdefault((entry["subject"], entry["why"]), []).append(entry["model"])
    every = sorted(result["settings"]["models"])
    named = [
        (subject if sorted(where) == every else f"{subject} ({', '.join(where)})", why)
        for (subject, why), where in models.items()
    ]
    return [f"{name} is not available: {why}" for name, why in named]


def judged(result: dict[str, Any]) -> Table:
    """Returns the verdict on every target."""
    rows = [["target", "model", "threads", "figure", "limit", "verdict", "note"]]
    for verdict in verdicts(result):
        numbers = _shown(verdict.numbers) if verdict.numbers else _NONE
        rows.append([verdict.figure, verdict.model, str(verdict.threads), numbers, verdict.limit, verdict.outcome, verdict.note])
    return Table("targets", rows)


def as_text(result: dict[str, Any]) -> str:
    """Returns all tables of a run, for a terminal."""
    steps, blocks = result["settings"]["steps"], []
    for (model, threads), rounds in by_cell(result["records"]).items():
        tables = [measured(rounds, steps), compared(rounds, steps), startups(rounds)]
        title = f"{model}, threads: {threads}"
        blocks.append("\n\n".join([f"{title}\n{'=' * len(title)}", *(t.as_text() for t in tables), "\n".join(notes(rounds))]))
    blocks += ["\n".join(absences(result)), judged(result).as_text()]
    return "\n\n".join(filter(None, blocks))
