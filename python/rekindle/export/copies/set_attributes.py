"""Sees which attributes of its modules a forward sets: a graph sets the same ones at each run.

An example: the forward of a layer ends with `self.aux_loss = loss`, which only the training loop reads. Traced on a copy whose
`aux_loss` tells when it is read (export/copies/tripwires.py), it gives a graph with one more result, and the contract says that
the layer's `aux_loss` gets it. What `aux_loss` held before is no part of the key. Had the key had it, the trace would end with
SetsAttributes, and the call would be described again without.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from torch import nn

from rekindle.export.copies.tripwires import place_of, put_back
from rekindle.export.request import Call
from rekindle.key.module_tree import is_attribute, module_paths
from rekindle.key.values.walker import attribute_path
from rekindle.modules.module_tables import named_modules
from rekindle.modules.proxy import unwrapped
from rekindle.reasons import Bypass, Reason, SetsAttributes
from rekindle.results.structure import WithAttributes
from rekindle.sizes.traced_sizes import is_traced

# What torch's recurrent layers derive from their parameters whenever these are others.
_FLAT_WEIGHTS = ("_flat_weights", "_flat_weight_refs")

Place = tuple[str, str]  # the module's name, and the attribute's


@dataclass(frozen=True)
class _Set:
    """Holds one attribute that was set."""

    owner: str  # name of the module in the tree
    module: nn.Module
    name: str
    before: Any
    value: Any

    @property
    def title(self) -> str:
        return f"{type(self.module).__name__}.{self.name}"


class SetAttributes:
    """Knows the attributes of the modules of a private copy as they are when it is made, before a forward runs."""

    def __init__(self, private: Call) -> None:
        self._root = private.module
        modules = {name: unwrapped(module) for name, module in named_modules(private.module).items()}
        once = {id(module): (name, module) for name, module in reversed(modules.items())}  # by its first name
        self._before = [(name, module, dict(module.__dict__)) for name, module in reversed(once.values())]
        copies = ((private.copied.get(id(owner)), name) for owner, name in private.unread)
        self._unread = {(id(owner), name) for owner, name in copies}
        self.places: list[Place] = []  # of those that the forward was seen to set

    def with_result(self, result: Any) -> Any:
        """Returns what a forward returned, with what it has set where it has set anything, and puts back what was there.

        Raises SetsAttributes where the key has one of them, and Bypass(state_mutated) where no graph can set it.
        """
        found = [one for name, module, before in self._before for one in self._changed(name, module, before)]
        found = [one for one in found if not (self._is_in_key(one) and _is_still(one.before, one.value))]
        in_key = [one for one in found if self._is_in_key(one)]
        if in_key:
            paths = module_paths(self._root)
            where = [attribute_path(paths[id(one.module)][0], one.name) for one in in_key if id(one.module) in paths]
            raise SetsAttributes(f"the forward changes the attribute {in_key[0].title}; keep state in buffers", where)
        self.places = [(one.owner, one.name) for one in found]
        return WithAttributes(result, [(one.title, one.value) for one in found]) if found else result

    def _is_in_key(self, one: _Set) -> bool:
        return (id(one.module), one.name) not in self._unread

    @staticmethod
    def _changed(owner: str, module: nn.Module, before: dict[str, Any]) -> list[_Set]:
        derived = _FLAT_WEIGHTS if isinstance(module, nn.RNNBase) else ()
        now = dict(module.__dict__)
        changed = [name for name in {**before, **now} if now.get(name, _ABSENT) is not before.get(name, _ABSENT)]
        changed.sort(key=place_of)
        changes = [(f"{name}", before.get(name, _ABSENT), now.get(name, _ABSENT)) for name in changed]
        found = [_Set(owner, module, *change) for change in changes if change[0] not in derived]
        refused = next((one for one in found if one.value is _ABSENT or not is_attribute(one.name)), None)
        if refused is not None:
            raise Bypass(Reason.STATE_MUTATED, f"the forward changes the attribute {refused.title}; keep state in buffers")
        put_back(module.__dict__, before, changed)
        return found


def _is_still(before: Any, value: Any) -> bool:
    """Tells whether a plain value was set to what it was; a size is asked whether it is that, which the graph depends on then."""
    if is_traced(value):
        return type(before) is int and before == value.value and bool(value == before)
    return type(value) is type(before) and type(value) in _PLAIN and repr(value) == repr(before)


_ABSENT = object()
_PLAIN = (bool, int, float, str)
