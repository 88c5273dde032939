"""Leaves of the versions of what is loaded."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import sys
from collections.abc import Iterable

import torch

from rekindle.fingerprint.values import Walker

FORMAT = 1  # of the fields; see docs/key-format.md

_found: dict[str, str | None] = {}


def distribution_version(package: str) -> str | None:
    """Version of a loaded top-level package, or None for code that belongs to no distribution."""
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
    """Add the versions of Python, torch, Rekindle, and the distributions that the classes come from."""
    walker.emit("version.format", FORMAT)
    walker.emit("version.python", f"{platform.python_implementation()} {platform.python_version()}")
    walker.emit("version.bytecode", importlib.util.MAGIC_NUMBER.hex())
    walker.emit("version.torch", f"{torch.__version__} {torch.version.git_version}")
    walker.emit("version.rekindle", distribution_version("rekindle"))
    roots = {cls.__module__.partition(".")[0] for cls in classes}
    for root in sorted(roots - sys.stdlib_module_names - {"torch", "rekindle"}):
        walker.emit(f"version.{root}", distribution_version(root))
