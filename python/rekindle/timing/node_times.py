"""Sums up what torch.profiler recorded by node of a graph: the executor gives each instruction a range of its own.

An example: the range "rekindle::Linear h1 @ model.py:12 in forward" is of the node of op Linear that makes the value h1, from
line 12 of model.py. What runs in no such range runs in eager, and is summed up by operator: "aten::mm".
"""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from rekindle.timing.node_time import NodeTime

# Ranges of torch.profiler around the phases of a step: "rekindle.profile: forward".
PHASE_PREFIX = "rekindle.profile: "

_NODE = re.compile(r"rekindle::(?P<op>copy of a result|\S+)(?: (?P<value>.*?))?(?: @ (?P<source>.*))?", re.DOTALL)
_OPERATOR = re.compile(r"\w+::\w+(\.\w+)?")

_Key = tuple[str, str, str, str]  # phase, op, value, source


@dataclass(frozen=True)
class _Phase:
    start: float
    end: float
    name: str
    step: int


def node_times(events: Sequence[Any], steps: int, on_device: bool) -> list[NodeTime]:
    """Returns the times of nodes and of operators in eager, in the order in which they first ran.

    events: torch.profiler's, of `steps` steps whose phases have ranges named PHASE_PREFIX and the phase's name
    on_device: whether the time is that of the kernels, and not that on the CPU
    """
    phases = _phases(events)
    seconds: dict[_Key, list[float]] = defaultdict(lambda: [0.0] * steps)
    calls: dict[_Key, int] = defaultdict(int)
    for event in sorted(outermost(events), key=lambda event: event.time_range.start):
        phase = next((phase for phase in phases if phase.start <= event.time_range.start <= phase.end), None)
        if phase is None:
            continue
        key = (phase.name, *_taken_apart(event.name))
        microseconds = event.device_time_total if on_device else event.time_range.elapsed_us()
        seconds[key][phase.step] += microseconds / 1e6
        calls[key] += 1
    return [NodeTime(*key, calls[key] / steps, statistics.median(each)) for key, each in seconds.items()]


def _phases(events: Iterable[Any]) -> list[_Phase]:
    found = []
    counts: dict[str, int] = defaultdict(int)
    for event in sorted((event for event in events if _is_phase(event)), key=lambda event: event.time_range.start):
        name = event.name.removeprefix(PHASE_PREFIX)
        found.append(_Phase(event.time_range.start, event.time_range.end, name, counts[name]))
        counts[name] += 1
    return found


def _is_phase(event: Any) -> bool:
    return event.name.startswith(PHASE_PREFIX) and event.device_type.name == "CPU"


def outermost(events: Iterable[Any], without: tuple[str, ...] = ()) -> Iterator[Any]:
    """Yields the ranges of nodes and operators that lie in no other such range.

    without: what the names of ranges begin with that are left out with all in them
    """
    pending = [event for event in events if event.device_type.name == "CPU" and event.cpu_parent is None]
    while pending:
        event = pending.pop()
        if event.name.startswith(without):
            continue
        if _NODE.fullmatch(event.name) or _OPERATOR.fullmatch(event.name):
            yield event
        else:
            pending += event.cpu_children


def is_of_graph(event: Any) -> bool:
    """Tells whether a range is that of a graph's node."""
    return _NODE.fullmatch(event.name) is not None


def _taken_apart(name: str) -> tuple[str, str, str]:
    """Returns (op, value, source) of a range."""
    found = _NODE.fullmatch(name)
    return (name, "", "") if found is None else (found["op"], found["value"] or "", found["source"] or "")
