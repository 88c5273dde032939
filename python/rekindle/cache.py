"""Offers verbs of `rekindle cache` in Python, under their names: ls, stats, pin, unpin, prune, verify, pack, unpack, clear.

Names in results are those of the command's JSON. inspect, explain, extract and doctor are the command's alone; of a call at
hand, rekindle.explain() says why it misses. Each function takes the directory, else the default.
Ids may be shortened as on the command line. Sizes and times are numbers (bytes, seconds) or text ("2GiB", "30d").
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
    """Returns one dict per entry, newest first."""
    return list(_open(cache_dir, True).list())


def stats(cache_dir: Directory = None) -> dict[str, Any]:
    """Returns the counters of all processes that used the directory."""
    return dict(_open(cache_dir, True).stats())


def pin(*ids: str, cache_dir: Directory = None) -> None:
    """Keeps entries: no policy and no size limit removes them."""
    cache = _open(cache_dir, False)
    for id in ids:
        cache.set_pin(id, True)


def unpin(*ids: str, cache_dir: Directory = None) -> None:
    """Lets entries go again."""
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
    """Removes entries by age, use, model, torch version or size; "removed" and "spared" of the result say which and why.

    max_size: bytes that the entries may take; above that the least valuable go
    older_than: removes what was stored longer ago, in seconds
    unused_since: removes what was neither used nor stored for so long, in seconds
    model: only entries of this class of model
    keep_last: spares the newest so many of each model from all other criteria
    not_current_torch: only entries of other versions of torch
    dry_run: says what would go, and removes nothing
    """
    policy = _native.PrunePolicy()
    policy.model = model
    policy.keep_last = keep_last
    policy.not_torch = torch.__version__ if not_current_torch else ""
    policy.max_bytes = _native.parse_size(max_size) if isinstance(max_size, str) else max_size
    policy.older_than = _native.parse_duration(older_than) if isinstance(older_than, str) else older_than
    policy.unused_since = _native.parse_duration(unused_since) if isinstance(unused_since, str) else unused_since
    return dict(_open(cache_dir, dry_run).prune(policy, dry_run))


def verify(cache_dir: Directory = None, *, quick: bool = False, sample: float = 1.0, repair: bool = False) -> dict[str, Any]:
    """Checks the index and the bytes of the entries, or of a `sample` of them; "problems" is empty when all is well.

    quick: checks only the index
    sample: share of the entries, above 0 and up to 1
    repair: drops what is unsound, and writes again what can be derived from the rest
    """
    return dict(_open(cache_dir, not repair).verify(quick, sample, repair))


def pack(output: str | os.PathLike[str], *ids: str, cache_dir: Directory = None) -> int:
    """Writes these entries, or all, to one file; returns how many they were."""
    return int(_open(cache_dir, True).pack(list(ids), os.fspath(output)))


def unpack(bundle: str | os.PathLike[str], cache_dir: Directory = None) -> dict[str, int]:
    """Adds the entries of a packed file; returns how many were "added", "known" before and "unsound"."""
    return dict(_open(cache_dir, False).unpack(os.fspath(bundle)))


def clear(cache_dir: Directory = None) -> None:
    """Removes every entry and counter."""
    _open(cache_dir, False).clear()
