"""Learns which attributes of its modules a forward need not have in its key: those that it never reads.

An example: PyTorch's reinforce example keeps `policy.saved_log_probs`, tensors with gradients that only the training loop reads.
They have no digest, so that the second call would have no key. What the attribute holds is left out then, and the export of that
call runs on a copy of the module whose attribute tells when anybody looks it up (export/copies/tripwires.py). Nobody does: the
graph serves all further calls, whatever the list holds. Had the forward read it, the call would run in eager.

An attribute that changes between calls, as `policy.rewards`, is tried in the same way; one that the forward reads is part of the
key again.

So is one that the forward sets before it reads it, as `self.aux_loss = loss`: the graph of a forward that is known not to read
what an attribute held sets it, too (export/copies/set_attributes.py).

A plain tensor that changes, as `model.weights = torch.tensor([1.0, 2.0])` at each epoch, is an input of the next graph, as
buffers are. If that graph cannot be made, as the forward asks for a number, the numbers are part of the key.
"""

from __future__ import annotations

from collections.abc import Callable

from torch import nn

from rekindle.key.fingerprint import Fields, Fingerprint, first_difference
from rekindle.key.module_tree import module_paths
from rekindle.key.values.walker import attribute_path
from rekindle.reasons import Bypass, ReadsAttribute, SetsAttributes

_OF_ZERO = ("_hp_mapping", "_index_in_param_group")  # what ZeRO 1 and 2 set, the latter in the rank that owns the parameter
_MOST_READ = 16  # attributes that were taken to be unread and are not: after so many no other is tried


class UnreadAttributes:
    """Keeps the paths of attributes that the forward of one module is taken not to read, and of those that it does read."""

    def __init__(self) -> None:
        self.paths: frozenset[str] = frozenset()
        self.changing: frozenset[str] = frozenset()  # of plain tensors whose numbers change between calls
        self._read: set[str] = set()
        self._constant: set[str] = set()  # paths of those that no graph takes as inputs
        self._taken: frozenset[str] = frozenset()  # those in `changing` that a graph takes
        self._fields: Fields = []  # of the call that a graph was last made or found for

    def leave_out_of_zero(self, module: nn.Module) -> None:
        """Leaves out what DeepSpeed's ZeRO sets on parameters: it leads to the optimizer of all, or is of one rank.

        By its number, which stays, the linear layers of ZeRO 3 know a parameter.
        """
        for path, one in module_paths(module).values():
            for name, parameter in one._parameters.items():  # type: ignore[attr-defined]
                if hasattr(parameter, "ds_id") or hasattr(parameter, _OF_ZERO[0]):
                    place, others = attribute_path(path, name), {*vars(parameter), *_OF_ZERO} - {"ds_id"}
                    self._add([attribute_path(place, attribute) for attribute in others])

    def leave_out(self, bypass: Bypass) -> bool:
        """Leaves out the attribute for which a call has no key; returns False without one, or if it is known to be read."""
        return bypass.attribute is not None and self._add([bypass.attribute])

    def leave_out_changed(self, fingerprint: Fingerprint) -> bool:
        """Leaves out what is another than when a graph was last made or found; returns whether there is anything.

        Of plain tensors like those before only the numbers are left out: a graph may take them as it does buffers.
        """
        if not self._fields or self._fields == fingerprint.fields:
            return False
        before = dict(self._fields)
        now = dict(fingerprint.fields)
        changed = {name for name in before.keys() | now.keys() if before.get(name, _ABSENT) != now.get(name, _ABSENT)}
        others = {name for name in changed if _has_other_numbers(before.get(name), now.get(name))}
        if self._take(others):
            return True
        changed -= others & self.changing
        known = {*fingerprint.attributes}
        return self._add([path for path in map(_owner_in(known), changed) if path is not None])

    def leave_out_set(self, bypass: SetsAttributes) -> bool:
        """Leaves out attributes that the forward sets; returns False where all of them are known to be read or left out."""
        return self._add(bypass.paths)

    def keep(self, fingerprint: Fingerprint) -> None:
        """Keeps what the key of a call is made of that a graph is made or found for."""
        self._fields = fingerprint.fields
        self._taken = self.changing

    def last_change(self, fingerprint: Fingerprint) -> str | None:
        """Returns what is another than when a graph was last made or found, as `model.beta: 0.99 -> 0.98`, or None."""
        return first_difference(self._fields, fingerprint.fields) if self._fields else None

    def note_read(self, bypass: ReadsAttribute) -> bool:
        """Takes an attribute into the key again: all of that name, or, where all of an object is read, all.

        Returns whether there are any.
        """
        read = {path for path in self.paths if not bypass.name or _name(path) == bypass.name}
        self._read |= read
        self.paths -= read
        return bool(read)

    def take_as_constants(self) -> bool:
        """Takes the numbers of tensors into the key again of which no graph was made yet; returns whether there are any."""
        failed = self.changing - self._taken
        self._constant |= failed
        self.changing = self._taken
        return bool(failed)

    def _take(self, paths: set[str]) -> bool:
        new = paths - self._constant - self.changing
        self.changing |= new
        return bool(new)

    def _add(self, paths: list[str]) -> bool:
        if len(self._read) >= _MOST_READ:
            return False
        new = {path for path in paths if path not in self._read} - self.paths
        self.paths |= new
        return bool(new)


_ABSENT = object()


def _has_other_numbers(before: object, now: object) -> bool:
    """Tells whether two fields are of plain tensors that differ in no more than their numbers; see key/values/tensors.py."""
    like = _like(before)
    return like is not None and like == _like(now)


def _like(field: object) -> str | None:
    """Returns the text of a plain tensor in a key without its numbers, if they stand there; None for another field."""
    kind, _, text = field.partition(" ") if isinstance(field, str) else ("", "", "")
    return {"content": text.rpartition(" ")[0], "bound": text}.get(kind)


def _name(path: str) -> str:
    return path.rpartition(".")[2]


def _owner_in(known: set[str]) -> Callable[[str], str | None]:
    """Returns a function that gives the attribute in `known` that a field of the key is of; None for a field of none."""

    def owner(field: str) -> str | None:
        while field and field not in known:
            field = field[: max(field.rfind("."), field.rfind("["), 0)]
        return field or None

    return owner
