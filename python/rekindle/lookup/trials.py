"""Bounds the time that a module's exports take after the first ones: where they do not pay, a process is to train.

An example: a forward loops over a length, so that each of 200 lengths needs a graph of its own. Three are exported whenever they
come. The exports after that may take 5 % of the time that the process has run; until they have not taken more, calls of further
lengths run in eager. The same goes for exports that are tried again after some have failed. What the cache has is not concerned.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator

_SHARE = 0.05  # of the time that the process has run
_AT_LEAST = 2.0  # seconds that they may take in any case
_began = time.monotonic()  # about when the process did: torch is imported by then


class Trials:
    """Counts the time that further exports of one module have taken. Not thread-safe, but for `check`."""

    def __init__(self) -> None:
        self._spent = 0.0  # seconds

    def check(self) -> bool:
        """Tells, as a guard does, whether further exports have to wait."""
        return self._spent > max(_AT_LEAST, _SHARE * (time.monotonic() - _began))

    @contextlib.contextmanager
    def counted(self, is_further: bool) -> Iterator[None]:
        """Counts the time of the block, if that is a further export."""
        start = time.monotonic()
        try:
            yield
        finally:
            if is_further:
                self._spent += time.monotonic() - start
