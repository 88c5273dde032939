"""Adds the leaves of the versions of what is loaded."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import platform
import sys
from collections.abc import Iterable, Iterator

import torch

from rekindle import _native
from rekindle.key.code.binaries import build_id
from rekindle.key.values.walker import Walker
from rekindle.process.digest import digest_parts

FORMAT = 6  # of the fields; see docs/key-format.md

_TORCH_CPU = os.path.join(os.path.dirname(torch.__file__), "lib", "libtorch_cpu.so")
_ROOMS_OF_A_MISS = ("export", "functions", "miss", "recording", "results", "sizes")

_found: dict[str, str | None] = {}


@functools.cache
def _exporters() -> str:
    """Digests the code that makes a graph of a module, which no hit loads."""
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    return digest_parts(text for room in _ROOMS_OF_A_MISS for text in _sources(os.path.join(root, room)))


def _sources(folder: str) -> Iterator[bytes]:
    """Yields what the files of Python below a folder hold, in an order that is the same everywhere.

    Path.rglob takes twice as long, in each process that finds a graph.
    """
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        if entry.name.endswith(".py"):
            with open(entry.path, "rb", buffering=0) as file:
                yield file.readall()
        elif entry.name != "__pycache__" and entry.is_dir(follow_symlinks=False):
            yield from _sources(entry.path)


def distribution_version(package: str) -> str | None:
    """Returns the version of a loaded top-level package, or None for code that belongs to no distribution."""
    if package not in _found:
        version = getattr(sys.modules.get(package), "__version__", None)
        if not isinstance(version, str):
            try:
                version = importlib.metadata.version(package)
            except (importlib.metadata.PackageNotFoundError, ValueError):
                version = None
        _found[package] = version
    return _found[package]


def add_versions(walker: Walker, classes: Iterable[type]) -> None:
    """Adds the versions of Python, torch, Rekindle, and the distributions that the classes come from."""
    walker.emit("version.format", FORMAT)
    walker.emit("version.python", f"{platform.python_implementation()} {platform.python_version()}")
    walker.emit("version.bytecode", importlib.util.MAGIC_NUMBER.hex())
    walker.emit("version.torch", f"{torch.__version__} {torch.version.git_version}")
    walker.emit("version.torch.build", build_id(_TORCH_CPU))
    walker.emit("version.rekindle", distribution_version("rekindle"))
    walker.emit("version.rekindle.build", build_id(_native.__file__))
    walker.emit("version.rekindle.exporters", _exporters())
    roots = {cls.__module__.partition(".")[0] for cls in classes}
    for root in sorted(roots - sys.stdlib_module_names - {"torch", "rekindle"}):
        walker.emit(f"version.{root}", distribution_version(root))
