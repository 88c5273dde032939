"""Holds the figures of a run against the targets, and says of each whether it is kept."""

import statistics
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from figures import by_cell, ratios, spread, values
from step import MLP_LIMIT, MLP_OVER_EAGER
from subjects import PEERS, SUBJECTS

Round = dict[str, dict[str, Any]]  # from subject to record
_FASTEST = "step / that of the fastest peer"


@dataclass(frozen=True)
class Target:
    """Says what a figure may be at most.

    figure: what is compared, for a reader
    subject: that of Rekindle which it is about
    measure: the rounds of a model -> the figure of each round; raises LookupError naming what is not there
    below: whether the limit itself is too much
    models: those that it is about; empty for all
    """

    figure: str
    limit: float
    subject: str
    measure: Callable[[list[Round]], list[float]]
    below: bool = False
    models: tuple[str, ...] = ()

    def text(self) -> str:
        """Returns the limit for a reader."""
        return f"{'below' if self.below else 'at most'} {self.limit:g}"


@dataclass(frozen=True)
class Verdict:
    """Says whether a target is kept: `outcome` is kept, missed or not measured, `note` why if that is not the figure's."""

    figure: str
    limit: str
    model: str
    threads: int
    numbers: dict[str, float] | None
    outcome: str
    note: str = ""


def _ratio(subject: str, name: str) -> Callable[[list[Round]], list[float]]:
    """Returns how to measure a figure of a subject over eager's."""

    def measure(rounds: list[Round]) -> list[float]:
        found = ratios(rounds, subject, name)
        if not found:
            raise LookupError(f"no round has {subject} and eager")
        return found

    return measure


def _exports_over_eager(rounds: list[Round]) -> list[float]:
    """Returns by how many exports the first step of a cold start is longer than eager's, in each round."""
    needed = (("rekindle-cold", "first_step_seconds"), ("eager", "first_step_seconds"), ("export", "export_seconds"))
    complete = [found for found in rounds if all(name in found.get(subject, {}) for subject, name in needed)]
    if not complete:
        raise LookupError("no round has rekindle-cold, eager and export")
    times = [[found[subject][name] for subject, name in needed] for found in complete]
    return [(cold - eager) / export for cold, eager, export in times]


def fastest_peer(rounds: list[Round]) -> str:
    """Returns the subject other than Rekindle with the shortest step, by its median ratio to eager."""
    steps = {peer: values(rounds, peer, "step_ratio") for peer in PEERS}
    found = {peer: statistics.median(ratio) for peer, ratio in steps.items() if ratio}
    if not found:
        raise LookupError("no peer was measured")
    return min(found, key=found.__getitem__)


def _over(rounds: list[Round], other: str) -> list[float]:
    """Returns the warm step over another subject's: both are ratios to eager of the same turn."""
    found = ratios(rounds, "rekindle-warm", "step_ratio", other)
    if not found:
        raise LookupError(f"no round has rekindle-warm and {other}")
    return found


TARGETS = (
    Target("cold: (first step - eager's) / torch.onnx.export", 1.3, "rekindle-cold", _exports_over_eager),
    Target("background: first step / eager's", 1.05, "rekindle-background", _ratio("rekindle-background", "first_step_seconds")),
    Target(
        "background: sum of the first steps / eager's",
        1.05,
        "rekindle-background",
        _ratio("rekindle-background", "steps_seconds"),
    ),
    Target("warm: first step / eager's", 1.0, "rekindle-warm", _ratio("rekindle-warm", "first_step_seconds")),
    Target("warm: process start to first step / eager's", 1.0, "rekindle-warm", _ratio("rekindle-warm", "start_seconds"), True),
    Target(_FASTEST, 0.95, "rekindle-warm", lambda rounds: _over(rounds, fastest_peer(rounds))),
    Target(
        "step / the floor",
        1.1,
        "rekindle-warm",
        lambda rounds: _over(rounds, "floor"),
        models=("bert", "gpt2-4", "gpt2-12", "vit"),
    ),
    *(
        Target(f"peak memory / eager's, {name.partition('-')[2]}", 1.0, name, _ratio(name, "peak_mib"))
        for name, subject in SUBJECTS.items()
        if subject.variant == "rekindle"
    ),
)


def _not_as_expected(rounds: list[Round], name: str) -> str:
    """Returns how a subject of Rekindle did not do what its figures stand for; empty if it did."""
    for found in rounds:
        record = found.get(name, {})
        reasons = [reason for reason in record.get("reasons", ()) if reason.partition(":")[0] not in SUBJECTS[name].expects]
        if reasons:
            return f"calls ran in eager: {reasons[0]}"
        others = set(record.get("sources", ())) - SUBJECTS[name].expects
        if others:
            return f"its graph came from: {', '.join(sorted(others))}"
    return ""


def _failed(rounds: list[Round], name: str) -> str:
    return next((f"{name} failed: {found[name]['failed']}" for found in rounds if "failed" in found.get(name, {})), "")


def _verdict(target: Target, cell: tuple[str, int], rounds: list[Round]) -> Verdict:
    model, threads = cell
    try:
        numbers = spread(target.measure(rounds))
    except LookupError as error:
        why = _failed(rounds, target.subject) or str(error.args[0])
        return Verdict(target.figure, target.text(), model, threads, None, "not measured", why)
    trouble = _not_as_expected(rounds, target.subject) or _failed(rounds, target.subject)
    within = numbers["median"] < target.limit if target.below else numbers["median"] <= target.limit
    outcome = "kept" if within and not trouble else "missed"
    peer = fastest_peer(rounds) if target.figure == _FASTEST else ""
    return Verdict(target.figure, target.text(), model, threads, numbers, outcome, trouble or peer)


def verdicts(result: dict[str, Any]) -> list[Verdict]:
    """Returns the verdict on each target for each model and number of threads, and that on the overhead of a step.

    Targets of subjects that the run was not to measure are left out.
    """
    cells, asked = by_cell(result["records"]), result["settings"]["subjects"]
    found = [
        _verdict(target, cell, rounds)
        for target in TARGETS
        for cell, rounds in cells.items()
        if target.subject in asked and (not target.models or cell[0] in target.models)
    ]
    costs = result["overhead"]
    figure, limit = "step of a two-layer MLP over eager's, us (bench step)", f"at most {MLP_LIMIT:g}"
    if costs is None:
        return [*found, Verdict(figure, limit, "mlp", 1, None, "not measured", "mlp or rekindle was left out")]
    numbers = costs[MLP_OVER_EAGER]
    outcome = "kept" if numbers["median"] <= MLP_LIMIT else "missed"
    return [*found, Verdict(figure, limit, "mlp", 1, numbers, outcome)]
