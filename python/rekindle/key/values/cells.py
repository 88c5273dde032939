"""Takes, compares and puts back cells: the parts of a value that can change after it was digested.

Cells are compared at each call, and put back after a trial run of the user's code. For a list `value = [1, 2]`:

    before = LIST.take(value)               # (1, 2)
    value.append(3)                         # what a trial run may do
    LIST.same(LIST.take(value), before)     # False
    LIST.put_back(value, before)            # the same list, [1, 2] again
"""

from __future__ import annotations

import collections
import contextvars
import functools
import sys
import types
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy
import torch

from rekindle.key.code.module_names import is_of_library

Parts = Any
ABSENT = object()


def _identical(now: tuple[Any, ...], before: tuple[Any, ...]) -> bool:
    return len(now) == len(before) and all(a is b for a, b in zip(now, before, strict=True))


def _typed(value: Any, _: Any) -> str:
    return f"a {type(value).__module__}.{type(value).__qualname__}"


@dataclass(frozen=True, eq=False)
class Cells:
    """Describes how one kind of mutable parts is taken, compared, put back and named.

    how: what a guard does, as of _native.Guard: "content", "object" or "bytes"; None: it calls `take`, whose result is then a
        tuple
    take: returns the parts of a value as they are now
    put_back: changes what differs from parts taken before, and nothing else; None: what happens to them is no concern of a trial
        run
    title: returns words for a value, and its parts, that had changed
    same: tells whether two results of `take` are equal
    is_effect: tells whether a change, from parts to parts, is one that a graph would leave out
    unread: names of attributes that a guard of an "object" does not compare, there or not
    """

    how: str | None
    take: Callable[[Any], Parts]
    put_back: Callable[[Any, Parts], None] | None
    title: Callable[[Any, Parts], str] = _typed
    same: Callable[[Parts, Parts], bool] = _identical
    is_effect: Callable[[Parts, Parts], bool] = lambda before, now: True
    unread: tuple[str, ...] = ()

    @property
    def comparison(self) -> Any:
        """Returns the comparison in the form that the cells of _native.Guard take; equal ones compare the same."""
        return self.unread or self.how or self.take


def flat(pairs: Any) -> tuple[Any, ...]:
    """Returns the keys and values of (key, value) pairs in a row; `pairs` takes them apart again."""
    return tuple(part for pair in pairs for part in pair)


def pairs(parts: tuple[Any, ...]) -> list[tuple[Any, Any]]:
    """Returns the (key, value) pairs that a flat tuple holds."""
    return list(zip(parts[::2], parts[1::2], strict=True))


def _base(value: dict[Any, Any]) -> type[dict[Any, Any]]:
    return OrderedDict if isinstance(value, OrderedDict) else dict


def _put_back_items(value: dict[Any, Any], parts: tuple[Any, ...]) -> None:
    """Puts back only what changed, key by key: a namespace may have got what Python needs in it."""
    if is_of_library(value):
        return
    base, before = _base(value), pairs(parts)
    kept = {key for key, _ in before}
    for key in [key for key in base.keys(value) if key not in kept and key != "__builtins__"]:
        if not _is_imported(value, key):
            base.__delitem__(value, key)
    for key, item in before:
        if base.get(value, key, ABSENT) is not item:
            base.__setitem__(value, key, item)
    if not _identical(tuple(key for key in base.keys(value) if key in kept), tuple(key for key, _ in before)):
        for key, item in before:
            base.__delitem__(value, key)
            base.__setitem__(value, key, item)


def _is_imported(names: dict[Any, Any], key: Any) -> bool:
    """Tells whether Python has put a module there as it imported it, which it does only once."""
    item = dict.get(names, key)
    return isinstance(item, types.ModuleType) and sys.modules.get(f"{dict.get(names, '__name__')}.{key}") is item


def _put_back_set(value: set[Any], parts: tuple[Any, ...]) -> None:
    set.intersection_update(value, parts)
    set.update(value, parts)


def _put_back_deque(value: collections.deque[Any], parts: tuple[Any, ...]) -> None:
    collections.deque.clear(value)
    collections.deque.extend(value, parts)


def _put_back_class(value: type, parts: tuple[Any, ...]) -> None:
    before, now = dict(pairs(parts)), dict(vars(value))
    for name in now.keys() - before.keys():
        type.__delattr__(value, name)
    for name, item in before.items():
        if now.get(name, ABSENT) is not item:
            type.__setattr__(value, name, item)


_OF_FUNCTIONS = ("__name__", "__qualname__", "__code__", "__defaults__", "__kwdefaults__")


# Of functions: an address, which differs from process to process; and what torch's first call of one keeps for the next ones.
VOLATILE_ATTRIBUTES = frozenset({"_torchdynamo_wrapper_id", "__dynamo_disable"})


def _function_parts(value: types.FunctionType) -> tuple[Any, ...]:
    cells = tuple(map(_cell_content, value.__closure__ or ()))
    attributes = flat(item for item in vars(value).items() if item[0] not in VOLATILE_ATTRIBUTES)
    return (len(cells), *cells, *(getattr(value, name) for name in _OF_FUNCTIONS), *attributes)


def _cell_content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return ABSENT


def _put_back_function(value: types.FunctionType, parts: tuple[Any, ...]) -> None:
    count = parts[0]
    for cell, content in zip(value.__closure__ or (), parts[1 : 1 + count], strict=True):
        if content is not _cell_content(cell):
            if content is ABSENT:
                del cell.cell_contents
            else:
                cell.cell_contents = content
    for name, before in zip(_OF_FUNCTIONS, parts[1 + count :], strict=False):
        if getattr(value, name) is not before:
            setattr(value, name, before)
    _put_back_items(vars(value), parts[1 + count + len(_OF_FUNCTIONS) :])


def own_dict(value: Any) -> dict[str, Any] | None:
    """Returns the dict of an object's attributes, whatever its class makes of the name `__dict__`; None if it has none."""
    if not type(value).__dictoffset__:
        return None
    for base in type(value).__mro__:
        member = vars(base).get("__dict__")
        if type(member) in (types.GetSetDescriptorType, types.MemberDescriptorType):
            found = member.__get__(value)
            return found if isinstance(found, dict) else None
    return None


def _object_parts(value: Any) -> tuple[Any, ...]:
    attributes = own_dict(value)
    return (type(value), attributes, *flat((attributes or {}).items()))


def _put_back_object(value: Any, parts: tuple[Any, ...]) -> None:
    cls, attributes, *items = parts
    if type(value) is not cls:
        object.__setattr__(value, "__class__", cls)
    if own_dict(value) is not attributes:
        object.__setattr__(value, "__dict__", attributes)
    if attributes is not None and not _identical(flat(attributes.items()), tuple(items)):
        _put_back_items(attributes, tuple(items))


def _put_back_variable(value: contextvars.ContextVar[Any], parts: tuple[Any, ...]) -> None:
    """Sets a variable as it was; one that was unset and has been set in between cannot be unset without its token."""
    if parts[0] is not ABSENT:
        value.set(parts[0])


def _put_back_binding(value: tuple[dict[str, Any], str], parts: tuple[Any, ...]) -> None:
    namespace, name = value
    if parts[0] is ABSENT:
        namespace.pop(name, None)
    else:
        namespace[name] = parts[0]


def _tensor_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone(memory_format=torch.contiguous_format).reshape(-1).view(torch.uint8)


def _put_back_tensor(tensor: torch.Tensor, content: torch.Tensor) -> None:
    with torch.no_grad():
        tensor.copy_(content.view(tensor.dtype).reshape(tensor.shape))


def _put_back_array(array: Any, content: Any) -> None:
    if array.dtype != content.dtype:
        array.dtype = content.dtype
    if array.shape != content.shape:
        array.shape = content.shape
    if not _same_bytes(array, content):
        differs = _array_bytes(array) != _array_bytes(content)
        array[differs.any(-1)] = content[differs.any(-1)]


def _array_bytes(array: Any) -> Any:
    return numpy.frombuffer(array.tobytes(), numpy.uint8).reshape(*array.shape, array.itemsize)


def _same_bytes(now: Any, before: Any) -> bool:
    return bool(now.shape == before.shape and now.dtype == before.dtype and now.tobytes() == before.tobytes())


def _sized(value: Any, parts: Any) -> str:
    count = len(parts) // 2 if isinstance(value, dict) else len(parts)
    return f"a {type(value).__name__} of {count} items that its module holds or reads"


def named(value: Any, _: Any) -> str:
    """Returns the full name of a function or class."""
    return f"{value.__module__}.{value.__qualname__}"


def _bound(value: tuple[dict[str, Any], str], _: Any) -> str:
    return f"global {value[0].get('__name__')}.{value[1]}"


ITEMS = Cells("content", lambda value: flat(_base(value).items(value)), _put_back_items, _sized)
LIST = Cells(
    "content", lambda value: tuple(list.__iter__(value)), lambda value, parts: list.__setitem__(value, slice(None), parts), _sized
)
SET = Cells("content", lambda value: tuple(sorted(set.__iter__(value), key=id)), _put_back_set, _sized)
DEQUE = Cells(None, lambda value: tuple(collections.deque.__iter__(value)), _put_back_deque, _sized)
FUNCTION = Cells("content", _function_parts, _put_back_function, named)
CLASS = Cells("content", lambda value: flat(vars(value).items()), _put_back_class, named)
OBJECT = Cells("object", _object_parts, _put_back_object)  # its class and its attributes
TENSOR = Cells("bytes", _tensor_bytes, _put_back_tensor, same=torch.equal)
ARRAY = Cells("bytes", numpy.copy, _put_back_array, same=_same_bytes)
BYTES = Cells("bytes", bytes, lambda value, content: value.__setitem__(slice(None), content), same=bytes.__eq__)
VARIABLE = Cells(None, lambda value: (value.get(ABSENT),), _put_back_variable)
BINDING = Cells(None, lambda value: (value[0].get(value[1], ABSENT),), _put_back_binding, _bound)


@functools.lru_cache(maxsize=256)
def object_but(unread: tuple[str, ...]) -> Cells:
    """Returns the cells of an object some of whose attributes nothing reads."""
    return replace(OBJECT, unread=unread)


def functions_of_property(value: property) -> tuple[Any, ...]:
    """Returns the getter, the setter and the deleter of a property, whatever its class makes of these names."""
    return tuple(vars(property)[name].__get__(value) for name in ("fget", "fset", "fdel"))


def _wrapped(value: Any) -> tuple[Any, ...]:
    kind = staticmethod if isinstance(value, staticmethod) else classmethod
    return (vars(kind)["__func__"].__get__(value),)


PROPERTY = Cells("content", functions_of_property, lambda value, parts: property.__init__(value, *parts))
WRAPPER = Cells("content", _wrapped, lambda value, parts: type(value).__init__(value, *parts))


def seen_only(take: Callable[[Any], tuple[Any, ...]]) -> Cells:
    """Returns cells that a guard compares and nothing puts back; `take` gives their parts as a tuple."""
    return Cells(None, take, None)
