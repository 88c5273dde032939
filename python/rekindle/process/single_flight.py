"""Lets one process export per key: whoever comes first exports, and the others wait for its entry, within bounds.

Waiting is a courtesy and never a condition: whoever gives up waiting exports by itself, and the same entry is stored twice.
"""

from __future__ import annotations

import os
import time
from typing import Any

from rekindle import _native
from rekindle.process import process_state

_SLICE = 0.5  # seconds between looks at the clock and at signals such as Ctrl-C
_REPORT_EVERY = 10.0  # seconds


class Turn:
    """Holds the right to export under one key, among the processes of a machine; see export_cache/files/single_flight.h.

    lease: None where there is nothing to share, or where waiting was given up
    waited: whether another process was exporting, so that a second lookup is worth its time
    """

    def __init__(self, lease: Any = None, waited: bool = False) -> None:
        self._lease = lease
        self.waited = waited

    def let_others_go_on(self) -> None:
        """Ends the others' waiting: there will be no entry."""
        if self._lease is not None:
            self._lease.open()

    def end(self) -> None:
        """Gives the right back: what was made is visible to the others by now. A second call is no error."""
        if self._lease is not None:
            self._lease.release()


def take_turn(cache: Any, prekey: str, limit: float, what: str) -> Turn:
    """Waits, at most `limit` seconds, until no other process of this machine exports under `prekey`; returns the turn.

    Whoever owns the process's state does not wait: another thread that exports waits for that.

    cache: a writable ExportCache, or None
    prekey: the digest of the call's fingerprint
    limit: seconds; 0 for not waiting at all
    what: the name of the export in the log while this waits
    """
    if cache is None or limit <= 0 or process_state.is_owner():
        return Turn()
    lease = cache.lease(prekey)
    start, watch = time.monotonic(), process_state.Watch()
    reported = start - _REPORT_EVERY + 2 * _SLICE  # a first word after two slices
    try:
        while (state := lease.wait(_SLICE)) == "waiting":
            now = time.monotonic()
            if lease.holder == os.getpid() and watch.is_stuck():
                return Turn(waited=True)
            if now - start > limit:
                _native.log_warning(f"process {lease.holder} has exported {what} for {limit:.0f} s; it is exported here too")
                return Turn(waited=True)
            if now - reported > _REPORT_EVERY:
                reported = now
                _native.log_info(f"process {lease.holder} exports {what}; waiting for it ({now - start:.0f} s)")
    except _native.RekindleError as error:
        _native.log_debug(f"exports are not shared: {error}")
        return Turn()
    if state == "silent":
        _native.log_warning(f"process {lease.holder}, which exports {what}, does not answer; it is exported here too")
    return Turn(lease if state == "held" else None, lease.waited)
