"""Tells when a forward reads an attribute that its key leaves out, in the private copies on which exports and trials run.

An example: of a module with `self.rewards = [1.0]`, taken to be unread, the copy has in its dict the _Tripwire "rewards" with
an object that stands for the list. `self.rewards`, `getattr(self, "rew" + "ards")` and `vars(self)["rewards"]` look the name
up, and so compare it with the tripwire: that raises ReadsAttribute. Whoever takes the object out of the dict by another way
cannot use it; code of the user's that may take all of a dict is refused before (key/left_out.py).

`self.rewards = []` looks the name up, too, and is no read: from then on the forward reads what it has set itself. The same goes
for a name that the live module does not have yet.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from types import FrameType
from typing import Any

import torch
from torch import nn

from rekindle.export.copies.copied_callables import Copier, Of
from rekindle.export.copies.copied_kinds import Attributed, DictCopier, ObjectCopier, TensorCopier
from rekindle.reasons import ReadsAttribute


class Reads:
    """Keeps the names of the attributes that were read though they were taken to be unread."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.set = 0  # how many attributes the forward has set instead

    def bypass(self) -> ReadsAttribute | None:
        """Returns the bypass for what was read first; None where nothing was."""
        return ReadsAttribute(self.names[0]) if self.names else None

    def check(self) -> None:
        """Raises ReadsAttribute if anything was read."""
        if (bypass := self.bypass()) is not None:
            raise bypass

    def note(self, name: str) -> ReadsAttribute:
        """Notes a read, and returns what is to be raised where it happens."""
        self.names.append(name)
        return ReadsAttribute(name)


class _Tripwire(str):
    """Stands in a dict for the name of an attribute, and tells when the name is looked up."""

    reads: Reads
    place = 0  # among the attributes that the forward has set, from 1 on; 0: it has not set this one
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        if str.__eq__(self, other) is not True:
            return False
        if not self.place:
            if not _sets(sys._getframe(1)):
                raise self.reads.note(str(self))
            self.reads.set += 1
            self.place = self.reads.set
        return True


def _tripwire(name: str, reads: Reads) -> _Tripwire:
    made = _Tripwire(name)
    made.reads = reads
    return made


_SETATTR = nn.Module.__setattr__.__code__
# What runs in these may run again in the backward, or whenever the graph runs, and would set the attribute once more.
_RUNS_AGAIN = ("torch/utils/checkpoint.py", "rekindle/functions/interception.py")


def _sets(frame: FrameType | None) -> bool:
    """Tells whether a name is looked up, in the code that the frame runs, because the forward sets an attribute of a module."""
    if frame is None or frame.f_code is not _SETATTR:
        return False
    while frame is not None and not frame.f_code.co_filename.endswith(_RUNS_AGAIN):
        frame = frame.f_back
    return frame is None


def put_back(table: dict[str, Any], before: dict[str, Any], names: Iterable[str]) -> None:
    """Lets a module's dict hold what it held `before` under some of its keys, or of the keys that it had then."""
    for name in names:
        if name in before:
            table[name] = before[name]
        else:
            del table[name]
        if isinstance(name, _Tripwire):
            name.place = 0


def place_of(name: str) -> int:
    """Returns the place of an unread attribute among those that the forward has set; 0 for one that it has not, or another."""
    return name.place if isinstance(name, _Tripwire) else 0


class _Unread:
    """Stands for what an unread attribute holds: whatever is done with it is a read."""

    def __init__(self, name: str, reads: Reads) -> None:
        object.__setattr__(self, "told", (name, reads))

    def _tell(self, *_: Any) -> Any:
        name, reads = object.__getattribute__(self, "told")
        raise reads.note(name)

    __getattribute__ = __setattr__ = __delattr__ = __eq__ = __ne__ = __lt__ = __bool__ = __len__ = __iter__ = _tell
    __contains__ = __getitem__ = __setitem__ = __delitem__ = __call__ = __repr__ = __str__ = __format__ = __index__ = _tell
    __hash__ = _tell


class _Tripwires:
    """Places tripwires.

    unread: names that they stand for
    reads: is told of those that are read
    """

    def __init__(self, unread: Iterable[str], reads: Reads) -> None:
        self._unread = frozenset(unread)
        self._reads = reads

    def without_unread(self, table: dict[str, Any]) -> dict[str, Any]:
        """Returns what may be read of a dict."""
        return {name: item for name, item in dict.items(table) if name not in self._unread}

    def place(self, table: dict[str, Any], names: Iterable[str]) -> None:
        """Adds tripwires to the copy of a dict that has all of `names`, in their order, but the unread ones, there or not."""
        held = {f"{name}": item for name, item in table.items()}  # a tensor may have had tripwires in an earlier copy
        table.clear()
        for name in dict.fromkeys([*names, *sorted(self._unread)]):
            if name in self._unread:
                table[_tripwire(name, self._reads)] = _Unread(name, self._reads)
            else:
                table[name] = held[name]


class _PartlyRead(_Tripwires, Attributed):
    def attributes(self, value: Any) -> dict[str, Any]:
        return self.without_unread(super().attributes(value))

    def fill(self, value: Any, made: Any, of: Of) -> None:
        super().fill(value, made, of)
        self.place(made.__dict__, super().attributes(value))


class _PartlyReadObject(_PartlyRead, ObjectCopier):
    """Copies a module some of whose attributes are taken to be unread."""


class _PartlyReadTensor(_PartlyRead, TensorCopier):
    """Copies a parameter or buffer on which attributes are set that are taken to be unread."""


class _PartlyReadTable(_Tripwires, DictCopier):
    """Copies the dict of a module's buffers some of which are taken to be unread."""

    def parts(self, value: Any) -> Iterable[Any]:
        """Returns what may be read."""
        return super().parts(self.without_unread(value))

    def fill(self, value: Any, made: Any, of: Of) -> None:
        """Adds the items, and the tripwires."""
        super().fill(self.without_unread(value), made, of)
        self.place(made, value)


def copier_of(owner: Any, unread: Iterable[str], reads: Reads) -> Copier:
    """Returns what copies a module, a tensor or the dict of a module's buffers with tripwires."""
    if isinstance(owner, torch.Tensor):
        return _PartlyReadTensor(unread, reads)
    return _PartlyReadTable(unread, reads) if type(owner) is dict else _PartlyReadObject(unread, reads)
