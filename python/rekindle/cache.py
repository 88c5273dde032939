"""The CLI's verbs from Python, with the same names and the JSON's. Each takes the directory, else the default.

Ids may be shortened as on the command line; sizes and times are numbers (bytes, seconds) or text ("2GiB", "30d").
What fails raises a RekindleError that says what to do.
"""

from __future__ import annotations

import os
from typing import Any

import torch

from rekindle import _native
from rekindle.lookup.store import flush

Directory = str | os.PathLike[str] | None


def _open(cache_dir: Directory, readonly: bool) -> Any:
    flush()
    return _native.ExportCache(os.fspath(cache_dir) if cache_dir is not None else "", readonly)


def ls(cache_dir: Directory = None) -> list[dict[str, Any]]:
    """One dict per entry, newest first."""
    return list(_open(cache_dir, True).list())


def stats(cache_dir: Directory = None) -> dict[str, Any]:
    """Counters of all processes that used the directory."""
    return dict(_open(cache_dir, True).stats())


def pin(*ids: str, cache_dir: Directory = None) -> None:
    """Keep entries: no policy and no size limit removes them."""
    cache = _open(cache_dir, False)
    for id in ids:
        cache.set_pin(id, True)


def unpin(*ids: str, cache_dir: Directory = None) -> None:
    """Let entries go again."""
    cache = _open(cache_dir, False)
    for id in ids:
        cache.set_pin(id, False)


def prune(
    cache_dir: Directory = None,
    *,
    max_size: int | str | None = None,
    older_than: int | str | None = None,
    unused_since: int | str | None = None,
    model: str = "",
    keep_last: int | None = None,
    not_current_torch: bool = False,
    dry_run: bool = False,
) -> dict[str, Any]:
    """Remove entries by age, use, model, torch version or size; "removed" and "spared" say which and why."""
    policy = _native.PrunePolicy()
    policy.model = model
    policy.keep_last = keep_last
    policy.not_torch = torch.__version__ if not_current_torch else ""
    policy.max_bytes = _native.parse_size(max_size) if isinstance(max_size, str) else max_size
    policy.older_than = _native.parse_duration(older_than) if isinstance(older_than, str) else older_than
    policy.unused_since = _native.parse_duration(unused_since) if isinstance(unused_since, str) else unused_since
    return dict(_open(cache_dir, dry_run).prune(policy, dry_run))


def verify(cache_dir: Directory = None, *, quick: bool = False, sample: float = 1.0, repair: bool = False) -> dict[str, Any]:
    """Check the index and the bytes of the entries, or of a `sample` of them; "problems" is empty when all is well."""
    return dict(_open(cache_dir, not repair).verify(quick, sample, repair))


def pack(output: str | os.PathLike[str], *ids: str, cache_dir: Directory = None) -> int:
    """Write these entries, or all, to one file; how many they were."""
    return int(_open(cache_dir, True).pack(list(ids), os.fspath(output)))


def unpack(bundle: str | os.PathLike[str], cache_dir: Directory = None) -> dict[str, int]:
    """Add the entries of a packed file."""
    return dict(_open(cache_dir, False).unpack(os.fspath(bundle)))


def clear(cache_dir: Directory = None) -> None:
    """Remove every entry and counter."""
    _open(cache_dir, False).clear()
