"""Lets the ranks of a torch.distributed job decide together.

The first to ask under a key looks it up and, on a miss, exports; the others act on its answer.

They talk through the job's key-value store, never through a collective: a rank that does not ask is not waited for.
Every wait is bounded. When the store fails, the leader falls silent or its entry is not right here, a rank goes on alone.

    rekindle/<prekey>/<n>/   n: how often this process has asked under the prekey
        asked                counter; the rank that makes it 1 leads
        beat                 counter; grows while the leader works
        answer               "open", or the number of parts of the entry
        part/<i>             bytes
"""

from __future__ import annotations

import collections
import os
import threading
import time
from typing import Any

import torch

from rekindle import _native

_BEAT = 1.0  # seconds
_SILENCE = 30.0  # seconds; a pass of the exporter may hold the interpreter for long
_PART = 4 << 20  # bytes; TCPStore takes at most 8 MB a value
_PAUSES = (0.01, 0.5)  # seconds between looks: at first, at most

_asked: collections.Counter[str] = collections.Counter()
_own_store: list[Any] = []  # [the job's store, our connection to it]
_lock = threading.Lock()


def _renew_lock() -> None:
    """Replaces the lock in a forked child, where the thread that held it may not be."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def share(prekey: str) -> Share | None:
    """Returns this process's part in the job's next decision under `prekey`; None outside of a job of several ranks.

    None, too, with a warning, when the job's store does not answer.
    """
    distributed = torch.distributed
    if not (distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1):
        return None
    try:
        with _lock:
            _asked[prekey] += 1
            return Share(_connection(), f"rekindle/{prekey}/{_asked[prekey]}/")
    except RuntimeError as error:
        _native.log_warning(f"this rank decides alone, the job's store does not answer: {error}")
        return None


def _connection() -> Any:
    """Returns a connection of our own to the job's store: waiting on the shared one would block its other users."""
    store = torch.distributed.distributed_c10d._get_default_store()
    if not _own_store or _own_store[0] is not store:
        own = store.clone() if hasattr(store, "clone") else store
        _own_store[:] = [store, own]
    return _own_store[1]


class Share:
    """Takes part in one decision of a job, for this rank."""

    def __init__(self, store: Any, prefix: str) -> None:
        self._store = store
        self._prefix = prefix
        self._answered = threading.Event()
        self.leads = store.add(prefix + "asked", 1) == 1  # whether this rank looks up and exports for the others
        if self.leads:
            threading.Thread(target=self._beat, name="rekindle-beat", daemon=True).start()

    def _beat(self) -> None:
        try:
            while not self._answered.wait(_BEAT):
                self._store.add(self._prefix + "beat", 1)
        except RuntimeError as error:
            _native.log_debug(f"the other ranks are not told that this one works: {error}")

    def offer(self, entry: bytes) -> None:
        """Gives the leader's answer: an entry, packed, that the others are to use."""
        parts = [entry[i : i + _PART] for i in range(0, len(entry), _PART)]
        try:
            for i, part in enumerate(parts):
                self._store.set(f"{self._prefix}part/{i}", part)
        except RuntimeError as error:
            _native.log_warning(f"the entry could not be given to the other ranks: {error}")
            parts = []
        self._answer(str(len(parts)) if parts else "open")

    def let_others_go_on(self) -> None:
        """Gives the leader's answer, unless it has given one: each is to act by itself."""
        self._answer("open")

    def _answer(self, text: str) -> None:
        if self._answered.is_set():
            return
        self._answered.set()
        try:
            self._store.set(self._prefix + "answer", text)
        except RuntimeError as error:
            _native.log_warning(f"the other ranks could not be told what to do: {error}")

    def receive(self, limit: float, what: str) -> bytes | None:
        """Returns what the leader offers; None when this rank is to act by itself. Waits at most `limit` seconds.

        what: names the model in messages
        """
        try:
            if not self._wait(limit, what):
                return None
            answer = self._store.get(self._prefix + "answer").decode()
            if answer == "open":
                return None
            return b"".join(self._store.get(f"{self._prefix}part/{i}") for i in range(int(answer)))
        except RuntimeError as error:
            _native.log_warning(f"this rank acts by itself, the job's store does not answer: {error}")
            return None

    def _wait(self, limit: float, what: str) -> bool:
        """Waits for an answer, and tells whether there is one."""
        start = heard = reported = time.monotonic()
        pause, beat = _PAUSES[0], -1
        while not self._store.check([self._prefix + "answer"]):
            now, beats = time.monotonic(), self._store.add(self._prefix + "beat", 0)
            if beats != beat:
                beat, heard = beats, now
            if now - heard > _SILENCE or now - start > limit:
                _native.log_warning(
                    f"no answer about {what} from the leading rank after {now - start:.0f} s; this rank acts by itself"
                )
                return False
            if now - reported > 10:
                reported = now
                _native.log_info(f"another rank exports {what}; waiting for it ({now - start:.0f} s)")
            time.sleep(pause)
            pause = min(1.5 * pause, _PAUSES[1])
        return True
