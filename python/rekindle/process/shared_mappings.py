"""Finds the memory that a process may write and other processes see: what is mapped as shared, be it of a file or of none."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

_MAPS = "/proc/self/maps"


@dataclass(frozen=True)
class Mapping:
    """Describes memory that a process may write and others see."""

    begin: int
    end: int
    protection: int
    offset: int  # in its file
    inode: int
    path: str

    @property
    def size(self) -> int:
        """Returns how many bytes it has."""
        return self.end - self.begin

    @property
    def is_of_device(self) -> bool:
        """Tells whether it is no memory that could be copied: registers of a device, queues of the system."""
        return self.path.startswith("anon_inode:") or (
            self.path.startswith("/dev/") and not self.path.startswith(("/dev/shm/", "/dev/zero", "/dev/hugepages/"))
        )

    def open_file(self) -> int | None:
        """Opens the file that it maps, to read, and returns its descriptor; None without one that can be found."""
        try:
            found = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:  # there is none of this name, or not for this user: the caller copies
            return None
        status = os.fstat(found)
        if stat.S_ISREG(status.st_mode) and status.st_ino == self.inode:
            return found
        os.close(found)
        return None

    def has_file(self) -> bool:
        """Tells whether `open_file` finds one."""
        if (found := self.open_file()) is None:
            return False
        os.close(found)
        return True


def shared_mappings() -> list[Mapping]:
    """Returns what this process may write and others see, the smallest first.

    Raises OSError where the system does not tell: see `can_tell`.
    """
    found = []
    with open(_MAPS, encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            place, flags, offset, _, inode, *path = line.rstrip("\n").split(maxsplit=5)
            if flags[1] == "w" and flags[3] == "s":
                begin, end = (int(one, 16) for one in place.split("-"))
                protection = sum(1 << i for i, flag in enumerate(flags[:3]) if flag != "-")  # PROT_READ is 1, and so on
                found.append(Mapping(begin, end, protection, int(offset, 16), int(inode), *path or [""]))
    return sorted(found, key=lambda one: one.size)


def can_tell() -> bool:
    """Tells whether the system says what memory is shared."""
    return os.access(_MAPS, os.R_OK)
