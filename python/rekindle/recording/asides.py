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

_IMPORT_SYSTEM = "<frozen importlib._bootstrap"


def _import_steps(frame: types.FrameType | None) -> tuple[set[str], types.FrameType | None]:
    """Returns the names of the import system's frames from this one on, and the frame that has called them."""
    steps: set[str] = set()
    while frame is not None and frame.f_code.co_filename.startswith(_IMPORT_SYSTEM):
        steps.add(frame.f_code.co_name)
        frame = frame.f_back
    return steps, frame


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
            if code.co_filename.startswith(_IMPORT_SYSTEM):
                steps, frame = _import_steps(frame)
                if "exec_module" not in steps or "_find_and_load" in steps:
                    return True  # a module that the forward loads is observed by its file; one that it runs itself is not
            else:
                frame = frame.f_back
        return False
