"""Gives a forked process memory of its own where its parent shares memory with others: shared tensors, memory maps of files.

An example: a tensor that was moved by `share_memory_()` lies in a shared mapping, which a fork inherits as such. With

    memory = PrivateMemory()
    if os.fork() == 0:
        memory.take()  # in the child

the child reads in that place what was there at the fork, and what it writes there no other process sees.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os

from rekindle.process.shared_mappings import Mapping, shared_mappings

_COPIED_BEFORE = 64 << 20  # bytes; more than that is copied after the fork, so that nobody waits for it
_MOST_COPIED = 4 << 30  # bytes; a file is mapped privately instead, at any size
_LARGEST_READ = 1 << 30  # bytes
_PRIVATE = mmap.MAP_PRIVATE
_MOVED, _FIXED = 3, 0x10  # MREMAP_MAYMOVE | MREMAP_FIXED, MAP_FIXED
_FAILED = ctypes.c_void_p(-1).value

_libc = ctypes.CDLL(None, use_errno=True)
_Place, _Size = ctypes.c_void_p, ctypes.c_size_t
_mmap, _munmap, _mremap, _mprotect = _libc.mmap, _libc.munmap, _libc.mremap, _libc.mprotect
_mmap.restype, _mmap.argtypes = _Place, (_Place, _Size, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
_mremap.restype, _mremap.argtypes = _Place, (_Place, _Size, _Size, ctypes.c_int, _Place)
_munmap.argtypes, _mprotect.argtypes = (_Place, _Size), (_Place, _Size, ctypes.c_int)


def why_not_private() -> str | None:
    """Says why a forked process could not have memory of its own in the place of what is shared; None where it can."""
    mappings = [one for one in shared_mappings() if not one.is_of_device]
    if sum(one.size for one in mappings) <= _MOST_COPIED:
        return None
    copied = sum(one.size for one in mappings if not one.has_file())
    if copied <= _MOST_COPIED:
        return None
    return f"{copied >> 20} MiB of memory are shared with other processes, and a helper may not write there"


class PrivateMemory:
    """Keeps copies of what this process shares with others, if it is small, for a child that is forked."""

    def __init__(self) -> None:
        self._copies: dict[Mapping, int] = {}  # addresses
        left = _COPIED_BEFORE
        try:
            for one in shared_mappings():
                left -= one.size
                if left < 0:
                    break
                if not one.is_of_device:
                    self._copies[one] = _copied(one)
        except OSError:
            self.let_go()
            raise

    def let_go(self) -> None:
        """Frees the copies: for the process that made them."""
        for one, copy in self._copies.items():
            _munmap(copy, one.size)
        self._copies.clear()

    def take(self) -> None:
        """Puts private memory in the place of all that is shared, in a child that has no other thread.

        What could not be copied is not writable afterwards. Raises OSError where the system refuses.
        """
        for one in shared_mappings():
            if one.is_of_device:
                _checked(_mprotect(one.begin, one.size, one.protection & ~mmap.PROT_WRITE))
            elif one in self._copies:
                _move(self._copies.pop(one), one)
            elif one.size <= _COPIED_BEFORE or (file := one.open_file()) is None:
                _move(_copied(one), one)
            else:
                _checked(_mmap(one.begin, one.size, one.protection, _PRIVATE | _FIXED, file, one.offset))
                os.close(file)


def _checked(result: int | None) -> int:
    """Returns what a call of the system returned; raises OSError where it failed."""
    if result in (-1, _FAILED):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result or 0


def _move(copy: int, to: Mapping) -> None:
    """Puts a copy in the place of what it was made of."""
    _checked(_mprotect(copy, to.size, to.protection))
    _checked(_mremap(copy, to.size, to.size, _MOVED, to.begin))


def _copied(one: Mapping) -> int:
    """Returns the address of private memory with the same bytes; 0 where there are none, as behind the end of a file."""
    flags = _PRIVATE | mmap.MAP_ANONYMOUS
    copy = _checked(_mmap(None, one.size, mmap.PROT_READ | mmap.PROT_WRITE, flags, -1, 0))
    try:
        _read(one, (ctypes.c_char * one.size).from_address(copy))
    except OSError:
        _munmap(copy, one.size)
        raise
    return copy


def _read(one: Mapping, into: ctypes.Array[ctypes.c_char]) -> None:
    """Reads memory through the system, for which a page without bytes is an error, and no signal."""
    target = memoryview(into).cast("B")
    memory = os.open("/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
    try:
        at = 0
        while at < one.size:
            try:
                count = os.preadv(memory, [target[at : at + _LARGEST_READ]], one.begin + at)
            except OSError as error:
                if error.errno not in (errno.EIO, errno.EFAULT):
                    raise
                count = 0
            at += count or mmap.PAGESIZE - at % mmap.PAGESIZE
    finally:
        os.close(memory)
