"""One random corruption of one random file of a cache directory."""

from __future__ import annotations

import pathlib
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass

PAGE = 4096


@dataclass
class Corruption:
    """What was done. place: the first part of the file's path. most_lost: how many entries' own bytes it can have hit."""

    kind: str
    files: list[str]
    place: str
    most_lost: int
    removes: bool

    def __str__(self) -> str:
        return f"{self.kind} {' '.join(self.files)}"


def _flip(path: pathlib.Path, _: pathlib.Path, choose: random.Random) -> None:
    data = bytearray(path.read_bytes())
    for _i in range(choose.choice((1, 1, 1, 16))):
        if data:
            data[choose.randrange(len(data))] ^= 1 << choose.randrange(8)
    path.write_bytes(data)


def _truncate(path: pathlib.Path, _: pathlib.Path, choose: random.Random) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: choose.randrange(len(data) + 1)])


def _zero_page(path: pathlib.Path, _: pathlib.Path, choose: random.Random) -> None:
    data = bytearray(path.read_bytes())
    start = choose.randrange(max(1, len(data))) // PAGE * PAGE
    data[start : start + PAGE] = bytes(len(data[start : start + PAGE]))
    path.write_bytes(data)


def _swap(path: pathlib.Path, other: pathlib.Path, _: random.Random) -> None:
    a, b = path.read_bytes(), other.read_bytes()
    path.write_bytes(b)
    other.write_bytes(a)


def _remove(path: pathlib.Path, _: pathlib.Path, __: random.Random) -> None:
    path.unlink()


def _duplicate(path: pathlib.Path, other: pathlib.Path, _: random.Random) -> None:
    other.write_bytes(path.read_bytes())


def _grow(path: pathlib.Path, _: pathlib.Path, choose: random.Random) -> None:
    with path.open("ab") as file:
        file.write(choose.randbytes(choose.choice((1, 100, 10_000))))


def _replace_by_directory(path: pathlib.Path, _: pathlib.Path, __: random.Random) -> None:
    path.unlink()
    path.mkdir()


def _remove_folder(path: pathlib.Path, _: pathlib.Path, __: random.Random) -> None:
    shutil.rmtree(path.parent) if path.parent.name in ("db", "journal", "misses") else path.unlink()


KINDS: dict[str, Callable[[pathlib.Path, pathlib.Path, random.Random], None]] = {
    "flip": _flip,
    "truncate": _truncate,
    "zero page of": _zero_page,
    "swap": _swap,
    "remove": _remove,
    "duplicate": _duplicate,
    "grow": _grow,
    "directory instead of": _replace_by_directory,
    "remove folder of": _remove_folder,
}
_TWO_FILES = {"swap": 2, "duplicate": 2}


def corrupt(directory: pathlib.Path, choose: random.Random) -> Corruption:
    """Places have equal chances, whatever number of files they hold; so have the kinds."""
    files: dict[str, list[pathlib.Path]] = {}
    for path in sorted(directory.rglob("*")):
        if path.is_file():
            files.setdefault(path.relative_to(directory).parts[0], []).append(path)
    place = choose.choice(sorted(files))
    # A directory in the place of the lock is no damage of bytes: stores say so until somebody removes it.
    kind = choose.choice(sorted(KINDS.keys() - ({"directory instead of"} if place == "rekindle.lock" else set())))
    path, other = choose.choice(files[place]), choose.choice(files[place])
    KINDS[kind](path, other, choose)
    touched = [path, other] if kind in _TWO_FILES else [path]
    hit = {name.name for name in touched if place == "objects"}
    removes = kind in ("remove", "remove folder of", "directory instead of")
    return Corruption(kind, [str(p.relative_to(directory)) for p in touched], place, len(hit), removes)
