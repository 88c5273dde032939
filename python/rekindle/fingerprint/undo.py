"""What an export's runs of the user's code change, put back: that code runs once more for the call itself."""

from __future__ import annotations

import collections
import contextlib
import contextvars
import sys
import types
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy
import torch

from rekindle.fingerprint import Fingerprint
from rekindle.fingerprint.classes import walk_members
from rekindle.fingerprint.objects import UNSET, slot_contents, slot_members
from rekindle.fingerprint.origin import is_covered_class
from rekindle.fingerprint.values import Walker
from rekindle.reasons import Bypass, Reason

_HEAP_TYPE = 1 << 9
_ABSENT = object()


class Undo:
    """The state that a fingerprint, and walks of a recorder, met, as it was when they met it.

    Containers, attributes, slots, closures, class attributes and names of modules are compared by the identity of what they
    hold, tensors, arrays and bytearrays by their bytes. Not thread-safe.
    """

    def __init__(self, fingerprint: Fingerprint) -> None:
        self._kept: dict[Any, tuple[Any, Any, _Kind]] = {}
        self._keep_parts(fingerprint, fingerprint.classes)

    def keep_walk(self, walk: Walker) -> None:
        """All that a walk met."""
        self._keep_parts(walk, walk.classes.values())

    def keep_name(self, module: str, name: str) -> None:
        """What a name stands for in a module, and the classes on the way to the end of a chain of attributes."""
        namespace = vars(sys.modules.get(module, object))
        first, *rest = name.split(".")
        if not isinstance(namespace, dict):
            return
        self._kept.setdefault((id(namespace), first), ((namespace, first), (namespace.get(first, _ABSENT),), _BINDING))
        value = namespace.get(first)
        for attribute in [*rest, ""]:
            if isinstance(value, type):
                self._keep_class(value)
            value = getattr(value, "__dict__", {}).get(attribute)

    @contextlib.contextmanager
    def around(self) -> Iterator[None]:
        """Put everything back at the end. Raises Bypass(state_mutated) if anything had changed, unless the body raised."""
        try:
            yield
        finally:
            changed = self._put_back()
        if changed is not None:
            raise Bypass(Reason.STATE_MUTATED, f"the forward changes {changed}; keep state in buffers")

    def _keep_parts(self, found: Walker | Fingerprint, classes: Iterable[type]) -> None:
        self._keep(
            [*found.containers, *found.functions, *(item for _, item in found.tensors), *(item for item, _ in found.reads)]
        )
        for cls in classes:
            self._keep_class(cls)

    def _keep_class(self, cls: type) -> None:
        for base in cls.__mro__:
            if id(base) in self._kept or not base.__flags__ & _HEAP_TYPE or is_covered_class(base):
                continue
            self._keep([base])
            members = walk_members(base)
            self._keep([*members.containers, *members.functions, *(item for _, item in members.tensors)])

    def _keep(self, values: Iterable[Any]) -> None:
        for value in values:
            kind = _kind_of(value) if id(value) not in self._kept else None
            if kind is not None:
                self._kept[id(value)] = (value, kind.parts(value), kind)

    def _put_back(self) -> str | None:
        """Returns what had changed first, in words."""
        changed = None
        for value, before, kind in self._kept.values():
            if not kind.same(kind.parts(value), before):
                changed = changed or kind.title(value, before)
                kind.restore(value, before)
        return changed


class _Kind:
    """How one kind of state is taken, compared, put back and named."""

    def __init__(
        self,
        parts: Callable[[Any], Any],
        restore: Callable[[Any, Any], None],
        title: Callable[[Any, Any], str],
        same: Callable[[Any, Any], bool],
    ) -> None:
        self.parts, self.restore, self.title, self.same = parts, restore, title, same


def _identical(now: tuple[Any, ...], before: tuple[Any, ...]) -> bool:
    return len(now) == len(before) and all(a is b for a, b in zip(now, before, strict=True))


def _pairs(parts: tuple[Any, ...]) -> list[tuple[Any, Any]]:
    return list(zip(parts[::2], parts[1::2], strict=True))


def _items(pairs: Any) -> tuple[Any, ...]:
    return tuple(part for pair in pairs for part in pair)


def _base(value: dict[Any, Any]) -> type[dict[Any, Any]]:
    return OrderedDict if isinstance(value, OrderedDict) else dict


def _dict_parts(value: dict[Any, Any]) -> tuple[Any, ...]:
    return _items(_base(value).items(value))


def _restore_dict(value: dict[Any, Any], parts: tuple[Any, ...]) -> None:
    base = _base(value)
    base.clear(value)
    for key, item in _pairs(parts):
        base.__setitem__(value, key, item)


def _restore_list(value: list[Any], parts: tuple[Any, ...]) -> None:
    list.__setitem__(value, slice(None), parts)


def _restore_set(value: set[Any], parts: tuple[Any, ...]) -> None:
    set.clear(value)
    set.update(value, parts)


def _restore_deque(value: collections.deque[Any], parts: tuple[Any, ...]) -> None:
    value.clear()
    value.extend(parts)


def _restore_class(value: type, parts: tuple[Any, ...]) -> None:
    before, now = dict(_pairs(parts)), dict(vars(value))
    for name in now.keys() - before.keys():
        type.__delattr__(value, name)
    for name, item in before.items():
        if now.get(name, _ABSENT) is not item:
            type.__setattr__(value, name, item)


def _function_parts(value: types.FunctionType) -> tuple[Any, ...]:
    cells = tuple(map(_cell_content, value.__closure__ or ()))
    return (len(cells), *cells, *_items(vars(value).items()))


def _cell_content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _ABSENT


def _restore_function(value: types.FunctionType, parts: tuple[Any, ...]) -> None:
    count = parts[0]
    for cell, content in zip(value.__closure__ or (), parts[1 : 1 + count], strict=True):
        if content is not _ABSENT:
            cell.cell_contents = content
    vars(value).clear()
    vars(value).update(_pairs(parts[1 + count :]))


def _restore_slots(value: Any, parts: tuple[Any, ...]) -> None:
    for (_, member, now), before in zip(slot_members(value), parts, strict=True):
        if now is before:
            continue
        if before is UNSET:
            member.__delete__(value)
        else:
            member.__set__(value, before)


def _restore_variable(value: contextvars.ContextVar[Any], parts: tuple[Any, ...]) -> None:
    if parts[0] is not _ABSENT:
        value.set(parts[0])


def _restore_binding(value: tuple[dict[str, Any], str], parts: tuple[Any, ...]) -> None:
    namespace, name = value
    if parts[0] is _ABSENT:
        del namespace[name]
    else:
        namespace[name] = parts[0]


def _tensor_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8)


def _restore_tensor(tensor: torch.Tensor, content: torch.Tensor) -> None:
    with torch.no_grad():
        tensor.copy_(content.view(tensor.dtype).reshape(tensor.shape))


def _restore_array(array: Any, content: Any) -> None:
    array[...] = content


def _same_bytes(now: Any, before: Any) -> bool:
    return bool(now.shape == before.shape and now.tobytes() == before.tobytes())


def _sized(value: Any, parts: Any) -> str:
    count = len(parts) // 2 if isinstance(value, dict) else len(parts)
    return f"a {type(value).__name__} of {count} items that its module holds or reads"


def _named(value: Any, _: Any) -> str:
    return f"{value.__module__}.{value.__qualname__}"


def _typed(value: Any, _: Any) -> str:
    return f"a {type(value).__module__}.{type(value).__qualname__}"


def _bound(value: tuple[dict[str, Any], str], _: Any) -> str:
    return f"global {value[0].get('__name__')}.{value[1]}"


_BINDING = _Kind(lambda value: (value[0].get(value[1], _ABSENT),), _restore_binding, _bound, _identical)
_CLASS = _Kind(lambda value: _items(vars(value).items()), _restore_class, _named, _identical)
_SLOTS = _Kind(slot_contents, _restore_slots, _typed, _identical)
_BY_TYPE: tuple[tuple[type, _Kind], ...] = (
    (dict, _Kind(_dict_parts, _restore_dict, _sized, _identical)),
    (list, _Kind(lambda value: tuple(list.__iter__(value)), _restore_list, _sized, _identical)),
    (set, _Kind(lambda value: tuple(sorted(set.__iter__(value), key=id)), _restore_set, _sized, _identical)),
    (collections.deque, _Kind(tuple, _restore_deque, _sized, _identical)),
    (types.FunctionType, _Kind(_function_parts, _restore_function, _named, _identical)),
    (contextvars.ContextVar, _Kind(lambda value: (value.get(_ABSENT),), _restore_variable, _typed, _identical)),
    (torch.Tensor, _Kind(_tensor_bytes, _restore_tensor, _typed, torch.equal)),
    (numpy.ndarray, _Kind(numpy.copy, _restore_array, _typed, _same_bytes)),
    (bytearray, _Kind(bytes, lambda value, content: value.__setitem__(slice(None), content), _typed, bytes.__eq__)),
)  # fmt: skip


def _kind_of(value: Any) -> _Kind | None:
    if isinstance(value, type):
        return _CLASS
    for base, kind in _BY_TYPE:
        if isinstance(value, base):
            return kind
    return _SLOTS if slot_members(value) else None
