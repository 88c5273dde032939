"""Copies each kind of object that private copies follow: says what it leads to, and makes one like it. See private_copy.py.

An example: of a list that holds a tensor, `parts` gives the tensor and `make` an empty list, which `fill` extends by the copy of
the tensor. So a list that holds itself has a copy that holds itself.
"""

from __future__ import annotations

import collections
import contextlib
import enum
import functools
import logging
import types
import weakref
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

import torch
from torch import nn

from rekindle.export.copies.copied_callables import CELL, FUNCTION, METHOD, PARTIAL, REFERENCE, WRAPPER, Copier, Of
from rekindle.key.values.cells import own_dict
from rekindle.key.values.objects import is_copied, object_kind, slots_of
from rekindle.key.values.tensors import is_plain
from rekindle.key.values.walker import opaque
from rekindle.modules.proxy import Wrapping, adopt, wrapping_of
from rekindle.modules.proxy import kind_of as proxy_kind_of
from rekindle.process.registered_types import registered
from rekindle.reasons import Bypass, Reason
from rekindle.results.layouts import copied, has_memory

_ATOMS = (type, types.ModuleType, types.CodeType, str, bytes, int, float, complex, torch.Size, enum.Enum)
_NOT_FOLLOWED = (logging.Logger, logging.LoggerAdapter, logging.Handler, torch.dtype, torch.device)
_BASES = (OrderedDict, collections.defaultdict, dict, list, tuple, set, frozenset, str, int, float, bytes)
_OF_ZERO_3 = ("deepspeed.runtime.zero.parameter_offload", "ZeROOrderedDict")
_HELD_BY_TUPLES = (tuple, frozenset)
TABLES = frozenset(name for name, value in vars(nn.Module()).items() if isinstance(value, (dict, set)))


class Attributed(Copier):
    """Copies something with attributes."""

    def attributes(self, value: Any) -> dict[str, Any]:
        """Returns the attributes that are copied."""
        return _attributes(value)


class TensorCopier(Attributed):
    """Copies a tensor with its numbers, and what was set on it."""

    def parts(self, value: Any) -> Iterable[Any]:
        """Returns what is held by the attributes and the object itself."""
        return dict.values(self.attributes(value))

    def make(self, value: Any, of: Of) -> Any:
        """Makes one without what it holds."""
        return numbers_of(value)

    def fill(self, value: Any, made: Any, of: Of) -> None:
        """Lets the copy hold what stands for what the object holds."""
        _attributes(made).update((name, of(item)) for name, item in dict.items(self.attributes(value)))


class _List(Copier):
    def parts(self, value: Any) -> Iterable[Any]:
        return tuple(value)

    def make(self, value: Any, of: Of) -> Any:
        return collections.deque(maxlen=value.maxlen) if type(value) is collections.deque else type(value)()

    def fill(self, value: Any, made: Any, of: Of) -> None:
        (made.update if type(value) is set else made.extend)([of(item) for item in value])


class _Tuple(Copier):
    def parts(self, value: Any) -> Iterable[Any]:
        return tuple(value)

    def make(self, value: Any, of: Of) -> Any:
        items = [of(item) for item in tuple.__iter__(value)] if isinstance(value, tuple) else map(of, value)
        if hasattr(type(value), "n_fields"):  # of torch.return_types
            return type(value)(items)
        return tuple.__new__(type(value), items) if isinstance(value, tuple) else frozenset(items)


class DictCopier(Copier):
    """Copies a dict of Python's or the standard library's."""

    def parts(self, value: Any) -> Iterable[Any]:
        """Returns keys, values, and what makes absent values."""
        yield from value
        yield from value.values()
        yield getattr(value, "default_factory", None)

    def make(self, value: Any, of: Of) -> Any:
        """Makes an empty one."""
        return type(value)()

    def fill(self, value: Any, made: Any, of: Of) -> None:
        """Adds the items."""
        if isinstance(value, collections.defaultdict):
            made.default_factory = of(value.default_factory)
        for key, item in value.items():
            made[of(key)] = of(item)


class _Gathering(DictCopier):
    """Copies the table by which ZeRO 3 gathers a parameter that is looked up, as a plain one: those of a copy are there."""

    def make(self, value: Any, of: Of) -> Any:
        return OrderedDict()


class _SharedItems(DictCopier):
    """Copies a dict that no run on the copy looks into: its items stay the live ones."""

    def parts(self, value: Any) -> Iterable[Any]:
        """Returns nothing."""
        return ()

    def fill(self, value: Any, made: Any, of: Of) -> None:
        """Adds the live items."""
        made.update(value)


SHARED_ITEMS = _SharedItems()


class _Mapping(Copier):
    """Copies a read-only view of a dict; the copy has a dict of its own."""

    def parts(self, value: Any) -> Iterable[Any]:
        return [*value, *value.values()]

    def make(self, value: Any, of: Of) -> Any:
        return types.MappingProxyType({of(key): of(item) for key, item in value.items()})


class ObjectCopier(Attributed):
    """Copies an object of a Python class, all of whose state can be seen: modules too."""

    def parts(self, value: Any) -> Iterable[Any]:
        """Returns what is held by the attributes and the object itself."""
        yield from dict.values(self.attributes(value))
        yield from (item for _, item in _slots(value))
        if isinstance(value, dict):
            yield from dict.__iter__(value)
            yield from dict.values(value)
        for base in (list, tuple, set, frozenset):
            if isinstance(value, base):
                yield from base.__iter__(value)

    def make(self, value: Any, of: Of) -> Any:
        """Makes one without what it holds."""
        base = _base_of(value)
        if base in _HELD_BY_TUPLES:
            return base.__new__(type(value), [of(item) for item in base.__iter__(value)])
        if base in (str, int, float, bytes):
            return base.__new__(type(value), base(value))
        if type(value) is types.SimpleNamespace:
            return types.SimpleNamespace()
        if isinstance(value, nn.Module) and hasattr(type(value), "__del__"):
            raise opaque("the module", value, ", whose class defines __del__, which would run for each copy")
        return base.__new__(type(value))

    def inner(self, value: Any, made: Any) -> Iterable[tuple[Any, Any]]:
        """Returns the dicts of attributes, that of the object and that of its copy."""
        return [(own_dict(value), own_dict(made))] if own_dict(value) else ()

    def fill(self, value: Any, made: Any, of: Of) -> None:
        """Lets the copy hold what stands for what the object holds."""
        _attributes(made).update((name, of(item)) for name, item in dict.items(self.attributes(value)))
        for member, item in _slots(value):
            member.__set__(made, of(item))
        base = _base_of(value)
        if base is list:
            list.extend(made, [of(item) for item in list.__iter__(value)])
        elif base is set:
            set.update(made, [of(item) for item in set.__iter__(value)])
        elif base in (dict, OrderedDict, collections.defaultdict):
            if base is collections.defaultdict:
                made.default_factory = of(value.default_factory)
            ordered = OrderedDict if base is OrderedDict else dict
            for key, item in list(ordered.items(value)):
                ordered.__setitem__(made, of(key), of(item))


class _Proxy(Copier):
    """Copies a wrapped module as a proxy of the module's copy."""

    def parts(self, value: Any) -> Iterable[Any]:
        wrapping = wrapping_of(value)
        assert wrapping is not None
        return (wrapping.module, wrapping.forward, wrapping.patched)

    def make(self, value: Any, of: Of) -> Any:
        wrapping, made = wrapping_of(value), object.__new__(proxy_kind_of(value))
        assert wrapping is not None
        module = of(wrapping.module)
        adopt(made, Wrapping(module, wrapping.options, type(wrapping.runtime)(module, wrapping.options)))
        return made

    def fill(self, value: Any, made: Any, of: Of) -> None:
        live, copy = wrapping_of(value), wrapping_of(made)
        assert live is not None and copy is not None
        copy.forward, copy.patched = of(live.forward), of(live.patched)


_TENSOR, _OBJECT, _TUPLE, _PROXY, _GATHERING = TensorCopier(), ObjectCopier(), _Tuple(), _Proxy(), _Gathering()
_BY_TYPE: dict[type, Copier] = {
    **dict.fromkeys((list, set, collections.deque), _List()),
    **dict.fromkeys((tuple, frozenset), _TUPLE),
    **dict.fromkeys((dict, OrderedDict, collections.defaultdict, collections.Counter), DictCopier()),
    types.MappingProxyType: _Mapping(),
    types.SimpleNamespace: _OBJECT,
    types.CellType: CELL,
    types.FunctionType: FUNCTION,
    types.MethodType: METHOD,
    weakref.ref: REFERENCE,
    **dict.fromkeys((staticmethod, classmethod), WRAPPER),
}


def kind_of(value: Any) -> Copier | None:
    """Returns the copier of an object; None for what is shared with the live module."""
    cls = type(value)
    if cls in _BY_TYPE:
        return _BY_TYPE[cls]
    if isinstance(value, _ATOMS) or value is None:
        return _OBJECT if _is_followed_value(value) else None
    if isinstance(value, torch.Tensor):
        return _TENSOR
    if cls in (types.BuiltinFunctionType, types.MethodWrapperType):
        owner = value.__self__
        return None if owner is None or isinstance(owner, (types.ModuleType, type)) else METHOD
    if isinstance(value, functools.partial):
        return PARTIAL
    if (cls.__module__, cls.__name__) == _OF_ZERO_3:
        return _GATHERING
    if isinstance(value, tuple) and (hasattr(cls, "_fields") or hasattr(cls, "n_fields")):
        return _TUPLE
    if wrapping_of(value) is not None:
        return _PROXY
    return _OBJECT if _is_followed_object(value) else None


def _is_followed_value(value: Any) -> bool:
    """Tells whether a text or a number of the user's own class may hold something."""
    return isinstance(value, (str, bytes, int, float)) and not isinstance(value, (enum.Enum, bool)) and bool(_attributes(value))


def _is_followed_object(value: Any) -> bool:
    cls = type(value)
    if isinstance(value, nn.Module):
        return True
    if isinstance(value, _NOT_FOLLOWED) or any(base in registered for base in cls.__mro__):
        return False
    return is_copied(cls) and object_kind(cls) is not None


def numbers_of(tensor: torch.Tensor) -> torch.Tensor:
    """Makes a leaf of a tensor's kind with its numbers in memory of its own."""
    given = tensor.detach()
    if is_plain(tensor) and not has_memory(tensor):
        message = f"the module leads to a tensor of shape {tuple(tensor.shape)} whose memory was freed"
        raise Bypass(Reason.OPAQUE_VALUE, message)
    if given.is_neg():
        made = torch._neg_view(numbers_of(torch._neg_view(given))).detach()
    elif given.is_conj():
        made = numbers_of(given.conj()).conj().detach()
    else:
        made = copied(given) if given.layout is torch.strided else given.clone()
    if isinstance(tensor, nn.Parameter):
        return torch.Tensor._make_subclass(type(tensor), made, tensor.requires_grad)
    return made.requires_grad_(tensor.requires_grad)


def _attributes(value: Any) -> dict[str, Any]:
    found = own_dict(value)
    return {} if found is None else found


def _base_of(value: Any) -> Any:
    """Returns the builtin class that an object is of."""
    return next((base for base in _BASES if isinstance(value, base)), object)


def _slots(value: Any) -> list[tuple[Any, Any]]:
    """Returns (descriptor, content) of every slot that is set."""
    found: list[tuple[Any, Any]] = []
    if type(value) is types.SimpleNamespace:  # whose dict of attributes is a member, too
        return found
    for _, member in slots_of(type(value), _base_of(value)):
        with contextlib.suppress(AttributeError):
            found.append((member, member.__get__(value)))
    return found
