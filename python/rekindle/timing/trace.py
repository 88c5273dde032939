"""Writes events of torch.profiler in Chrome's trace format, with the rank as the process.

The format: https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from typing import Any

import torch


def rank() -> int:
    """Returns this process's rank: of torch.distributed or, where that is not initialized, the variable RANK; else 0."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank()
    text = os.environ.get("RANK", "")
    return int(text) if text.isdecimal() else 0


def write_trace(path: str | os.PathLike[str], title: str, events: Iterable[Any], began: int) -> None:
    """Writes a trace.

    title: of the process
    began: nanoseconds since 1970 at which the events begin, by which `rekindle profile merge` aligns ranks
    """
    process = rank()
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
