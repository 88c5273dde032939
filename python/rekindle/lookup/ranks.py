"""Lets the ranks of a torch.distributed job decide together.

Each rank that asks under a key looks it up. Who finds an entry uses it, and offers it to the first that asked, which leads. The
leader exports if nobody has an entry; those without one act on its answer.

They talk through the job's key-value store, never through a collective: a rank that does not ask is not waited for.
Every wait is bounded. When the store fails, the leader falls silent or its entry is not right here, a rank goes on alone.
A process that a rank has forked, such as a worker of a DataLoader, is no rank, and goes on alone, too.

    rekindle/<prekey>/<n>/   n: how often this process has asked under the prekey
        asked                counter; the rank that makes it 1 leads
        leader               the number of that rank
        looked               counter; of the other ranks that have looked and have no entry
        holders              counter; the rank that makes it 1 offers its entry
        held                 the number of parts of that entry
        held/<i>             bytes
        beat                 counter; grows while the leader works
        answer               "open", "later" where a helper of the leader makes the entry, or the number of its parts
        at/<rank>            counter; calls of a rank that waits for that helper
        switch               "open", or "<call> <parts>": the number of the first call that runs from the graph (agreed_switch.py)
        part/<i>             bytes
"""

from __future__ import annotations

import collections
import os
import threading
import time

import torch

from rekindle import _native
from rekindle.key.values.ingredients import Parts
from rekindle.lookup import job_store
from rekindle.lookup.job_store import Connection
from rekindle.lookup.leader_life import BEAT, LeaderLife
from rekindle.lookup.rank_keys import differing

_LOOKS = 0.2  # seconds for which the leader waits for the lookups of the others before it exports
_PART = 4 << 20  # bytes; TCPStore takes at most 8 MB a value
_LATER = "later"
_PAUSES = (0.01, 0.5)  # seconds between looks: at first, at most

_asked: collections.Counter[str] = collections.Counter()
_lock = threading.Lock()


def _renew_lock() -> None:
    """Replaces the lock in a forked child, where the thread that held it may not be."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


def share(prekey: str) -> Share | None:
    """Returns this process's part in the job's next decision under `prekey`; None outside of a job of several ranks.

    None, too, in a process that a rank has forked, and, with a warning, when the job's store does not answer.
    """
    if not job_store.is_rank():
        return None
    try:
        with _lock:
            _asked[prekey] += 1
            place = f"rekindle/{prekey}/{_asked[prekey]}/"
            return Share(job_store.connection(), place, torch.distributed.get_world_size())
    except RuntimeError as error:
        _native.log_warning(f"this rank decides alone, the job's store does not answer: {error}")
        return None


class Share:
    """Takes part in one decision of a job, for this rank."""

    def __init__(self, store: Connection, prefix: str, ranks: int) -> None:
        self._store = store
        self._prefix = prefix
        self._others = ranks - 1
        self._rank = torch.distributed.get_rank()
        self._has_answered = False
        self._is_done = threading.Event()  # of the leader
        self._life: LeaderLife | None = None
        self.is_deferred = False  # whether the leader has answered that a helper makes the entry
        self.leads = store.add(prefix + "asked", 1) == 1  # whether this rank looks up and exports for the others
        if self.leads:
            store.set(prefix + "leader", str(self._rank))
            threading.Thread(target=self._beat, name="rekindle-beat", daemon=True).start()

    def _beat(self) -> None:
        try:
            while not self._is_done.wait(BEAT):
                self._store.add(self._prefix + "beat", 1)
        except RuntimeError as error:
            _native.log_debug(f"the other ranks are not told that this one works: {error}")

    def offer(self, entry: bytes) -> None:
        """Offers an entry, packed: the leader's answer, which the others are to use, or what the leader may use."""
        if self.leads:
            self._answer(self._put("part", entry) or "open")
        elif not self._is_answered() and self._add("holders") == 1 and (parts := self._put("held", entry)):
            self._set("held", parts)

    def has_none(self) -> None:
        """Tells the leader that this rank has looked, and has no entry."""
        self._add("looked")

    def tell_of_other_keys(self, model: str, prekey: str, leaves: Parts) -> None:
        """Says in the log which other rank has another key for this model, and what differs: see rank_keys.py."""
        try:
            found = differing(self._store, self._rank, model, prekey, leaves, lambda key: _asked[key] > 0)
            if found is not None:
                _native.log_info(f"{model} gets a graph of its own on this rank: {found}")
        except RuntimeError as error:
            _native.log_debug(f"the keys of other ranks are not known: {error}")

    def held_elsewhere(self) -> bytes | None:
        """Returns, to the leader, the entry of another rank; None where nobody has told of one within a moment."""
        end = time.monotonic() + _LOOKS
        try:
            while not self._store.check([self._prefix + "held"]):
                if self._store.add(self._prefix + "looked", 0) >= self._others or time.monotonic() > end:
                    return None
                time.sleep(_PAUSES[0])
            return self._got("held", self._store.get(self._prefix + "held").decode())
        except RuntimeError as error:
            _native.log_debug(f"no other rank is asked for an entry: {error}")
            return None

    def _is_answered(self) -> bool:
        try:
            return self._store.check([self._prefix + "answer"])
        except RuntimeError as error:
            _native.log_debug(f"the leading rank is not asked: {error}")
            return True

    def _put(self, name: str, entry: bytes) -> str:
        """Puts the parts of an entry into the store and returns their number; nothing where it takes none."""
        parts = [entry[i : i + _PART] for i in range(0, len(entry), _PART)]
        try:
            for i, part in enumerate(parts):
                self._store.set(f"{self._prefix}{name}/{i}", part)
        except RuntimeError as error:
            _native.log_warning(f"the entry could not be given to the other ranks: {error}")
            return ""
        return str(len(parts))

    def _got(self, name: str, parts: str) -> bytes:
        return b"".join(self._store.get(f"{self._prefix}{name}/{i}") for i in range(int(parts)))

    def _add(self, name: str) -> int:
        try:
            return self._store.add(self._prefix + name, 1)
        except RuntimeError as error:
            _native.log_debug(f"the leading rank is not told what this one has: {error}")
            return 0

    def _set(self, name: str, text: str) -> None:
        try:
            self._store.set(self._prefix + name, text)
        except RuntimeError as error:
            _native.log_debug(f"the leading rank is not told what this one has: {error}")

    def let_others_go_on(self) -> None:
        """Gives the leader's answer, unless it has given one: each is to act by itself."""
        self._answer("open")

    def defer(self) -> None:
        """Gives the leader's answer that a helper makes the entry, so that nobody need wait in this call."""
        self._answer(_LATER)

    def _answer(self, text: str) -> None:
        if self._has_answered:
            return
        self._has_answered = True
        if text != _LATER:
            self._is_done.set()
        self._tell("answer", text)

    def switch(self, entry: bytes, call: int, ahead: int) -> int:
        """Gives the others the entry that was deferred; returns the number of the first call that runs from its graph, on all.

        call: of this rank, which is running
        ahead: calls from the farthest of the ranks to that one
        """
        parts = self._put("part", entry)
        try:
            at = ahead + max(call, *(self._store.add(f"{self._prefix}at/{rank}", 0) for rank in range(self._others + 1)))
        except RuntimeError as error:
            _native.log_debug(f"how far the other ranks are is not known: {error}")
            at = call
        self.call_off(f"{at} {parts}" if parts else "open")
        return at

    def call_off(self, instead: str = "open") -> None:
        """Tells those who wait for a helper, once, that there is nothing to wait for."""
        if not self._is_done.is_set():
            self._is_done.set()
            self._tell("switch", instead)

    def _tell(self, name: str, text: str) -> None:
        try:
            self._store.set(self._prefix + name, text)
        except RuntimeError as error:
            _native.log_warning(f"the other ranks could not be told what to do: {error}")

    def receive(self, limit: float, what: str) -> bytes | None:
        """Returns what the leader offers; None when this rank is to act by itself, or is_deferred. Waits at most `limit` seconds.

        what: names the model in messages
        """
        try:
            if not self._wait(limit, what):
                return None
            answer = self._store.get(self._prefix + "answer").decode()
            if answer == "open":
                return None
            if answer != _LATER:
                return self._got("part", answer)
            self.is_deferred = not self._store.check([self._prefix + "switch"])
            return None if self.is_deferred else self.given()
        except RuntimeError as error:
            _native.log_warning(f"this rank acts by itself, the job's store does not answer: {error}")
            return None

    def _wait(self, limit: float, what: str) -> bool:
        """Waits for an answer, and tells whether there is one."""
        life, pause = LeaderLife(self._store, self._prefix, limit, what), _PAUSES[0]
        while not self._store.check([self._prefix + "answer"]):
            if life.is_over():
                return False
            life.report()
            time.sleep(pause)
            pause = min(1.5 * pause, _PAUSES[1])
        return True

    def followed(self, call: int, limit: float, what: str) -> int | None:
        """Tells the leader of a call of this rank that waits; returns the number of the first that does not, None if not known.

        That is the running one where the job's process group is gone: this rank acts by itself.

        limit, what: as of `receive`, since the first such call
        """
        if not torch.distributed.is_initialized():
            return call
        self._life = self._life or LeaderLife(self._store, self._prefix, limit, what)
        try:
            self._store.add(f"{self._prefix}at/{self._rank}", 1)
            if self._store.check([self._prefix + "switch"]):
                at = self._store.get(self._prefix + "switch").decode().partition(" ")[0]
                return call if at == "open" else int(at)
            return call if self._life.is_over() else None
        except RuntimeError as error:
            _native.log_warning(f"this rank acts by itself, the job's store does not answer: {error}")
            return call

    def given(self) -> bytes | None:
        """Returns the deferred entry; None where there is none, or the job's process group is gone."""
        if not torch.distributed.is_initialized():
            return None
        try:
            if not self._store.check([self._prefix + "switch"]):
                return None
            _, _, parts = self._store.get(self._prefix + "switch").decode().partition(" ")
            return self._got("part", parts) if parts else None
        except RuntimeError as error:
            _native.log_warning(f"this rank acts by itself, the job's store does not answer: {error}")
            return None
