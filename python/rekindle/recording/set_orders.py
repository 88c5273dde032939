"""Notes the order in which a forward takes the items of sets, which differs from process to process."""

from __future__ import annotations

import sys
import types
from typing import Any

from rekindle.process import world
from rekindle.process.origin import Origin
from rekindle.recording.asides import Asides
from rekindle.recording.frames import beyond, is_pure_library, is_user
from rekindle.recording.notes import Notes


class SetOrders:
    """Is told of sets whose items are taken one after another, and notes the order of those that user code takes."""

    def __init__(self, notes: Notes, asides: Asides) -> None:
        self._notes, self._asides = notes, asides

    def on_list(self, items: Any, frame: types.FrameType) -> None:
        """Handles what is unpacked into a list."""
        if isinstance(items, (set, frozenset)) and len(items) > 1:
            self.on_order(items, frame)

    def on_order(self, items: Any, frame: types.FrameType | None = None) -> None:
        """Handles a set whose items are taken one after another, by the code of `frame` or, without one, of the caller."""
        frame = frame or sys._getframe(1)
        if self._asides.has(frame):
            return
        asking = beyond(frame, (Origin.STDLIB,))
        name = world.order_name(items)
        if name is not None and asking is not None and is_user(asking) and not is_pure_library(asking):
            self._notes.add(("order", "sets", name))
