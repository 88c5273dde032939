#!/usr/bin/env python3
"""Checks every #include and every Python import against the directions in which rooms may depend on each other.

It also checks that no Python function has more parameters than a reader can hold.

Usage: scripts/check_layers.py [ROOT]. Prints one line a violation; exits with 1 if there is any. The tables
below, in python_layers.py and in python_arguments.py are the rule; docs/contributing.md shows them.
"""

from __future__ import annotations

import pathlib
import re
import sys
from collections.abc import Iterator

import python_arguments
import python_layers

# A room may include itself and these rooms. The longest matching path is a file's room.
ROOMS: dict[str, set[str]] = {
    "src/base": set(),
    "src/graph": {"src/base"},
    "src/autodiff": {"src/base", "src/graph"},
    "src/passes": {"src/base", "src/graph"},
    "src/contract": {"src/base"},
    "src/fusion": {"src/base", "src/graph"},
    "src/padding": {"src/base", "src/graph"},
    "src/pipeline": {"src/base", "src/graph", "src/autodiff", "src/passes"},
    "export_cache": {"src/base"},
    "kernels": {"src/base"},
    "device": {"src/base"},
    # A session runs joint graphs, so it knows their contract; rules and passes are not its business. Where it
    # leaves rows of padding out it has a second graph made.
    "session": {"src/base", "src/graph", "src/autodiff", "src/fusion", "src/padding", "src/pipeline", "kernels", "device"},
}
LOWER = set(ROOMS)
ROOMS |= {
    "cli": LOWER,
    "python/calls": LOWER,
    "python/process": set(),
    "python/recording": set(),
    "python/bindings": LOWER | {"python/calls", "python/process", "python/recording"},
    "tests/support": LOWER,
    "tests": LOWER | {"tests/support", "cli"},
}

# Outside headers by prefix, and the paths that may include them. Tests are free.
OUTSIDE: dict[str, tuple[str, ...]] = {
    "ATen/": ("kernels", "device", "session", "python"),
    "c10/": ("kernels", "device", "session", "python"),
    "torch/": ("device", "session", "python"),
    "cuda": ("kernels/cuda",),
    "pybind11/": ("python/calls", "python/recording", "python/bindings"),
    "Python.h": ("python",),
    "rocksdb/": ("export_cache/tiers",),
    "curl/": ("export_cache/tiers",),
    "hiredis/": ("export_cache/tiers",),
    "onnx": ("src/graph/onnx/",),
    "google/protobuf": ("src/graph/onnx/",),
    "CLI/": ("cli",),
}
FREE = "tests/"
# Too heavy, or too full of macros, for a header of ours.
NEVER_IN_HEADERS = ("torch/extension.h", "torch/torch.h", "ATen/ATen.h", "rocksdb/", "google/protobuf")

INCLUDE = re.compile(r'^\s*#\s*include\s+(["<])([^">]+)[">]')
SUFFIXES = {".h", ".cc", ".cu", ".cuh"}


def room_of(path: str) -> str | None:
    """Returns the room that a path relative to the root belongs to, or None."""
    rooms = [room for room in ROOMS if path.startswith(room + "/")]
    return max(rooms, key=len, default=None)


def check_inner(root: pathlib.Path, path: str, target: str) -> str | None:
    """Says what is wrong with `#include "target"` in the file `path`, if target is ours or looks like it."""
    if not (root / target).is_file():
        if ((root / path).parent / target).is_file() or target.startswith("."):
            return f'"{target}" must be named from the repository root'
        return None
    room, used = room_of(path), room_of(target)
    if room is None or used is None or room == used or used in ROOMS[room]:
        return None
    allowed = ", ".join(sorted(ROOMS[room])) or "no other room"
    return f"{room} must not include {used} ({target}); it may use {allowed}"


def check_outer(path: str, target: str) -> str | None:
    """Says what is wrong with including the outside header `target` in the file `path`."""
    if path.startswith(FREE):
        return None
    if path.endswith((".h", ".cuh")) and target.startswith(NEVER_IN_HEADERS):
        return f"<{target}> does not belong into a header"
    for prefix, users in OUTSIDE.items():
        if target.startswith(prefix) and not path.startswith(users):
            return f"<{target}> belongs to {', '.join(users)} only"
    return None


def violations(root: pathlib.Path) -> Iterator[str]:
    """Yields every violation below root, as `path:line: what`."""
    folders = sorted({room.split("/")[0] for room in ROOMS})
    for file in sorted(file for folder in folders for file in (root / folder).rglob("*")):
        if file.suffix not in SUFFIXES:
            continue
        path = file.relative_to(root).as_posix()
        for number, line in enumerate(file.read_text().splitlines(), start=1):
            if not (match := INCLUDE.match(line)):
                continue
            quote, target = match.groups()
            wrong = check_inner(root, path, target) if quote == '"' else None
            if wrong := wrong or (None if (root / target).is_file() else check_outer(path, target)):
                yield f"{path}:{number}: {wrong}"
    yield from python_layers.violations(root)
    yield from python_arguments.violations(root)


def main() -> int:
    """Checks the given root, or the repository this script lies in; returns the exit status."""
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[1]
    found = list(violations(root))
    for line in found:
        print(line)
    print(f"check_layers: {len(found)} violations", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
