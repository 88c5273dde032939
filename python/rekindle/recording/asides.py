"""Recognizes code that runs in the midst of a forward, but not for it: of signals, imports and the garbage collector.

So does what works out the answer to a question that is observed: recording/queries.py.
"""

from __future__ import annotations

import contextlib
import gc
import types
from collections.abc import Collection, Iterator

from rekindle.key.values.names import codes_of
from rekindle.process.process_state import changed
from rekindle.process.signal_handlers import StandIn


class Asides:
    """Recognizes code that runs aside, as long as `watched` is entered.

    outside: identities of the frames that the forward runs in
    """

    def __init__(self, outside: Collection[int]) -> None:
        self._outside = outside
        self._codes = {id(code) for callback in (*gc.callbacks, StandIn.__call__) for code in codes_of(callback)}
        self._collects = False

    def add(self, code: types.CodeType) -> None:
        """Lets all that `code` runs from now on be aside: its result is observed as a whole."""
        self._codes.add(id(code))

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Hears of the garbage collector, of whatever thread, while the body runs."""
        with changed(lambda: gc.callbacks.remove(self._on_collection)):
            gc.callbacks.append(self._on_collection)
            yield

    def _on_collection(self, phase: str, _: dict[str, int]) -> None:
        self._collects = phase == "start"

    def has(self, frame: types.FrameType | None) -> bool:
        """Tells whether the frame runs for a signal, an import or the garbage collector, which may come anywhere. A `__del__`
        that runs because the forward let go of its object belongs to the forward."""
        while frame is not None and id(frame) not in self._outside:
            code = frame.f_code
            if (code.co_name == "__del__" and self._collects) or id(code) in self._codes:
                return True
            if code.co_filename.startswith("<frozen importlib"):
                return True  # a module loaded by the forward is observed by its file
            frame = frame.f_back
        return False
