"""Makes the kinds of objects of Python classes; see `walker.Walker`.

Their leaves are the class's code, the content of what the object is made of, attributes and slots.
"""

from __future__ import annotations

import types
import weakref
from collections import OrderedDict, defaultdict
from functools import partial
from typing import Any

from rekindle.key.values.cells import OBJECT, Cells
from rekindle.key.values.library_members import add_class_members
from rekindle.key.values.walker import IMMUTABLE, Kind, Walker, handles, kinds
from rekindle.process.origin import is_covered_class, is_heap_class

_MANAGED_WEAK, _MANAGED_DICT = 1 << 3, 1 << 4
_POINTER = object.__basicsize__ // 2

# Fields of library objects that name where a thing came from and never change what a forward computes, by package and class.
# The hash in GenerationConfig is that of its text and differs from process to process. A recurrent layer's references are to its
# parameters, or to those that stood in their places before.
VOLATILE_FIELDS = {
    ("transformers", "PreTrainedConfig"): frozenset({"_name_or_path", "_commit_hash", "transformers_version"}),
    ("transformers", "PretrainedConfig"): frozenset({"_name_or_path", "_commit_hash", "transformers_version"}),
    ("transformers", "PreTrainedModel"): frozenset({"name_or_path"}),
    ("transformers", "GenerationConfig"): frozenset({"_original_object_hash", "_commit_hash", "transformers_version"}),
    ("torch", "RNNBase"): frozenset({"_flat_weight_refs"}),
}

_CONTAINERS = (OrderedDict, defaultdict, dict, list, tuple, set, frozenset)
_COPIED = (object, *_CONTAINERS, str, int, float, bytes, partial)  # what copied classes are made of

Slot = tuple[str, types.MemberDescriptorType]
UNSET = object()  # what an empty slot holds
_slots_of_modules: weakref.WeakKeyDictionary[type, list[Slot]] = weakref.WeakKeyDictionary()


@handles(object, cells=IMMUTABLE, by_identity=True)
def _sentinel(walker: Walker, path: str, value: object) -> None:
    walker.leaves.append((path, "object()"))


def volatile_fields(cls: type) -> frozenset[str]:
    """Returns the names of attributes that are left out for instances of a class."""
    for base in cls.__mro__:
        place = (base.__module__.partition(".")[0], base.__name__)
        if place in VOLATILE_FIELDS:
            return VOLATILE_FIELDS[place]
    return frozenset()


def _content(value: Any, member: types.MemberDescriptorType) -> Any:
    try:
        return member.__get__(value)
    except AttributeError:
        return UNSET


def slots_of(cls: type, base: type = object) -> list[Slot]:
    """Returns (name, descriptor) of every slot that a class has and the builtin class below it has not."""
    own = [cls_ for cls_ in cls.__mro__ if cls_ not in base.__mro__]
    return [item for cls_ in own for item in vars(cls_).items() if type(item[1]) is types.MemberDescriptorType]


def _slot_cells(slots: list[Slot]) -> Cells:
    """Returns the cells of an object's slots."""

    def put_back(value: Any, parts: tuple[Any, ...]) -> None:
        for (_, member), before in zip(slots, parts, strict=True):
            if _content(value, member) is before:
                continue
            if before is UNSET:
                member.__delete__(value)
            else:
                member.__set__(value, before)

    return Cells("object", lambda value: tuple(_content(value, member) for _, member in slots), put_back)


def add_slots(walker: Walker, path: str, value: Any, slots: list[Slot]) -> None:
    """Adds the leaves of what the slots of an object hold."""
    for name, member in slots:
        item = _content(value, member)
        if item is UNSET:
            walker.leaves.append((f"{path}.{name}", "unset slot"))
        elif not walker.left_out(path, type(value), name):
            walker.walk(f"{path}.{name}", item)


def watch_slots(walker: Walker, path: str, value: Any) -> None:
    """Adds the leaves of the slots of a module, and what watches them."""
    slots = _slots_of_modules.get(type(value))
    if slots is None:
        slots = _slots_of_modules[type(value)] = slots_of(type(value))
    if slots:
        walker.watch(value, _slot_cells(slots))
        add_slots(walker, path, value, slots)


def object_kind(cls: type) -> Kind | None:
    """Returns the kind of the instances of a Python class, or None if some of their state cannot be seen.

    State can be seen in attributes, in slots, and in what is known of the one builtin class that they are made of.
    """
    if not is_heap_class(cls):
        return None
    base = _made_of(cls)
    if base is None or _unexplained_size(cls, base) > 0:
        return None
    slots = slots_of(cls, base)
    inner = kinds[base]
    skipped, exact = volatile_fields(cls), inner.exact
    held_weakly = exact is None and cls.__weakrefoffset__ != 0

    def leaves(walker: Walker, path: str, value: Any) -> None:
        walker.leaves.append((path, f"object {walker.add_class(cls)}"))
        if not walker.deep_classes and is_covered_class(cls):  # only named
            add_class_members(walker, path, cls)
        if held_weakly:
            walker.weak.add(id(value))
        if exact is not None:
            inner.leaves(walker, f"{path}.content", exact(value))
        walker.attributes(path, value, skipped)
        add_slots(walker, path, value, slots)

    cells = [OBJECT, *(one for one in inner.cells if one is not OBJECT)]
    watched = (*cells, _slot_cells(slots)) if slots else tuple(cells)
    return Kind(leaves, watched, True, shared=not is_copied(cls))


def is_copied(cls: type) -> bool:
    """Tells whether private copies may have instances of a Python class of their own, where these lead to a tensor."""
    builtin = next(base for base in cls.__mro__ if not is_heap_class(base))
    return builtin in _COPIED and not any("__del__" in vars(base) for base in cls.__mro__)


def _made_of(cls: type) -> type | None:
    """Returns the class in the MRO whose kind tells what is not in attributes and slots; None if there is none, or several."""
    base = next(found for found in cls.__mro__ if found is object or (found in kinds and kinds[found].exact is not None))
    builtin = (found for found in cls.__mro__ if not is_heap_class(found))
    return base if all(found in base.__mro__ for found in builtin) else None


def _unexplained_size(cls: type, base: type) -> int:
    """Counts the bytes of an instance that its builtin base, slots and instance dict do not account for: state held in C."""
    size = cls.__basicsize__ - base.__basicsize__ - _POINTER * len(slots_of(cls, base))
    if cls.__dictoffset__ and not base.__dictoffset__ and not cls.__flags__ & _MANAGED_DICT:
        size -= _POINTER
    if cls.__weakrefoffset__ and not base.__weakrefoffset__ and not cls.__flags__ & _MANAGED_WEAK:
        size -= _POINTER
    return size
