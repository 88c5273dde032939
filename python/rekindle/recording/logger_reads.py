"""Observes what a forward asks of loggers: state of the process that few forwards depend on, so a key names them only."""

from __future__ import annotations

import logging
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

_OWNER = logging.Filterer  # of loggers and handlers
_METHODS = frozenset(name for name in dir(logging.Logger) if callable(getattr(logging.Logger, name)))


class LoggerReads:
    """Calls `on_read`, while it is entered, with each logger or handler of whose state this thread's code takes an attribute, and
    with the frame that does."""

    def __init__(self, on_read: Callable[[Any, FrameType], None]) -> None:
        self._on_read = on_read

    def __enter__(self) -> LoggerReads:
        thread = threading.get_ident()

        def read(owner: Any, name: str) -> Any:
            if name not in _METHODS and threading.get_ident() == thread:
                self._on_read(owner, sys._getframe(1))
            return object.__getattribute__(owner, name)

        _OWNER.__getattribute__ = read  # type: ignore[method-assign, assignment]
        return self

    def __exit__(self, *_: object) -> None:
        del _OWNER.__getattribute__


def state_of(name: str) -> str:
    """Returns a text of what a logger lets through, and to whom."""
    parts = [
        (one.level, one.disabled, one.propagate, len(one.filters), [type(item).__qualname__ for item in one.handlers])
        for one in chain_of(name)
    ]
    return f"{parts} {logging.root.manager.disable}"


def chain_of(name: str) -> list[logging.Logger]:
    """Returns the logger of a name and those above it."""
    chain: list[logging.Logger] = []
    above: logging.Logger | None = logging.getLogger(None if name == "root" else name)
    while above is not None:
        chain.append(above)
        above = above.parent or _parent_by_name(above)
    return chain


def _parent_by_name(logger: logging.Logger) -> logging.Logger | None:
    """Returns the parent that logging is about to give a logger that it is making; None for the root."""
    name, known = logger.name, logging.root.manager.loggerDict
    while "." in name:
        name = name.rpartition(".")[0]
        if isinstance(above := known.get(name), logging.Logger):
            return above
    return None if logger is logging.root else logging.root
