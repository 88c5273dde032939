"""Finds the objects that are in several places of a key, for a key says of values what they are, not which ones.

Two objects that are equal read alike in a key. A forward can tell them apart: by `is`, or where they are items of a set or keys
of a dict and have no equality of their own. What it is answered depends on which places have one and the same object.

For example, `SUM, MEAN = object(), object()` in the user's module `app` read alike. After `self.mode = SUM`, a forward that asks
`self.mode is SUM` has an object in two places, as text:

    app.SUM model.mode

Once the mode is MEAN there is none, or another one for a forward that reads MEAN as well.
"""

from __future__ import annotations

import enum
import types
from collections.abc import Iterable, Iterator
from typing import Any

from rekindle.key.values.classes import owners, walked_members
from rekindle.key.values.walker import Walker, label
from rekindle.process.digest import digest128
from rekindle.process.origin import is_covered_class, is_heap_class

_LONGEST_TEXT = 400


class Places:
    """Collects the places of objects, by identity; keeps the objects alive. Walks of classes are those of the pass, if one is on.

    beneath: further places, to which nothing is added
    """

    def __init__(self, beneath: Places | None = None) -> None:
        self._beneath = beneath
        self._first: dict[int, tuple[str, Any]] = {}  # (path, object)
        self._several: dict[int, set[str]] = {}  # paths of objects that are in several places
        self._owners: set[int] = set()  # classes and modules whose members were added

    def add(self, walk: Walker) -> None:
        """Adds what a walk met, and what the members of the user's classes lead to that it met."""
        for path, value in places_in(walk):
            self._add(path, value)
        for owner in users_among(walk.classes.values()):
            if id(owner) not in self._owners:
                self._owners.add(id(owner))
                for path, value in places_in(walked_members(owner), owner):
                    self._add(path, value)

    def _add(self, path: str, value: Any) -> None:
        if isinstance(value, enum.Enum):  # whose text says which one it is
            return
        key = id(value)
        known = self._paths(key)
        if known and path not in known:
            self._several[key] = {*known, path}
        self._first.setdefault(key, (path, value))

    def _paths(self, key: int) -> set[str] | None:
        """Returns the paths by which an object is known so far; None if it is not."""
        found = self._several.get(key)
        if found is None:
            first = self._first.get(key)
            found = {first[0]} if first is not None else self._beneath and self._beneath._paths(key)
        return found

    def text(self) -> str | None:
        """Returns one line for the objects that are in several places, one of them added here; None where there are none."""
        text = "; ".join(sorted(" ".join(sorted(paths)) for paths in self._several.values()))
        return (text if len(text) <= _LONGEST_TEXT else digest128(text.encode("utf-8", "surrogatepass"))) or None


def places_in(walk: Walker, owner: Any = None) -> Iterator[tuple[str, Any]]:
    """Yields (path, object) of what a walk met by identity; `owner`: the class or module whose members were walked, if any."""
    prefix = "" if owner is None else f"{owner.__name__ if isinstance(owner, types.ModuleType) else label(owner)}."
    for path, value in walk.met.values():
        yield f"{prefix}{path}", value
    for text, met in walk.met_in_sets:
        for path, value in met.values():
            yield f"{prefix}{path} {text}", value


def users_among(classes: Iterable[type]) -> Iterator[Any]:
    """Yields the classes and modules that the digests of classes cover and that may hold what is the user's, also twice."""
    for cls in classes:
        for owner in owners(cls):
            if not isinstance(owner, type) or (is_heap_class(owner) and not is_covered_class(owner)):
                yield owner
