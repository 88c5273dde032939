"""Handler for objects of Python classes: the class's code and all their state; see `values.Walker`."""

from __future__ import annotations

import collections
import types
from typing import Any

from rekindle.fingerprint.containers import items, sequence, unordered
from rekindle.fingerprint.values import Walker, attribute_path, handlers, handles

_HEAP_TYPE = 1 << 9
_POINTER = object.__basicsize__ // 2
_PLAIN_BASES = (object, dict, list, tuple, set, frozenset, str, int, float, bytes)
_PLAIN_BASES += (collections.OrderedDict, collections.defaultdict)

# Whether all state of a class's instances is visible; checked once per class.
_object_classes: dict[type, bool] = {}
# Fields of library objects that name where a thing came from and never change what a forward computes. The
# hash in GenerationConfig is that of its text and differs from process to process.
VOLATILE_FIELDS = {
    "PreTrainedConfig": frozenset({"_name_or_path", "_commit_hash", "transformers_version"}),
    "PretrainedConfig": frozenset({"_name_or_path", "_commit_hash", "transformers_version"}),
    "PreTrainedModel": frozenset({"name_or_path"}),
    "GenerationConfig": frozenset({"_original_object_hash", "_commit_hash", "transformers_version"}),
}


@handles(object)
def _sentinel(walker: Walker, path: str, value: object) -> None:
    if not walker.seen(path, value):
        walker.leaves.append((path, "object()"))


def _unexplained_size(cls: type, builtin: type) -> int:
    """Bytes of an instance that its builtin base, slots and instance dict do not account for: state held in
    C."""
    size = cls.__basicsize__ - builtin.__basicsize__
    for base in cls.__mro__:
        size -= _POINTER * sum(type(member) is types.MemberDescriptorType for member in vars(base).values())
    return size - _POINTER * (bool(cls.__dictoffset__) + bool(cls.__weakrefoffset__))


def volatile_fields(cls: type) -> frozenset[str]:
    """Names of attributes that are left out for instances of a class."""
    for base in cls.__mro__:
        if base.__name__ in VOLATILE_FIELDS and base.__module__.startswith("transformers."):
            return VOLATILE_FIELDS[base.__name__]
    return frozenset()


def plain_object(walker: Walker, path: str, value: Any) -> None:
    """Any object of a Python class: its class's code, its attributes, and its items if it is a container
    too."""
    if walker.seen(path, value):
        return
    cls = type(value)
    walker.leaves.append((path, f"object {walker.add_class(cls)}"))
    walker.containers.append(value)  # its class may be changed
    for base in (dict, list, tuple, set, frozenset, str, int, float, bytes):
        if isinstance(value, base):
            _base_content(walker, path, base, value)
            break
    attributes = getattr(value, "__dict__", None)
    if attributes:
        walker.containers.append(attributes)
        skipped = volatile_fields(cls)
        for name, item in attributes.items():
            if name not in skipped and not walker.left_out(path, cls, name):
                walker.walk(attribute_path(path, name), item)
    slots(walker, path, value)


UNSET = object()  # what an empty slot holds


def slot_members(value: Any) -> list[tuple[str, types.MemberDescriptorType, Any]]:
    """(name, descriptor, content or UNSET) of every slot of an object."""
    cls = type(value)
    members = [item for base in cls.__mro__ for item in vars(base).items() if type(item[1]) is types.MemberDescriptorType]
    found: list[tuple[str, types.MemberDescriptorType, Any]] = []
    for name, member in members:
        try:
            found.append((name, member, member.__get__(value, cls)))
        except AttributeError:
            found.append((name, member, UNSET))
    return found


def slot_contents(value: Any) -> tuple[Any, ...]:
    """What the slots of an object hold, in the order of slot_members."""
    return tuple(item for _, _, item in slot_members(value))


def slots(walker: Walker, path: str, value: Any) -> None:
    """Leaves of what the slots of an object hold."""
    found = slot_members(value)
    if found:
        walker.reads.append((value, slot_contents))
    for name, _, item in found:
        if item is UNSET:
            walker.leaves.append((f"{path}.{name}", "unset slot"))
        elif not walker.left_out(path, type(value), name):
            walker.walk(f"{path}.{name}", item)


def _base_content(walker: Walker, path: str, base: type, value: Any) -> None:
    if base in (dict, list, set):
        walker.containers.append(value)
    if base is dict:
        items(walker, f"{path}.items", "dict", dict.items(value))
        if isinstance(value, collections.defaultdict):
            walker.walk(f"{path}.default_factory", value.default_factory)
    elif base in (list, tuple):
        sequence(walker, f"{path}.items", tuple(base.__iter__(value)))
    elif base in (set, frozenset):
        unordered(walker, f"{path}.items", frozenset(base.__iter__(value)))
    else:
        convert = {str: str.__str__, int: int.__int__, float: float.__float__, bytes: bytes.__bytes__}[base]
        handlers[base](walker, f"{path}.value", convert(value))


def is_plain_class(cls: type) -> bool:
    """Whether all state of an instance is visible: attributes, slots, and the items of a builtin base."""
    known = _object_classes.get(cls)
    if known is None:
        builtin_bases = [base for base in cls.__mro__ if not base.__flags__ & _HEAP_TYPE]
        plain = all(base in _PLAIN_BASES for base in builtin_bases)
        if plain:
            plain = _unexplained_size(cls, builtin_bases[0]) <= 0
        known = _object_classes[cls] = plain and bool(cls.__flags__ & _HEAP_TYPE)
    return known
