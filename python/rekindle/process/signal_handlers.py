"""Signal handlers of the user's that Python runs in the middle of an export: as if there were none.

A handler runs in the main thread wherever that is. If it exports, a handler that saves the model would become a part of what
is traced, and what it notes would be put back with what the forward changed. So a stand-in takes the export off the
thread for as long as the handler runs, and tells those who put things back what it has changed.
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

from rekindle.process.process_state import beside, changed
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
    """Puts back what changes."""

    def contents(self) -> Any:
        """All that is watched, as it is now."""

    def adopt(self, before: Any) -> None:
        """What is now another than in `before`, of `contents`, is not put back."""


class _Runs:
    """Handlers that ran in the middle of exports: how often, and who is told. Of the main thread."""

    count = 0

    def __init__(self) -> None:
        self.watchers: list[Watcher] = []


_runs = _Runs()


def count() -> int:
    """How many handlers have run in the middle of an export."""
    return _runs.count


@contextlib.contextmanager
def told(watcher: Watcher) -> Iterator[None]:
    """Within it, `watcher` is told of what handlers change."""
    _runs.watchers.append(watcher)
    try:
        yield
    finally:
        _runs.watchers.remove(watcher)


class StandIn:
    """In the place of a handler while the main thread exports; does what it does."""

    def __init__(self, handler: Callable[[int, FrameType | None], Any]) -> None:
        self._handler, self._grad = handler, torch.is_grad_enabled()
        self._keys = included_keys(), excluded_keys()

    def __call__(self, number: int, frame: FrameType | None) -> Any:
        """As the handler."""
        if not _runs.watchers or threading.current_thread() is not threading.main_thread():
            return self._handler(number, frame)
        _runs.count += 1
        before = [(watcher, watcher.contents()) for watcher in _runs.watchers]
        try:
            with dispatching_by(*self._keys), _off_this_thread(), torch.set_grad_enabled(self._grad):
                return self._handler(number, frame)
        finally:
            for watcher, contents in before:
                watcher.adopt(contents)


@contextlib.contextmanager
def _off_this_thread() -> Iterator[None]:
    """Nothing that an export has turned on in this thread is on."""
    state = tracing_state()
    modes = [pop_function_mode() for _ in range(count_function_modes())]
    try:
        set_tracing_state(None)
        with without_operator_modes(), beside():
            yield
    finally:
        set_tracing_state(state)
        for mode in reversed(modes):
            push_function_mode(mode)


@contextlib.contextmanager
def kept_apart() -> Iterator[None]:
    """Around an export: handlers that run meanwhile see nothing of it."""
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
    """As signal.signal; whether system calls go on after the signal, and who is called first, stays as it is."""
    library = ctypes.CDLL(None)
    action = ctypes.create_string_buffer(_SIZE_OF_ACTION)
    library.sigaction(number, None, action)
    signal.signal(number, handler)
    library.sigaction(number, action, None)
