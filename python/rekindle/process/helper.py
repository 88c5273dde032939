"""Runs work in a helper process that begins with this process's memory, and hands over what it makes.

An example:

    helper = Helper.start(lambda: str(long_sum(numbers)).encode())
    while helper.check():
        train()
    helper.report()  # b"42"; None where the helper was killed

The helper sees what there was at the start, whatever this process writes meanwhile, and changes nothing here: memory that this
process shares with others is the helper's own in the helper (private_memory.py).
"""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import struct
import sys
from collections.abc import Callable

import torch

from rekindle import _native
from rekindle.process.private_memory import PrivateMemory, why_not_private

_NOT_FORKED = ("mpi", "ucc")  # backends of torch.distributed; those of accelerators have a context
_LIMIT = 1800  # seconds after which a helper ends itself
_FIRST_LIMIT = 10  # seconds in which it has to get torch's generator, which a thread that is not there may hold for ever
_MOST_STUCK = 2  # helpers in a row that did not get it, until no further one is tried
_SIZE = struct.Struct("<q")  # of a report, in bytes; written after it, so that half of one is none


def why_no_helper() -> str | None:
    """Says why a helper could not work on this process's memory; None where it can."""
    if torch.cuda._initialized:
        return "a process that uses an accelerator cannot be forked"
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        backends = torch.distributed.get_backend_config()
        for name in _NOT_FORKED:
            if name in backends:
                return f"the state of {name} does not survive a fork"
    if Helper.is_often_stuck():
        return "other threads draw random numbers all the time, which a forked process then cannot do"
    return why_not_private()


class Helper:
    """Stands for a helper process. `check` and `report` are for the process that started it; in others it has ended."""

    _stuck = 0  # how many of this process's in a row could not draw random numbers

    def __init__(self, number: int, file: int) -> None:
        self.number = number  # of the process
        self.was_stuck = False  # whether it has ended as a thread drew random numbers when it was forked
        self._file = file  # without a name; what the helper reports lies in it
        self._owner = os.getpid()
        self._is_at_work = True
        self._descriptor: int | None = None  # of the process, whose number another one may have once it has been waited for
        try:
            self._descriptor = _descriptor_of(number)
        except ProcessLookupError:  # it has ended, and someone else has waited for it
            self._is_at_work = False

    def __del__(self) -> None:
        os.close(self._file)
        if self._descriptor is not None:
            os.close(self._descriptor)

    @staticmethod
    def start(work: Callable[[], bytes]) -> Helper:
        """Starts a helper that reports what `work` returns.

        Raises OSError where the system has no process or memory left.
        """
        memory = PrivateMemory()
        try:
            file = os.memfd_create("rekindle-helper")
            try:
                number = _fork(file)
            except OSError:
                os.close(file)
                raise
            if number == 0:
                _work(work, file, memory)
        finally:
            memory.let_go()
        return Helper(number, file)

    @property
    def is_inherited(self) -> bool:
        """Tells whether another process started it, which has forked this one."""
        return self._owner != os.getpid()

    def check(self) -> bool:
        """Tells whether the helper is at work. It is named as Guard.check is, and stands in its place."""
        if self._is_at_work and not self.is_inherited:
            with contextlib.suppress(ChildProcessError):  # someone else has waited for it
                ended_by = self._ended_by()
                if ended_by is None:
                    return True
                self._note(ended_by)
        self._is_at_work = False
        return False

    def _note(self, ended_by: int) -> None:
        """Notes whether a helper that a signal has ended, or 0, could draw random numbers."""
        has_begun = os.fstat(self._file).st_size > 0
        self.was_stuck = not has_begun and ended_by == signal.SIGALRM
        if has_begun or self.was_stuck:
            Helper._stuck = Helper._stuck + 1 if self.was_stuck else 0

    @staticmethod
    def is_often_stuck() -> bool:
        """Tells whether the last helpers of this process ended as threads drew random numbers when they were forked."""
        return Helper._stuck >= _MOST_STUCK

    def report(self) -> bytes | None:
        """Returns what the work of a helper that has ended returned; None where it did not get so far."""
        head = os.pread(self._file, _SIZE.size, 0)
        if len(head) < _SIZE.size or (size := _SIZE.unpack(head)[0]) == 0:
            return None
        return _read(self._file, size, _SIZE.size)

    def _ended_by(self) -> int | None:
        """Takes the exit status of a helper that has ended; None where it has not.

        Returns the signal that has ended it, 0 for none. Raises ChildProcessError where someone else has taken the status.
        """
        if self._descriptor is None:
            number, status = os.waitpid(self.number, os.WNOHANG)
            return None if number == 0 else os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0
        found = os.waitid(os.P_PIDFD, self._descriptor, os.WEXITED | os.WNOHANG)
        if found is None:
            return None
        return found.si_status if found.si_code in (os.CLD_KILLED, os.CLD_DUMPED) else 0


def _descriptor_of(number: int) -> int | None:
    """Returns a file descriptor that stands for a child of this process; None where the system has none to wait on.

    Raises ProcessLookupError where there is no such process.
    """
    if not hasattr(os, "P_PIDFD"):
        return None
    try:
        descriptor = os.pidfd_open(number)
    except ProcessLookupError:
        raise
    except OSError:  # Linux before 5.3, a sandbox, or too many open files
        return None
    try:
        os.waitid(os.P_PIDFD, descriptor, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:  # someone else has waited for it, as `check` will find
        return descriptor
    except OSError:  # Linux 5.3
        os.close(descriptor)
        return None
    return descriptor


def _read(file: int, size: int, at: int) -> bytes:
    """Returns so many bytes of a file, fewer where it ends; leaves its position alone, which this process shares with others."""
    parts = []
    while size > 0 and (part := os.pread(file, size, at)):
        parts.append(part)
        size, at = size - len(part), at + len(part)
    return b"".join(parts)


def _fork(file: int) -> int:
    """Forks while no thread draws random numbers, if it can: a child cannot draw any where one did, and ends.

    Returns the number of the child in this process, 0 in the child.
    """
    _wait_for_generator()  # then no other thread of Python runs until the fork
    return _native.fork_helper(file, _LIMIT)


def _wait_for_generator() -> None:
    """Takes the lock of torch's generator, and lets it go."""
    torch.default_generator.get_state()


def _check_generator(file: int) -> None:
    """Ends this process, by SIGALRM, where the lock of torch's generator is held by a thread that is not there.

    Otherwise begins the report in `file`.
    """
    signal.alarm(_FIRST_LIMIT)
    _wait_for_generator()
    signal.alarm(_LIMIT)
    os.pwrite(file, _SIZE.pack(0), 0)


def _work(work: Callable[[], bytes], file: int, memory: PrivateMemory) -> None:
    """Does the work of a helper, and ends the process."""
    status = 1
    try:
        memory.take()
        _check_generator(file)
        for number in signal.valid_signals():
            if callable(signal.getsignal(number)):  # the user's handlers are for the user's process
                signal.signal(number, signal.SIG_DFL)
        sys.settrace(None)
        sys.setprofile(None)
        gc.freeze()  # what the user's process has thrown away is not finalized here
        torch.set_num_threads(1)  # the threads of pools are not here, and the cores are the user's
        _native.set_log_level("off")  # nobody reads it, and a thread that is not here may hold the log's lock
        text = work()
        with open(file, "wb", closefd=False) as report:
            report.write(_SIZE.pack(0) + text)
            report.flush()
            os.pwrite(file, _SIZE.pack(len(text)), 0)
        status = 0
    finally:
        os._exit(status)
