"""Tells which build of a shared library is loaded, by its ELF build-id, which every rebuild changes."""

from __future__ import annotations

import functools
import struct
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import BinaryIO

from rekindle.process.digest import digest128

_PT_NOTE = 4
_NT_GNU_BUILD_ID = 3


@functools.cache
def build_id(path: str) -> str | None:
    """Returns the build-id of a file in hexadecimal, or a digest of the file where it has none; None if it cannot be read.

    A file that was mapped stays the one that was read first, so the answer is kept.
    """
    try:
        with open(path, "rb") as file:
            found = _gnu_build_id(file)
        return found or digest128(Path(path).read_bytes())
    except OSError:
        return None


def build_of(module: str | None) -> str:
    """Returns ` of build <id>` for an extension module; an empty text for Python code and for what a version stands for."""
    root = (module or "").partition(".")[0]
    if not root or root in sys.stdlib_module_names or root in ("torch", "numpy"):
        return ""
    file = getattr(sys.modules.get(str(module)), "__file__", None)
    if not isinstance(file, str) or not file.endswith(tuple(EXTENSION_SUFFIXES)):
        return ""
    return f" of build {build_id(file)}"


def _gnu_build_id(file: BinaryIO) -> str | None:
    header = file.read(64)
    if header[:6] != b"\x7fELF\x02\x01":  # 64 bits, little endian
        return None
    (table,) = struct.unpack_from("<Q", header, 32)
    size, count = struct.unpack_from("<HH", header, 54)
    file.seek(table)
    for entry in struct.iter_unpack(f"<{size}s", file.read(size * count)):
        kind, _, offset, _, _, length = struct.unpack_from("<IIQQQQ", entry[0])
        if kind == _PT_NOTE:
            file.seek(offset)
            found = _in_notes(file.read(length))
            if found is not None:
                return found
    return None


def _in_notes(notes: bytes) -> str | None:
    at = 0
    while at + 12 <= len(notes):
        name_size, size, kind = struct.unpack_from("<III", notes, at)
        start = at + 12 + (name_size + 3 & ~3)
        if kind == _NT_GNU_BUILD_ID and notes[at + 12 : at + 12 + name_size] == b"GNU\0":
            return notes[start : start + size].hex()
        at = start + (size + 3 & ~3)
    return None
