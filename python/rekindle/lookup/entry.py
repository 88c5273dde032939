"""An entry of the cache, as the session layer reads it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rekindle import _native


@dataclass(frozen=True)
class StoredEntry:
    """An entry in memory."""

    id: str  # empty until it is published
    observations: list[Any] = field(repr=False)  # what has to hold, beside the key, for the entry to be right
    sections: dict[str, bytes] = field(repr=False)  # "joint", "contract" and more; see export_cache/formats/entry.h
    meta: dict[str, Any] = field(repr=False)  # describes it
    # Makes the LeafTree that explains it; empty for one that comes from somewhere else.
    leaves: Callable[[], Any] = field(default=_native.LeafTree, repr=False)

    @property
    def joint(self) -> bytes:
        """The differentiated graph."""
        return self.sections["joint"]

    @functools.cached_property
    def contract(self) -> _native.Contract:
        """How a call and the graph correspond. Raises RekindleError for a section that no export makes."""
        return _native.Contract.parse(self.sections["contract"])

    @property
    def cost_seconds(self) -> float:
        """What a hit spares."""
        return float(self.meta["cost_seconds"])

    @property
    def bytes(self) -> int:
        """Of all sections."""
        return sum(map(len, self.sections.values()))
