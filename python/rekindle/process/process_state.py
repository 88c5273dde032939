"""What a process has once, and an export changes: one owner at a time, and everything put back whatever raises.

Torch's exporter is not reentrant, and an export replaces functions of torch and Python. So exports of several threads take
turns. The owner's changes are meant for its own thread: a function that is replaced does for other threads what it did, and
their fingerprints and guards take it for what it stands for (`unpatched`, and Guard in C++). A fork waits for the end of an
export; where it cannot, the child starts with everything put back.

Locks are taken in this order: a runtime's, the lease of a key, this one.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Protocol

from rekindle import _native
from rekindle.reasons import Busy

_ABSENT = object()
_PAUSE = 0.05  # seconds between looks at the owner
_STUCK = 2.0  # seconds in a row that an owner was seen asleep in the user's code or Python's, which wait for other threads
_AT_WORK = 20_000_000  # nanoseconds of them that it may have run, to see whether it can go on
_AWAKE = 2_000_000  # nanoseconds
_FORK_WAITS = 30.0  # seconds; a child that is made earlier starts with everything put back


class _Ownership:
    """Who owns the state, and what it has changed. undo: newest last."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.thread: int | None = None
        self.number = 0  # the system's, of the thread
        self.depth = 0
        self.is_stuck = False
        self.undo: list[Callable[[], None]] = []
        self.replaced: dict[int, tuple[Any, Any]] = {}  # by identity: a replacement, and what it stands in for


_state = _Ownership()


class _Beside(threading.local):
    is_on = False


_beside = _Beside()


@contextlib.contextmanager
def owned(limit: float = 600.0) -> Iterator[None]:
    """Be the owner; other threads wait for it, at most `limit` seconds. Nests. Raises Busy where the owner waits itself."""
    if is_owner():
        yield
        return
    acquire(_state.lock, limit)
    _state.thread, _state.number, _state.is_stuck = threading.get_ident(), threading.get_native_id(), False
    try:
        yield
    finally:
        _give_up()


def is_owner() -> bool:
    """Whether this thread is."""
    return _state.thread == threading.get_ident()


def _give_up() -> None:
    _state.thread = None
    _state.lock.release()


@contextlib.contextmanager
def changed(undo: Callable[[], None]) -> Iterator[None]:
    """Within it, `undo` is what puts back something that the owner changes; it is called at the end, or in a forked child."""
    with owned():
        _state.undo.append(undo)
        try:
            yield
        finally:
            _state.undo.remove(undo)
            undo()


@contextlib.contextmanager
def replaced(owner: Any, name: str, replacement: Any) -> Iterator[Any]:
    """Put `replacement` in the place of an attribute of a module or class; gives what was there, its raw value in a class.

    It is put back unless someone else has set the attribute meanwhile.
    """
    before = vars(owner).get(name, _ABSENT)
    if before is replacement:  # by an outer one
        yield before
        return

    def undo() -> None:
        _state.replaced.pop(id(replacement), None)
        getattr(replacement, "end", lambda: None)()
        _native.set_stand_ins([*_state.replaced.values()], _ABSENT)
        if vars(owner).get(name, _ABSENT) is not replacement:
            return
        if before is _ABSENT:
            delattr(owner, name)
        else:
            setattr(owner, name, before)

    with changed(undo):
        _state.replaced[id(replacement)] = (replacement, before)
        _native.set_stand_ins([*_state.replaced.values()], _ABSENT)
        setattr(owner, name, replacement)
        yield before


@contextlib.contextmanager
def beside() -> Iterator[None]:
    """Within it, this thread is to the changes of its own export what another thread is."""
    before, _beside.is_on = _beside.is_on, True
    try:
        yield
    finally:
        _beside.is_on = before


def is_beside() -> bool:
    """Whether this thread does something beside its export."""
    return _beside.is_on


def in_this_thread(ours: Callable[..., Any], theirs: Callable[..., Any]) -> Callable[..., Any]:
    """A function that is `ours` for this thread, and `theirs` for the others; of `replaced`, `theirs` for all from its end on:
    a module that is imported meanwhile may have kept it."""
    thread, kept = threading.get_ident(), [ours]

    def call(*args: Any, **kwargs: Any) -> Any:
        for mine in kept if threading.get_ident() == thread and not _beside.is_on else ():
            return mine(*args, **kwargs)
        return theirs(*args, **kwargs)

    call.end = kept.clear  # type: ignore[attr-defined]
    return call


def unpatched(value: Any) -> Any:
    """What a function of torch or Python is when nobody exports."""
    found = _state.replaced.get(id(value))
    return value if found is None or found[1] is _ABSENT else found[1]


def acquire(lock: Any, limit: float = 600.0) -> None:
    """Lock a lock that an export may hold. Raises Busy after `limit` seconds, and where the export cannot go on: its forward
    waits, maybe for this thread; at once in the owner, for which whoever has the lock may wait."""
    if lock.acquire(blocking=False):
        return
    if is_owner():
        raise Busy("another thread exports the same module, and may wait for this one")
    start, watch = time.monotonic(), Watch()
    while not lock.acquire(timeout=_PAUSE):
        if watch.is_stuck() or time.monotonic() - start > limit:
            raise Busy("another thread exports, and its forward seems to wait for this one")


@contextlib.contextmanager
def locked(lock: Any) -> Iterator[None]:
    """As `with lock:`, with `acquire`."""
    acquire(lock)
    try:
        yield
    finally:
        lock.release()


class Watch:
    """One thread's watch over the export of another, which it waits for; it looks again and again."""

    def __init__(self) -> None:
        self._since, self._ran = time.monotonic(), _time_of(_state.number)

    def is_stuck(self) -> bool:
        """Whether the owner has been waiting for a while, as far as this thread or another that watches has seen."""
        now, ran = time.monotonic(), _time_of(_state.number)
        if not _waits_itself() or ran - self._ran > _AT_WORK:
            self._since, self._ran, _state.is_stuck = now, ran, False
        elif now - self._since > _STUCK:
            _state.is_stuck = True
        return _state.is_stuck


def _waits_itself() -> bool:
    """Whether the owner sleeps in a place where it may wait for other threads: the user's code, or Python's."""
    from rekindle.process.origin import Origin, origin_of_frame

    frame = sys._current_frames().get(_state.thread or 0)
    return frame is not None and origin_of_frame(frame) in (Origin.USER, Origin.STDLIB) and _sleeps(_state.number)


def _sleeps(number: int) -> bool:
    """Whether a thread of this process neither runs nor could; true where the system does not tell."""
    try:
        with open(f"/proc/self/task/{number}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "S"
    except OSError:
        return True


def _time_of(number: int) -> int:
    """Nanoseconds that a thread of this process has run; 0 where the system does not tell."""
    try:
        with open(f"/proc/self/task/{number}/schedstat") as file:
            return int(file.read().split()[0])
    except OSError:
        return 0


def time_of_others() -> dict[int, int]:
    """Nanoseconds that each other thread of the program has run, by its number; empty where the system does not tell."""
    threads = (thread for thread in threading.enumerate() if not thread.name.startswith("rekindle-"))
    numbers = {thread.native_id or 0 for thread in threads} - {threading.get_native_id(), 0}
    return {number: ran for number in numbers if (ran := _time_of(number)) > 0}


def others_ran_since(before: dict[int, int]) -> bool:
    """Whether a thread has ended, or run for longer than waking up and looking around takes; before: of `time_of_others`."""
    now = time_of_others()
    return bool(before.keys() - now.keys()) or any(ran - before.get(number, 0) > _AWAKE for number, ran in now.items())


class _Renewed(Protocol):
    def renew(self) -> None:
        """In a forked child: the other threads, which may have had a lock, are not there."""


_renewed: weakref.WeakSet[_Renewed] = weakref.WeakSet()


def renewed_in_children(one: _Renewed) -> None:
    """Let a forked child begin with `one.renew()`, if it is alive then."""
    _renewed.add(one)


class _Fork(threading.local):
    """What happens around a fork of this thread."""

    is_owned = False

    def before(self) -> None:
        """Wait until no other thread exports."""
        self.is_owned = False
        if is_owner():
            return
        with contextlib.suppress(Busy):
            acquire(_state.lock, _FORK_WAITS)
            self.is_owned = True

    def in_parent(self) -> None:
        """Others may export again."""
        if self.is_owned:
            _state.lock.release()

    def in_child(self) -> None:
        """Only the thread that forked is there."""
        if self.is_owned:
            _state.lock.release()
        elif _state.thread not in (None, threading.get_ident()):
            for undo in reversed(_state.undo):
                undo()
            _state.__init__()  # type: ignore[misc]
        for one in list(_renewed):
            one.renew()


_fork = _Fork()
os.register_at_fork(before=_fork.before, after_in_parent=_fork.in_parent, after_in_child=_fork.in_child)
