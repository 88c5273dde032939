"""Holds an entry of the cache, as sessions are made from it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rekindle import _native


@dataclass(frozen=True)
class StoredEntry:
    """Holds an entry in memory, from the cache or from an export."""

    id: str  # empty until it is published
    observations: list[Any] = field(repr=False)  # what has to hold, beside the key, for the entry to be right
    sections: dict[str, bytes] = field(repr=False)  # "joint", "contract" and more; see export_cache/formats/entry.h
    meta: dict[str, Any] = field(repr=False)  # describes it: _meta of lookup/store.py, and "class"
    # Makes the LeafTree that explains it; an empty one for an entry that this process did not export.
    leaves: Callable[[], Any] = field(default=_native.LeafTree, repr=False)

    @property
    def joint(self) -> bytes:
        """Returns the joint graph, serialized."""
        return self.sections["joint"]

    @functools.cached_property
    def contract(self) -> _native.Contract:
        """Says how a call and the graph correspond. Raises RekindleError for a section that no export makes."""
        return _native.Contract.parse(self.sections["contract"])

    @property
    def cost_seconds(self) -> float:
        """Returns the seconds that a hit spares."""
        return float(self.meta["cost_seconds"])

    @property
    def bytes(self) -> int:
        """Returns the size of all sections, in bytes."""
        return sum(map(len, self.sections.values()))
