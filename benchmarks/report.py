"""Reports what a part of the benchmark measured, and the machine: what `keys`, `memory`, `observed`, `pythonop`, `step` share."""

import importlib.metadata
import json
import os
import platform
from collections.abc import Callable
from pathlib import Path
from typing import Any


def _cpu_model() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def machine_facts(threads: int | str, device: str = "cpu") -> dict[str, Any]:
    """Describes the machine and the versions.

    threads, device: those of the processes that were measured
    """
    import torch  # here: the parent of trials needs it for its version only

    versions = {"python": platform.python_version(), "torch": torch.__version__}
    for package in ("transformers", "torchvision", "rekindle"):
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            versions[package] = "not installed"
    facts = {"device": torch.cuda.get_device_name(device)} if device.startswith("cuda") else {}
    return {
        **facts,
        "cpu": _cpu_model(),
        "cores": len(os.sched_getaffinity(0)),
        "threads": threads,
        "load_average": os.getloadavg()[0],
        "system": platform.platform(),
        **versions,
    }


def print_result(result: dict[str, Any], threads: int, as_json: bool, print_tables: Callable[[], None]) -> None:
    """Prints what a benchmark found and the machine, as one JSON object or as tables that end with an empty line."""
    facts = machine_facts(threads)
    if as_json:
        print(json.dumps({"machine": facts, **result}, indent=2))
        return
    print_tables()
    print("Machine: " + as_text(facts))


def as_text(facts: dict[str, Any]) -> str:
    """Returns the facts of a machine on one line."""
    return ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in facts.items())
