"""Guards what a process has once and an export changes: one owner at a time, and everything put back whatever raises.

Torch's exporter is not reentrant, and an export replaces functions of torch and Python. So exports of several threads take turns.
The owner's changes are meant for its own thread: in other threads a replaced function does what it did before, and their
fingerprints and guards take it for what it stands for (`unpatched`, and Guard in C++). A fork waits for the end of an export;
where it cannot, the child starts with everything put back.

Locks are taken in this order: a runtime's, the lease of a key, this one. An example:

    with replaced(torch, "rand", in_this_thread(mine, torch.rand)):  # other threads' exports wait
        torch.rand(2)  # calls `mine`; in another thread, torch's own
    torch.rand(2)  # calls torch's own again
"""

from __future__ import annotations

import builtins
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
    """Records who owns the state, and what the owner has changed."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.thread: int | None = None  # Python's number of the owner, if there is one
        self.number = 0  # the system's number of that thread
        self.is_stuck = False  # whether the owner was found to wait for other threads
        self.undo: list[Callable[[], None]] = []  # puts the changes back; newest last
        self.replaced: dict[int, tuple[Any, Any]] = {}  # by identity: a replacement, and what it stands in for


_state = _Ownership()


class _Beside(threading.local):
    is_on = False


_beside = _Beside()


@contextlib.contextmanager
def owned(limit: float = 600.0) -> Iterator[None]:
    """Makes this thread the owner for the block. Waits for another owner, at most `limit` seconds. Nests.

    Raises Busy where that owner waits itself, or is not done by then.
    """
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
    """Tells whether this thread is the owner."""
    return _state.thread == threading.get_ident()


def _give_up() -> None:
    _state.thread = None
    _state.lock.release()


@contextlib.contextmanager
def changed(undo: Callable[[], None]) -> Iterator[None]:
    """Calls `undo`, which puts back something that the owner changes, when the block ends, or in a forked child."""
    with owned():
        _state.undo.append(undo)
        try:
            yield
        finally:
            _state.undo.remove(undo)
            undo()


@contextlib.contextmanager
def replaced(owner: Any, name: str, replacement: Any) -> Iterator[Any]:
    """Puts `replacement` in the place of an attribute of a module or class; yields what was there, its raw value in a class.

    The attribute is put back at the end, unless someone else has set it meanwhile.
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


def set_beside(is_on: bool) -> None:
    """Lets this thread see the changes of its own export as another thread does, not at all; or as its own again."""
    _beside.is_on = is_on


def is_beside() -> bool:
    """Tells whether this thread does something beside its export."""
    return _beside.is_on


def in_this_thread(ours: Callable[..., Any], theirs: Callable[..., Any]) -> Callable[..., Any]:
    """Returns a function that calls `ours` in this thread, and `theirs` in the others.

    Once `replaced` has ended, it calls `theirs` in all: a module that is imported meanwhile may have kept the function.
    """
    thread, kept = threading.get_ident(), [ours]

    def call(*args: Any, **kwargs: Any) -> Any:
        for mine in kept if threading.get_ident() == thread and not _beside.is_on else ():
            return mine(*args, **kwargs)
        return theirs(*args, **kwargs)

    call.end = kept.clear  # type: ignore[attr-defined]
    return call


def unpatched(value: Any) -> Any:
    """Returns what a function of torch or Python is when nobody exports."""
    found = _state.replaced.get(id(value))
    return value if found is None or found[1] is _ABSENT else found[1]


def builtin_named(name: str, default: Any) -> Any:
    """Returns what Python has under this name when nobody exports."""
    return unpatched(vars(builtins).get(name, default))


def acquire(lock: Any, limit: float = 600.0) -> None:
    """Takes a lock that an export may hold.

    Raises Busy after `limit` seconds, and where the export cannot go on because its forward waits, maybe for this thread. In the
    owner it raises at once: whoever has the lock may wait for the owner.
    """
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
    """Holds a lock for the block, as `with lock:` does, but takes it with `acquire`."""
    acquire(lock)
    try:
        yield
    finally:
        lock.release()


class Watch:
    """Watches, for one thread, the export of another that it waits for. It is asked again and again."""

    def __init__(self) -> None:
        self._since, self._ran = time.monotonic(), _time_of(_state.number)

    def is_stuck(self) -> bool:
        """Tells whether the owner has been waiting for a while, as far as this thread or another that watches has seen."""
        now, ran = time.monotonic(), _time_of(_state.number)
        if not _waits_itself() or ran - self._ran > _AT_WORK:
            self._since, self._ran, _state.is_stuck = now, ran, False
        elif now - self._since > _STUCK:
            _state.is_stuck = True
        return _state.is_stuck


def _waits_itself() -> bool:
    """Tells whether the owner sleeps where it may wait for other threads: in the user's code, or in Python's."""
    from rekindle.process.origin import Origin, origin_of_frame

    frame = sys._current_frames().get(_state.thread or 0)
    return frame is not None and origin_of_frame(frame) in (Origin.USER, Origin.STDLIB) and _sleeps(_state.number)


def _sleeps(number: int) -> bool:
    """Tells whether a thread of this process neither runs nor could; true where the system does not tell."""
    try:
        with open(f"/proc/self/task/{number}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] == "S"
    except OSError:
        return True


def _time_of(number: int) -> int:
    """Returns the nanoseconds that a thread of this process has run; 0 where the system does not tell."""
    try:
        with open(f"/proc/self/task/{number}/schedstat") as file:
            return int(file.read().split()[0])
    except OSError:
        return 0


def time_of_others() -> dict[int, int]:
    """Returns the nanoseconds that each other thread of the program has run, by number; empty where the system does not tell."""
    threads = (thread for thread in threading.enumerate() if not thread.name.startswith("rekindle-"))
    numbers = {thread.native_id or 0 for thread in threads} - {threading.get_native_id(), 0}
    return {number: ran for number in numbers if (ran := _time_of(number)) > 0}


def others_ran_since(before: dict[int, int]) -> bool:
    """Tells whether a thread has ended since `time_of_others` gave `before`, or has run for longer than waking up takes."""
    now = time_of_others()
    return bool(before.keys() - now.keys()) or any(ran - before.get(number, 0) > _AWAKE for number, ran in now.items())


class _Renewed(Protocol):
    def renew(self) -> None:
        """Starts afresh in a forked child, where the other threads, which may have had a lock, do not exist."""


_renewed: weakref.WeakSet[_Renewed] = weakref.WeakSet()


def renewed_in_children(one: _Renewed) -> None:
    """Lets a forked child begin with `one.renew()`, if it is alive then. It is not kept alive."""
    _renewed.add(one)


class _Fork(threading.local):
    """Handles what has to happen around a fork of this thread."""

    is_owned = False  # whether this thread took the lock for the fork

    def before(self) -> None:
        """Waits until no other thread exports."""
        self.is_owned = False
        if is_owner():
            return
        with contextlib.suppress(Busy):
            acquire(_state.lock, _FORK_WAITS)
            self.is_owned = True

    def in_parent(self) -> None:
        """Lets others export again."""
        if self.is_owned:
            _state.lock.release()

    def in_child(self) -> None:
        """Puts back what an export in another thread has changed: only the thread that forked exists here."""
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
