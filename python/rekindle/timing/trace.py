"""Writes events of torch.profiler in Chrome's trace format, with the rank as the process.

The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

from rekindle.process.place_in_job import place_in_job


def write_trace(path: str | os.PathLike[str], title: str, events: Iterable[Any], began: int) -> None:
    """Writes a trace.

    title: of the process
    began: nanoseconds since 1970 at which the events begin, by which `rekindle profile merge` aligns ranks
    """
    process, _ = place_in_job()
    name = {"ph": "M", "name": "process_name", "pid": process, "args": {"name": f"rank {process}: {title}"}}
    found = [name, *(_written(event, process) for event in events)]
    trace = {"traceEvents": found, "displayTimeUnit": "ms", "rekindle": {"rank": process, "began_ns": began}}
    with open(path, "w", encoding="utf-8") as file:
        json.dump(trace, file)


def _written(event: Any, process: int) -> dict[str, Any]:
    on_host = event.device_type.name == "CPU"
    thread = f"thread {event.thread}" if on_host else f"{event.device_type.name} {event.device_index}, stream"
    what, _, source = event.name.partition(" @ ")
    written = {"ph": "X", "name": what, "pid": process, "tid": thread, "cat": "cpu" if on_host else "kernel"}
    written |= {"ts": event.time_range.start, "dur": event.time_range.elapsed_us()}
    return written | ({"args": {"source": source}} if source else {})
