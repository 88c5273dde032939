"""Makes figures of what a trial measured, and summaries of the figures of all rounds."""

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from trial_process import PHASES, Measurement

# The parts of a step, and what a first step has before them.
PARTS = ("forward", "backward", "optimizer")
STARTUP = ("imports", "model", "wrapper", *PHASES.values(), "first forward", "first backward", "first optimizer step")


@dataclass(frozen=True)
class Turn:
    """Holds the events of a block of steps of a subject, and those of the block of eager beside it."""

    steps: list[dict[str, Any]]
    reference: list[dict[str, Any]]

    @property
    def ratio(self) -> float:
        """Returns the subject's median step over eager's."""
        own, other = (statistics.median(event["seconds"] for event in side) for side in (self.steps, self.reference))
        return own / other


def spread(values: Iterable[float]) -> dict[str, float]:
    """Returns the median, the lowest and the highest."""
    values = list(values)
    return {"median": statistics.median(values), "low": min(values), "high": max(values)}


def startup(measurement: Measurement) -> dict[str, float]:
    """Returns the seconds of the parts of a start, by the names of STARTUP; they sum up to `start_seconds` but for the pipes."""
    first = measurement.first_step
    phases = measurement.status["phases"] if measurement.status else {}
    named = {name: phases.get(phase, 0.0) for phase, name in PHASES.items()}
    return {
        "imports": measurement.import_seconds,
        "model": first["construct"],
        "wrapper": first["wrap"],
        **named,
        "first forward": first["forward"] - sum(named.values()),
        "first backward": first["backward"],
        "first optimizer step": first["optimizer"],
    }


def _of_turns(turns: list[Turn]) -> dict[str, Any]:
    events = [event for turn in turns for event in turn.steps]
    parts = {part: statistics.median(event[part] for event in events) for part in PARTS if part in events[0]}
    return {
        "step_seconds": statistics.median(event["seconds"] for event in events),
        "step_ratio": statistics.median(turn.ratio for turn in turns),
        "parts": parts,
    }


def figures(measurement: Measurement, events: list[dict[str, Any]], turns: list[Turn]) -> dict[str, Any]:
    """Returns what a process that ended measured; times are in seconds.

    events: of the steps that it took alone, from the first one on
    turns: those that it took in turn with eager
    start_seconds: from the process's start to the end of the first step
    first_step_seconds: from the model's construction, without it, to the end of the first step
    steps_seconds: the sum over `events`
    step_ratio: the median step over eager's, of the same turn
    """
    variant = measurement.trial.variant
    if variant == "export":
        return {"export_seconds": events[0]["seconds"]}
    if variant == "floor":
        return {**_of_turns(turns), "products": measurement.products}
    told = measurement.status or {}
    sources = [event["source"] for event in [*events, *(event for turn in turns for event in turn.steps)] if "source" in event]
    return {
        "start_seconds": measurement.start_seconds,
        "startup": startup(measurement),
        "first_step_seconds": measurement.first_step_seconds - measurement.first_step["construct"],
        "steps_seconds": sum(event["seconds"] for event in events),
        **_of_turns(turns),
        "peak_mib": measurement.peak_mib,
        "peak_growth_mib": measurement.peak_growth_mib,
        "sources": list(dict.fromkeys(sources)),
        "eager_steps": sources.count("eager"),
        "reasons": told.get("reasons", []),
        "torch": measurement.ready["torch"],
    }


def by_cell(records: list[dict[str, Any]]) -> dict[tuple[str, int], list[dict[str, dict[str, Any]]]]:
    """Returns the records of each model and number of threads, as one dictionary a round from subject to record."""
    cells: dict[tuple[str, int], dict[int, dict[str, dict[str, Any]]]] = {}
    for record in records:
        rounds = cells.setdefault((record["model"], record["threads"]), {})
        rounds.setdefault(record["round"], {})[record["subject"]] = record
    return {cell: [rounds[number] for number in sorted(rounds)] for cell, rounds in cells.items()}


def values(rounds: list[dict[str, dict[str, Any]]], subject: str, name: str) -> list[float]:
    """Returns a figure of a subject in all rounds that have it."""
    return [found[subject][name] for found in rounds if name in found.get(subject, {})]


def ratios(rounds: list[dict[str, dict[str, Any]]], subject: str, name: str, other: str = "eager") -> list[float]:
    """Returns a figure of a subject over another one's of the same round, in all rounds that have both."""
    pairs = [(found.get(subject, {}), found.get(other, {})) for found in rounds]
    return [own[name] / base[name] for own, base in pairs if name in own and name in base]
