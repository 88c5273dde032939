"""The CLI's verbs from Python: rekindle.cache.stats(), .ls(), .clear(). Each takes the directory, else the default."""

from __future__ import annotations

import os
from typing import Any

from rekindle import _native
from rekindle.store import flush


def _open(cache_dir: str | os.PathLike[str] | None, readonly: bool) -> Any:
    flush()
    return _native.ExportCache(os.fspath(cache_dir) if cache_dir is not None else "", readonly)


def ls(cache_dir: str | os.PathLike[str] | None = None) -> list[dict[str, Any]]:
    """One dict per entry, newest first."""
    return list(_open(cache_dir, True).list())


def stats(cache_dir: str | os.PathLike[str] | None = None) -> dict[str, Any]:
    """Counters of all processes that used the directory."""
    return dict(_open(cache_dir, True).stats())


def clear(cache_dir: str | os.PathLike[str] | None = None) -> None:
    """Remove every entry and counter."""
    _open(cache_dir, False).clear()
