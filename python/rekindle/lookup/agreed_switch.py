"""Has all ranks of a job go over to a graph at the same call, while one of them makes it in the background.

An example: four ranks train, and the helper of rank 2 makes the graph. Each rank counts its calls, which run in eager. In its
call 9 rank 2 finds that the helper is done, gives the entry to the others, and tells them 11: no rank has got farther than 9.
Calls 9 and 10 run in eager on all ranks, calls from 11 on from the graph.

No rank waits for another. Where one runs ahead of the others by more than two calls between two looks, it goes over later.
"""

from __future__ import annotations

import abc
import os

from rekindle.lookup.ranks import Share
from rekindle.process.helper import Helper

_AHEAD = 2  # calls from the one in which the farthest rank is to the first that runs from the graph


class Switch(abc.ABC):
    """Tells how long a rank's calls run in eager, and counts them. In a process that the rank has forked, no call waits."""

    def __init__(self, share: Share) -> None:
        self._share = share
        self._owner = os.getpid()
        self._call = 0  # number of the running call; 0 asked for the graph
        self._at: int | None = None  # number of the first that does not wait
        self._is_over = False

    def check(self) -> bool:
        """Tells whether a call that begins runs in eager. It is named as Guard.check is, and stands in its place."""
        if self._is_over or self.is_inherited:
            return False
        self._call += 1
        if self._at is None:
            self._at = self._agreed()
        self._is_over = self._at is not None and self._call >= self._at
        return not self._is_over

    @property
    def is_inherited(self) -> bool:
        """Tells whether this process was forked by the rank, whose connection to the job's store it must not use."""
        return self._owner != os.getpid()

    @abc.abstractmethod
    def _agreed(self) -> int | None:
        """Returns the number of the first call that does not wait, the running one if none has to; None while all do."""


class Leading(Switch):
    """Tells that to the rank whose helper makes the graph, and gives the entry to the others."""

    def __init__(self, share: Share) -> None:
        super().__init__(share)
        self._working: Helper | None = None
        self._is_own = False

    def wait_for(self, helper: Helper, is_own: bool) -> None:
        """Lets calls wait for a helper; is_own: whether it makes this graph, rather than one that comes first."""
        self._call += self._is_own  # the call after the one that found the helper before without an entry
        self._working, self._is_own = helper, is_own
        self._at, self._is_over = None, False

    def call_off(self) -> None:
        """Tells the others that there is no graph, unless there is one: each is to act by itself."""
        self._share.call_off()

    def _agreed(self) -> int | None:
        assert self._working is not None
        if self._working.check():
            return None
        packed = packed_entry(self._working.report()) if self._is_own else b""
        return self._share.switch(packed, self._call, _AHEAD) if packed else self._call


class Following(Switch):
    """Tells that to a rank that waits for the helper of another, at most `limit` seconds.

    what: names the model in messages
    """

    def __init__(self, share: Share, limit: float, what: str) -> None:
        super().__init__(share)
        self._limit = limit
        self._what = what

    def entry(self) -> bytes | None:
        """Returns the entry that the leader has given; None where this rank is to act by itself."""
        return self._share.given()

    def _agreed(self) -> int | None:
        return self._share.followed(self._call, self._limit, self._what)


def packed_entry(report: bytes | None) -> bytes:
    """Returns the entry, as Store.pack gives it, in what a helper has reported; nothing where it made none."""
    return b"" if report is None else report.partition(b"\n")[2]
