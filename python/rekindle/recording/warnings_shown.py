"""Tells the warnings and log lines of a recorded forward, which its user would be shown, from those of the exporter.

Filters are exchanged without a word to Python, which would forget what it has shown: eager, which then runs, would show it again.
What a recorded forward shows is forgotten, for eager is to show it.
"""

from __future__ import annotations

import contextlib
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch

from rekindle.process.process_state import changed, in_this_thread, owned, replaced

_OF_TRACES = ("always", None, torch.jit.TracerWarning, None, 0)
_ALL_ELSE = ("ignore", None, Warning, None, 0)


_of_the_user: list[list[Any]] = []  # those that bodies below have put aside, the outermost first


def filters_now() -> list[Any]:
    """Returns the filters that the user has for warnings, in order."""
    return list(_of_the_user[0] if _of_the_user else warnings.filters)


@contextlib.contextmanager
def as_their_user_has_them(filters: list[Any], on_change: Callable[[], None]) -> Iterator[None]:
    """Lets warnings of the body pass these filters; the tracer's, which are findings, pass any.

    Filters that a module imported meanwhile adds for its own warnings stay.

    on_change: called if the body leaves other filters
    """
    ours, loaded = [_OF_TRACES, *filters], frozenset(sys.modules)
    with _filtered(ours):
        yield
        of_imports = [one for one in warnings.filters if one not in ours and one[2].__module__ not in loaded]
        if [one for one in warnings.filters if one not in of_imports] != ours:
            on_change()
        for kept in _of_the_user:
            kept[:0] = of_imports


@contextlib.contextmanager
def of_traces() -> Iterator[list[warnings.WarningMessage]]:
    """Shows nobody the warnings of the body; gives the tracer's, and those of a forward that its user would be shown."""
    found: list[warnings.WarningMessage] = []
    with _filtered([_OF_TRACES, _ALL_ELSE]), _shown_by(found.append):
        try:
            yield found
        finally:
            for warning in found:
                _forget(warning)


@contextlib.contextmanager
def not_shown() -> Iterator[None]:
    """Shows nobody the warnings of the body, nor what it logs: of runs that eager would not make."""
    with _filtered([_ALL_ELSE]), not_logged():
        yield


@contextlib.contextmanager
def not_logged() -> Iterator[None]:
    """Keeps what this thread logs in the body from all handlers."""
    theirs = logging.Logger.handle
    with replaced(logging.Logger, "handle", in_this_thread(lambda logger, record: None, theirs)):
        yield


@contextlib.contextmanager
def _filtered(filters: list[Any]) -> Iterator[None]:
    kept, before = warnings.filters, list(warnings.filters)

    def undo() -> None:
        _of_the_user.pop()
        kept[:] = before  # type: ignore[index]

    with owned():
        kept[:] = filters  # type: ignore[index]
        _of_the_user.append(before)
        with changed(undo):
            yield


@contextlib.contextmanager
def _shown_by(show: Callable[[warnings.WarningMessage], None]) -> Iterator[None]:
    theirs = warnings._showwarnmsg  # type: ignore[attr-defined]
    with replaced(warnings, "_showwarnmsg", in_this_thread(show, theirs)):
        yield


def _forget(warning: warnings.WarningMessage) -> None:
    """Lets Python show a warning again: where it was given, and as one of all."""
    text = str(warning.message)
    warnings.onceregistry.pop((text, warning.category), None)  # type: ignore[attr-defined]
    for module in list(sys.modules.values()):
        registry = getattr(module, "__dict__", {}).get("__warningregistry__")
        if isinstance(registry, dict):
            for place in ((warning.lineno,), (0,), ()):  # under these filters: default, once and module
                registry.pop((text, warning.category, *place), None)
