"""Holds an entry of the cache, as sessions are made from it."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from rekindle import _native


class InvalidEntry(ValueError):
    """Says that an entry is none that an export makes."""


@dataclass(frozen=True)
class EntryMeta:
    """Describes an entry, for commands and messages."""

    model: str  # as a person names it
    class_name: str  # the qualified class of the module: what entries of one model have in common; "class" in the cache
    mode: str  # "train" or "eval", and more as of NewEntry; "eager" for a refusal
    inputs: str  # dtypes and shapes of the call that was exported
    created: int  # seconds since 1970
    export_seconds: float
    cost_seconds: float  # all that a hit spares
    torch: str  # its version
    rekindle: str  # its version

    def text(self) -> str:
        """Returns it as the cache keeps it: JSON, whose fields the command reads, too (cli)."""
        return json.dumps({_KEYS.get(name, name): value for name, value in asdict(self).items()})

    @classmethod
    def parse(cls, text: str | bytes) -> EntryMeta:
        """Returns what such a text says; raises InvalidEntry for another text."""
        try:
            found = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise InvalidEntry(f"its description is no JSON: {error}") from error
        if type(found) is not dict:
            raise InvalidEntry("its description is no object")
        values = {}
        for one in fields(cls):
            value = found.get(key := _KEYS.get(one.name, one.name))
            if type(value) not in _TYPES[str(one.type)]:
                raise InvalidEntry(f"its description has no {key}")
            values[one.name] = value
        return cls(**values)


_KEYS = {"class_name": "class"}
_TYPES: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (int, float)}


@dataclass(frozen=True)
class StoredEntry:
    """Holds an entry in memory, from the cache or from an export."""

    id: str  # empty until it is published
    observations: list[Any] = field(repr=False)  # what has to hold, beside the key, for the entry to be right
    sections: dict[str, bytes] = field(repr=False)  # "joint", "contract" and more, or "refusal"; see docs/entry-format.md
    meta: EntryMeta = field(repr=False)
    # Makes the LeafTree that explains it; an empty one for an entry that this process did not export.
    leaves: Callable[[], Any] = field(default=_native.LeafTree, repr=False)
    source: str = "local"  # or "remote": a tier behind the cache's directory told of it

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
        return float(self.meta.cost_seconds)

    @property
    def bytes(self) -> int:
        """Returns the size of all sections, in bytes."""
        return sum(map(len, self.sections.values()))
