"""Reads and writes memory plans: files that say which forward values the backward of a step computes again.

An example, in which the first 12 of a graph's 24 places of the kind "Linear+Tanh" are computed again, and nothing else:

    {
      "version": 1,
      "model": "GPT",
      "subgraphs": [
        {"subgraph": "Linear+Tanh", "count": 24, "recompute": 12, "bytes": 50331648, "time_share": 0.081},
        {"subgraph": "LayerNormalization", "count": 9, "recompute": 0, "bytes": 9437184, "time_share": 0.004}
      ]
    }

"recompute" is what a user edits: from 0 to the count, or -1 for all. ORTModule's form is read, too: ["Linear+Tanh+:1:12"].
"""

from __future__ import annotations

import json
import os
import pathlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from rekindle.errors import OptionError

_VERSION = 1
_MOST = 2**31 - 1  # more than there are places in any graph
_WRITE_ONE = "write one with rekindle.memory(model, ...).save_plan(FILE)"


@dataclass(frozen=True)
class MemoryPlan:
    """Says how many places of each kind are computed again, as a file had it when it was read.

    file: its path
    recompute: per kind of subgraph, the number of places, the first in the order of the graph; -1: all
    """

    file: str
    recompute: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return repr(self.file)


class _Problem(Exception):
    """Says what is wrong with the contents of a file, and what to do."""


def read_plan(path: Any, origin: str) -> MemoryPlan:
    """Returns the plan of a file.

    origin: what names the file, for messages

    Raises OptionError for a path that is none, and for a file that cannot be read or is no plan.
    """
    try:
        file = os.fspath(path)
    except TypeError:
        file = None
    if not isinstance(file, str) or not file:
        raise OptionError(f"{origin} is {path!r}; it must be the path of a memory plan: {_WRITE_ONE}")
    try:
        found = json.loads(pathlib.Path(file).read_text(encoding="utf-8"))
        return MemoryPlan(file, _recompute_of(found))
    except OSError as error:
        raise OptionError(f"{origin} is {file!r}, which cannot be read: {error.strerror}; {_WRITE_ONE}") from error
    except _Problem as problem:
        raise OptionError(f"{origin} is {file!r}, {problem}") from None
    except (ValueError, RecursionError) as error:  # of a decoder
        raise OptionError(f"{origin} is {file!r}, which is not JSON: {error}; {_WRITE_ONE}") from error


def write_plan(path: str | os.PathLike[str], model: str, rows: Iterable[Mapping[str, Any]]) -> None:
    """Writes a plan, a line for each of `rows`. Raises OSError."""
    lines = ",\n".join(f"    {json.dumps(row)}" for row in rows)
    text = f'{{\n  "version": {_VERSION},\n  "model": {json.dumps(model)},\n  "subgraphs": [\n{lines}\n  ]\n}}\n'
    pathlib.Path(path).write_text(text, encoding="utf-8")


def _recompute_of(found: Any) -> tuple[tuple[str, int], ...]:
    if isinstance(found, list):
        pairs = [_from_text(one) for one in found]
    else:
        if not isinstance(found, dict) or "version" not in found:
            raise _Problem(f'which has no "version", so that it is no memory plan; {_WRITE_ONE}')
        if found["version"] != _VERSION or isinstance(found["version"], bool):
            raise _Problem(f"which has the version {found['version']!r}; version {_VERSION} is read: {_WRITE_ONE}")
        if not isinstance(found.get("subgraphs"), list):
            raise _Problem(f'which has no list "subgraphs"; {_WRITE_ONE}')
        pairs = [_from_row(row) for row in found["subgraphs"]]
    known: dict[str, int] = {}
    for kind, number in pairs:
        if kind in known:
            raise _Problem(f"which names the subgraph {kind!r} twice; remove one of them")
        known[kind] = number
    return tuple(known.items())


def _from_row(row: Any) -> tuple[str, int]:
    if not isinstance(row, dict):
        raise _Problem(f'whose "subgraphs" have {row!r}; each must be an object with "subgraph" and "recompute"')
    kind = _kind(row.get("subgraph"), row)
    for name in ("recompute", "count"):
        if name not in row and (name == "recompute" or row["recompute"] != -1):
            raise _Problem(f'whose subgraph {kind!r} has no "{name}"; give it a number')
    count = row.get("count", 0)
    if not _is_number(count) or count < 0:
        raise _Problem(f'whose subgraph {kind!r} has the "count" {count!r}; it must be a whole number, 0 or more')
    number = row["recompute"]
    if not _is_number(number) or not -1 <= number <= count:
        allowed = f"a whole number from 0 to its count, {count}, or -1 for all"
        raise _Problem(f'whose subgraph {kind!r} has the "recompute" {number!r}; it must be {allowed}')
    return kind, min(number, _MOST)


def _from_text(text: Any) -> tuple[str, int]:
    """Reads what ORTModule writes: "Op1+Op2+:strategy:count"."""
    parts = text.rsplit(":", 2) if isinstance(text, str) else []
    if len(parts) != 3:
        raise _Problem(f'which lists {text!r}; each must be text such as "Op1+Op2+:1:-1": subgraph, strategy, count')
    kind, strategy, number = _kind(parts[0], text), parts[1].strip(), parts[2].strip()
    if strategy not in ("0", "1", "2"):
        raise _Problem(f"which lists {text!r} with the strategy {strategy!r}; it must be 0, 1 or 2")
    if number != "-1" and not (number.isascii() and number.isdigit() and len(number) < 10):
        raise _Problem(f"which lists {text!r} with the count {number!r}; it must be a whole number, 0 or more, or -1 for all")
    return kind, 0 if strategy == "0" else int(number)


def _kind(given: Any, of: Any) -> str:
    parts = [part.strip() for part in given.strip().rstrip("+").split("+")] if isinstance(given, str) else [""]
    if not all(parts):
        raise _Problem(f'which names the subgraph {given!r}, in {of!r}; it must be ops joined by "+", such as "Linear+Tanh"')
    return "+".join(parts)


def _is_number(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
