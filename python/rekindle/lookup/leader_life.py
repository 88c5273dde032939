"""Tells the ranks of a job that wait for another one whether it still works: see ranks.py."""

from __future__ import annotations

import time

from rekindle import _native
from rekindle.lookup.job_store import Connection

BEAT = 1.0  # seconds between two signs of life
_SILENCE = 30.0  # seconds; a pass of the exporter may hold the interpreter for long


class LeaderLife:
    """Listens for signs of life of the leader, at most `limit` seconds."""

    def __init__(self, store: Connection, prefix: str, limit: float, what: str) -> None:
        self._store = store
        self._beats = prefix + "beat"
        self._of_leader = prefix + "leader"
        self._limit = limit
        self._what = what
        self._start = self._asked = self._heard = self._reported = time.monotonic()
        self._beat = 0

    def is_over(self) -> bool:
        """Tells, with a warning, whether the leader is not to be waited for any longer."""
        now = time.monotonic()
        if now - self._asked > BEAT:
            self._asked = now
            if (beat := self._store.add(self._beats, 0)) != self._beat:
                self._beat, self._heard = beat, now
        if now - self._heard <= _SILENCE and now - self._start <= self._limit:
            return False
        waited = f"after {now - self._start:.0f} s"
        _native.log_warning(f"no answer about {self._what} from {self._leader()} {waited}; this rank acts by itself")
        return True

    def report(self) -> None:
        """Says now and then, to a user who waits, what for."""
        now = time.monotonic()
        if now - self._reported > 10:
            self._reported = now
            _native.log_info(f"{self._leader()} exports {self._what}; waiting for it ({now - self._start:.0f} s)")

    def _leader(self) -> str:
        known = self._store.check([self._of_leader])
        return f"rank {self._store.get(self._of_leader).decode()}" if known else "the leading rank"
