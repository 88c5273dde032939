"""Runs the user's signal handlers in the middle of an export as if there were none.

Python runs a handler in the main thread, wherever that is. If it exports, a handler that saves the model would become a part of
the trace, and what it notes would be put back with what the forward changed. So a stand-in takes the export off the thread for as
long as the handler runs, and tells those who put things back what the handler has changed.
"""

from __future__ import annotations

import contextlib
import ctypes
import signal
import threading
from collections.abc import Callable, Iterator
from types import BuiltinFunctionType, FrameType
from typing import Any, Protocol

import torch

from rekindle.process.process_state import changed, is_beside, set_beside
from rekindle.process.torch_internals import (
    count_function_modes,
    dispatching_by,
    excluded_keys,
    included_keys,
    pop_function_mode,
    push_function_mode,
    set_tracing_state,
    tracing_state,
    without_operator_modes,
)

_SIZE_OF_ACTION = 256  # bytes, more than any system's


class Watcher(Protocol):
    """Puts back what changes during an export."""

    def contents(self) -> Any:
        """Returns all that is watched, as it is now."""

    def adopt(self, before: Any) -> None:
        """Accepts every change since `before`, a result of `contents`: it is not put back."""


class _Runs:
    """Counts the handlers that ran in the middle of exports, and knows who is told of them. Belongs to the main thread."""

    count = 0

    def __init__(self) -> None:
        self.watchers: list[Watcher] = []


_runs = _Runs()


def count() -> int:
    """Returns how many handlers have run in the middle of an export."""
    return _runs.count


@contextlib.contextmanager
def told(watcher: Watcher) -> Iterator[None]:
    """Tells `watcher`, within the block, what handlers change."""
    _runs.watchers.append(watcher)
    try:
        yield
    finally:
        _runs.watchers.remove(watcher)


class StandIn:
    """Stands in the place of a handler while the main thread exports, and does what the handler does."""

    def __init__(self, handler: Callable[[int, FrameType | None], Any]) -> None:
        self._handler, self._grad = handler, torch.is_grad_enabled()
        self._keys = included_keys(), excluded_keys()

    def __call__(self, number: int, frame: FrameType | None) -> Any:
        """Calls the handler; in the middle of an export, off this thread's export."""
        is_within = is_beside()  # of a handler that this signal interrupts, and that has turned everything off
        if not _runs.watchers or is_within or threading.current_thread() is not threading.main_thread():
            return self._handler(number, frame)
        _runs.count += 1
        before = [(watcher, watcher.contents()) for watcher in _runs.watchers]
        try:
            with dispatching_by(*self._keys), torch.set_grad_enabled(self._grad):
                return _off_this_thread(lambda: self._handler(number, frame))
        finally:
            for watcher, contents in before:
                watcher.adopt(contents)


def _off_this_thread(run: Callable[[], Any]) -> Any:
    """Returns what `run` does with all off that an export has turned on in this thread.

    Another signal may interrupt this anywhere, and its handler raise: what a context manager does on its way in would stay.
    """
    state, modes = tracing_state(), list[Any]()
    try:
        set_beside(True)
        while count_function_modes():
            modes.append(pop_function_mode())
        set_tracing_state(None)
        with without_operator_modes():
            return run()
    finally:
        try:
            set_tracing_state(state)
            for mode in reversed(modes):
                push_function_mode(mode)
        finally:
            set_beside(False)


@contextlib.contextmanager
def kept_apart() -> Iterator[None]:
    """Hides the export that runs in the block from handlers that run meanwhile."""
    with contextlib.ExitStack() as stack:
        if threading.current_thread() is threading.main_thread():
            for number in signal.valid_signals():
                handler = signal.getsignal(number)
                if callable(handler) and not isinstance(handler, BuiltinFunctionType | StandIn):
                    stack.enter_context(_replaced(number, handler))
        yield


@contextlib.contextmanager
def _replaced(number: int, handler: Any) -> Iterator[None]:
    stand_in = StandIn(handler)

    def undo() -> None:
        if signal.getsignal(number) is stand_in:
            _set(number, handler)

    with changed(undo):
        _set(number, stand_in)
        yield


def _set(number: int, handler: Any) -> None:
    """Sets a handler as signal.signal does.

    It stays as it is whether system calls go on after the signal, and who is called first.
    """
    library = ctypes.CDLL(None)
    action = ctypes.create_string_buffer(_SIZE_OF_ACTION)
    library.sigaction(number, None, action)
    signal.signal(number, handler)
    library.sigaction(number, action, None)
