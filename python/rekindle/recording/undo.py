"""Puts back what an export's runs of the user's code change: that code runs once more for the call itself."""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
import sys
import types
from collections.abc import Iterable, Iterator
from typing import Any

from rekindle.key.code.module_names import read_names
from rekindle.key.fingerprint import Fingerprint
from rekindle.key.values.cached_answers import ANSWERS
from rekindle.key.values.cells import ABSENT, BINDING, CLASS, FUNCTION, OBJECT, Cells
from rekindle.key.values.classes import walk_members
from rekindle.key.values.walker import Walker
from rekindle.process.origin import is_covered_class, is_heap_class
from rekindle.process.process_state import unpatched
from rekindle.process.signal_handlers import told
from rekindle.reasons import Bypass, Reason
from rekindle.recording import cached_functions
from rekindle.recording.shared_writes import SharedTensors

# Made, as it would be anyway, by who asks for it first; see queries.py for what it holds.
_MADE_WHEN_READ = "decimal_context"


@contextlib.contextmanager
def _own_context(changed: list[str]) -> Iterator[None]:
    """Leaves context variables, after the body, as they were before it, unset if they were.

    changed: gets what the body left otherwise, whose ever it is: NumPy keeps in one what it does about errors
    """
    before = contextvars.copy_context()
    copy = ctypes.py_object(contextvars.copy_context())
    ctypes.pythonapi.PyContext_Enter(copy)
    try:
        yield
        now = contextvars.copy_context()
        for variable in {*before, *now}:
            is_made = variable.name == _MADE_WHEN_READ and variable not in before
            if before.get(variable, ABSENT) is not now.get(variable, ABSENT) and not is_made:
                changed.append(f"context variable {variable.name}")
    finally:
        ctypes.pythonapi.PyContext_Exit(copy)


class Undo:
    """Keeps the state that a fingerprint, and walks of a recorder, met, as it was when they met it; puts back only what changed.
    Not thread-safe."""

    def __init__(self, fingerprint: Fingerprint) -> None:
        self._kept: dict[Any, tuple[Any, Any, Cells]] = {}
        self._shared = SharedTensors()
        self._keep_parts(fingerprint, fingerprint.classes)
        self._keep((tensor, OBJECT) for tensor in fingerprint.inputs)

    def keep_walk(self, walk: Walker) -> None:
        """Keeps all that a walk met."""
        self._keep_parts(walk, walk.classes.values())

    def keep_name(self, module: str, name: str) -> None:
        """Keeps what a name stands for in a module, and the classes on the way to the end of a chain of attributes."""
        loaded = sys.modules.get(module)
        namespace = read_names(loaded) if isinstance(loaded, types.ModuleType) else None
        first, *rest = name.split(".")
        if not isinstance(namespace, dict):
            return
        place = (id(namespace), first)
        if place not in self._kept:
            self._kept[place] = ((namespace, first), (unpatched(namespace.get(first, ABSENT)),), BINDING)
        value = namespace.get(first)
        for attribute in [*rest, ""]:
            if isinstance(value, type):
                self._keep_class(value)
            value = getattr(value, "__dict__", {}).get(attribute)

    def keep_answers(self) -> None:
        """Keeps what cached functions have answered by now: it is to stay."""
        for place, (value, _, cells) in self._kept.items():
            if cells is ANSWERS:
                self._kept[place] = (value, cells.take(value), cells)

    @contextlib.contextmanager
    def around(self) -> Iterator[None]:
        """Puts everything back when the body ends.

        Raises Bypass(state_mutated) if anything had changed, unless the body raised.
        """
        changed: list[str] = []
        with _own_context(changed):
            try:
                with told(self):
                    yield
            finally:
                changed += self._put_back()
        if changed:
            raise Bypass(Reason.STATE_MUTATED, f"the forward changes {changed[0]}; keep state in buffers")

    def contents(self) -> dict[Any, Any]:
        """Returns all that is kept, as it is now; as of signal_handlers.Watcher."""
        return {place: cells.take(value) for place, (value, _, cells) in self._kept.items()}

    def adopt(self, before: dict[Any, Any]) -> None:
        """Keeps, from now on, what is another than in `before`, of `contents`, as it is now; as of signal_handlers.Watcher."""
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
            if (id(base), id(CLASS)) in self._kept or not is_heap_class(base) or is_covered_class(base):
                continue
            self._keep([(base, CLASS)])
            members = walk_members(base)
            self._keep(members.cells)
            self._keep((function, FUNCTION) for function in members.functions)

    def _keep(self, cells: Iterable[tuple[Any, Cells]]) -> None:
        for value, one in cells:
            place = (id(value), id(one))
            if place not in self._kept and one.put_back is not None:
                kept = self._shared.cells_of(value, one)
                self._kept[place] = (value, kept.take(value), kept)

    def _put_back(self) -> list[str]:
        """Puts back what changed, and returns what had changed, in words."""
        changed = []
        for value, before, cells in self._kept.values():
            now = cells.take(value)
            if not cells.same(now, before):
                if cells.is_effect(before, now) and not (cells is ANSWERS and cached_functions.is_of_a_library(value)):
                    changed.append(cells.title(value, before))
                assert cells.put_back is not None
                cells.put_back(value, before)
        return changed
