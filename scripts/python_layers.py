"""Checks the directions in which the rooms of python/rekindle import each other, and which file names what torch keeps to itself.

A room is a folder. It may import itself and the rooms above it in the table, in functions and for types as well:
`python/rekindle/results/views.py` may import `rekindle.reasons`, and not `rekindle.graphs`.
"""

from __future__ import annotations

import ast
import pathlib
import re
from collections.abc import Iterator

PACKAGE = "python/rekindle"

# From the lowest. The door is split: a few of its files are below all rooms, the others above them.
FOUNDATION = "the foundation"
DOOR = "the door"
ROOMS = (
    FOUNDATION,
    "process",
    "optim",
    "modules",
    "statistics",
    "results",
    "sizes",
    "functions",
    "key/code",
    "key/values",
    "key",
    "recording",
    "export",
    "export/copies",
    "export/trace",
    "export/torchscript",
    "graphs",
    "account",
    "timing",
    "compare",
    "miss",
    "lookup",
    "calls",
    DOOR,
)
FOUNDATION_FILES = {"errors.py", "reasons.py", "versions.py", "options.py", "option_values.py", "memory_plan.py"}

# The file that is mended for a new release of torch, and what no other may name, be it in a text or a comment.
TORCH_INTERNALS = "process/torch_internals.py"
OF_TORCH = re.compile(r"\btorch\._C\b|\btorch\.onnx\._internal\b|\bfrom torch(\.onnx)? import\b.*\b(_C|_internal)\b")

Import = tuple[int, str]  # line, file that is imported, from the package's folder


def room_of(file: str) -> str | None:
    """Returns the room of a file, named from the package's folder; None for one in a folder that the table lacks."""
    folder, _, name = file.rpartition("/")
    if folder:
        return folder if folder in ROOMS else None
    return FOUNDATION if name in FOUNDATION_FILES else DOOR


def imports_of(text: str, files: set[str]) -> Iterator[Import]:
    """Yields what of the package a file imports anywhere: `from rekindle.results import views` is results/views.py."""
    for node in ast.walk(ast.parse(text)):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            is_ours = name.partition(".")[0] == "rekindle" and name != "rekindle._native"
            if is_ours and (found := _file_of(name.split(".")[1:], files)):
                yield node.lineno, found


def _file_of(parts: list[str], files: set[str]) -> str | None:
    path = "/".join(parts)
    for candidate in (
        f"{path}.py",
        f"{path.rpartition('/')[0]}.py",
        f"{path}/__init__.py",
        f"{path.rpartition('/')[0]}/__init__.py",
    ):
        if candidate.lstrip("/") in files:
            return candidate.lstrip("/")
    return None


def internals_named(text: str) -> list[int]:
    """Returns the lines that name torch's native module, or the inside of its ONNX exporter."""
    return [number for number, line in enumerate(text.splitlines(), start=1) if OF_TORCH.search(line)]


def violations(root: pathlib.Path) -> Iterator[str]:
    """Yields every violation below the repository's root, as `path:line: what`; then a circle of files, if there is one."""
    package = root / PACKAGE
    files = {path.relative_to(package).as_posix() for path in package.rglob("*.py")}
    texts = {file: (package / file).read_text() for file in sorted(files)}
    for file, text in texts.items():
        for line in internals_named(text) if file != TORCH_INTERNALS else ():
            yield f"{PACKAGE}/{file}:{line}: what torch keeps to itself is named in {PACKAGE}/{TORCH_INTERNALS} only"
    imports = {file: [*imports_of(text, files)] for file, text in texts.items()}
    for file, found in imports.items():
        if (room := room_of(file)) is None:
            yield f"{PACKAGE}/{file}:1: {file.rpartition('/')[0]} is no room of scripts/python_layers.py"
            continue
        for line, target in found:
            used = room_of(target)
            if used is not None and ROOMS.index(used) > ROOMS.index(room):
                yield f"{PACKAGE}/{file}:{line}: {room} must not import {used} ({target}), which is above it"
    if circle := _circle({file: {target for _, target in found} - {file} for file, found in imports.items()}):
        yield f"{PACKAGE}/{circle[0]}:1: files import each other in a circle: {' -> '.join([*circle, circle[0]])}"


def _circle(edges: dict[str, set[str]]) -> list[str]:
    """Returns one circle among the edges; nothing if there is none."""
    left = dict(edges)
    while free := {file for file, targets in left.items() if not targets & left.keys()}:
        left = {file: targets for file, targets in left.items() if file not in free}
    path: list[str] = []
    file = min(left, default=None)
    while file is not None and file not in path:
        path.append(file)
        file = min(left[file] & left.keys())
    return path[path.index(file) :] if file is not None else []
