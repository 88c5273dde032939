"""What an export's runs of the user's code change, put back: that code runs once more for the call itself."""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
import sys
from collections.abc import Iterable, Iterator
from typing import Any

from rekindle.fingerprint import Fingerprint
from rekindle.fingerprint.cells import ABSENT, BINDING, CLASS, FUNCTION, OBJECT, Cells
from rekindle.fingerprint.classes import walk_members
from rekindle.fingerprint.origin import is_covered_class
from rekindle.fingerprint.values import Walker
from rekindle.reasons import Bypass, Reason
from rekindle.signal_handlers import told

_HEAP_TYPE = 1 << 9


@contextlib.contextmanager
def _own_context() -> Iterator[None]:
    """Context variables that are set in here are afterwards as they were, unset if they were."""
    copy = ctypes.py_object(contextvars.copy_context())
    ctypes.pythonapi.PyContext_Enter(copy)
    try:
        yield
    finally:
        ctypes.pythonapi.PyContext_Exit(copy)


class Undo:
    """The state that a fingerprint, and walks of a recorder, met, as it was when they met it. Only what changed is put back.
    Not thread-safe.
    """

    def __init__(self, fingerprint: Fingerprint) -> None:
        self._kept: dict[Any, tuple[Any, Any, Cells]] = {}
        self._keep_parts(fingerprint, fingerprint.classes)
        self._keep((tensor, OBJECT) for tensor in fingerprint.inputs)

    def keep_walk(self, walk: Walker) -> None:
        """All that a walk met."""
        self._keep_parts(walk, walk.classes.values())

    def keep_name(self, module: str, name: str) -> None:
        """What a name stands for in a module, and the classes on the way to the end of a chain of attributes."""
        namespace = vars(sys.modules.get(module, object))
        first, *rest = name.split(".")
        if not isinstance(namespace, dict):
            return
        place = (id(namespace), first)
        if place not in self._kept:
            self._kept[place] = ((namespace, first), (namespace.get(first, ABSENT),), BINDING)
        value = namespace.get(first)
        for attribute in [*rest, ""]:
            if isinstance(value, type):
                self._keep_class(value)
            value = getattr(value, "__dict__", {}).get(attribute)

    @contextlib.contextmanager
    def around(self) -> Iterator[None]:
        """Put everything back at the end. Raises Bypass(state_mutated) if anything had changed, unless the body raised."""
        with _own_context():
            try:
                with told(self):
                    yield
            finally:
                changed = self._put_back()
        if changed is not None:
            raise Bypass(Reason.STATE_MUTATED, f"the forward changes {changed}; keep state in buffers")

    def contents(self) -> dict[Any, Any]:
        """As of signal_handlers.Watcher."""
        return {place: cells.take(value) for place, (value, _, cells) in self._kept.items()}

    def adopt(self, before: dict[Any, Any]) -> None:
        """As of signal_handlers.Watcher."""
        for place, contents in before.items():
            value, _, cells = self._kept[place]
            if not cells.same(now := cells.take(value), contents):
                self._kept[place] = (value, now, cells)

    def _keep_parts(self, found: Walker | Fingerprint, classes: Iterable[type]) -> None:
        self._keep(found.cells)
        self._keep((function, FUNCTION) for function in found.functions)
        for cls in classes:
            self._keep_class(cls)

    def _keep_class(self, cls: type) -> None:
        for base in cls.__mro__:
            if (id(base), id(CLASS)) in self._kept or not base.__flags__ & _HEAP_TYPE or is_covered_class(base):
                continue
            self._keep([(base, CLASS)])
            members = walk_members(base)
            self._keep(members.cells)
            self._keep((function, FUNCTION) for function in members.functions)

    def _keep(self, cells: Iterable[tuple[Any, Cells]]) -> None:
        for value, one in cells:
            place = (id(value), id(one))
            if place not in self._kept and one.put_back is not None:
                self._kept[place] = (value, one.take(value), one)

    def _put_back(self) -> str | None:
        """Returns what had changed first, in words."""
        changed = None
        for value, before, cells in self._kept.values():
            if not cells.same(cells.take(value), before):
                changed = changed or cells.title(value, before)
                assert cells.put_back is not None
                cells.put_back(value, before)
        return changed
