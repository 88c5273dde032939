"""Writes the page of a run of the benchmark, in Markdown: the machine, the verdicts, and tables per model."""

import re
import textwrap
from typing import Any

import mdformat
from bench_tables import absences, compared, judged, measured, notes, startups
from figures import by_cell
from subjects import SUBJECTS
from workloads import WORKLOADS

_FORMAT = {"wrap": 120, "plugin": {"tables": {"compact_tables": True}}}  # that of .mdformat.toml
_HOW = (
    "Every subject starts in a fresh process, one after the other; another one goes first in each round. Each takes the first "
    "{steps} steps alone, then {turns} blocks of {turn_steps} steps in turn with an eager process that stays for the round. A "
    "step's ratio is that of two such blocks; all other ratios are of one round. Cells are the median of the rounds, the lowest "
    "and highest in brackets. The ratio of eager's own step says how exact the others are.",
    "A first step is from the model, built, to the end of the optimizer's step: the wrapper, the optimizer, forward, backward, "
    "update. Peak memory is VmHWM of the process itself, without helpers; on a device, the most that PyTorch allocated there. "
    "The floor calls the matrix products, convolutions and attention kernels of a step alone, on eager's tensors. It has no "
    "optimizer, which a step has.",
)


def _escaped(text: str) -> str:
    """Returns text without what Markdown would take for its own; the formatter drops what was not needed."""
    return re.sub(r"([\\`*_\[\]<>|])", r"\\\1", text)


def _wrapped(command: str) -> str:
    """Returns a shell command in lines that fit a page."""
    return " \\\n  ".join(textwrap.wrap(command, 110, break_long_words=False, break_on_hyphens=False))


def _list(lines: list[str]) -> str:
    return "\n".join(f"- {_escaped(line)}" for line in lines)


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def page(result: dict[str, Any]) -> str:
    """Returns the page of a run, as scripts/format leaves it."""
    absent = absences(result)
    blocks = [
        "# Benchmarks",
        f"Measured on {result['date']} by",
        f"```\n{_wrapped(result['command'])}\n```",
        _list([f"{name.replace('_', ' ')}: {value}" for name, value in result["machine"].items()]),
        *(text.format(**result["settings"]) for text in _HOW),
        "## Targets",
        judged(result).as_markdown(),
        "## Subjects",
        _list([f"{name}: {SUBJECTS[name].about}" for name in result["settings"]["subjects"]]),
        *(["Not measured:", _list(absent)] if absent else []),
    ]
    steps = result["settings"]["steps"]
    for (model, threads), rounds in by_cell(result["records"]).items():
        blocks += [f"## {model}, threads: {threads}", _sentence(WORKLOADS[model].about) + "."]
        for table in (measured(rounds, steps), compared(rounds, steps), startups(rounds)):
            if len(table.rows) > 1:
                blocks += [f"{_sentence(table.title)}:", table.as_markdown()]
        blocks.append(_list(notes(rounds)))
    return mdformat.text("\n\n".join(filter(None, blocks)), options=_FORMAT, extensions={"gfm", "tables"})
