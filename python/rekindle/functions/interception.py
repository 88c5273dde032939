"""Hands calls of autograd Functions to a handler, however `apply` was looked up; other threads do not notice."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from typing import Any

from torch.autograd.function import _SingleLevelFunction

from rekindle.process.process_state import is_beside, replaced

# Given the Function, the arguments of apply, and what would have run.
Handler = Callable[[type, tuple[Any, ...], Callable[..., Any]], Any]


class _Active(threading.local):
    handler: Handler | None = None


_active = _Active()


def _apply(cls: type, *args: Any, **kwargs: Any) -> Any:
    run = super(_SingleLevelFunction, cls).apply  # type: ignore[misc]
    handler = _active.handler
    return run(*args, **kwargs) if handler is None or kwargs or is_beside() else handler(cls, args, run)


_replacement = classmethod(_apply)


@contextlib.contextmanager
def intercepted(handler: Handler) -> Iterator[None]:
    """Sends the calls of this thread to `handler`."""
    with replaced(_SingleLevelFunction, "apply", _replacement):
        before, _active.handler = _active.handler, handler
        try:
            yield
        finally:
            _active.handler = before
