"""Makes the class of a proxy from the class of what it stands for; see `proxy`."""

from __future__ import annotations

import inspect
import types
from collections.abc import Callable
from typing import Any

from torch import nn

KIND, WRAPPED = "_rekindle_kind", "_rekindle_wrapped"  # in a class that was made here: what it was made from
# What a class says of its own objects' layout and making, not of what they do.
_OF_LAYOUT = frozenset(
    "__new__ __init__ __dict__ __weakref__ __slots__ __getattribute__ __init_subclass__ __class_getitem__ __reduce__ __del__ "
    "__doc__ __module__".split()
)
_GIVING_WAY = {"apply", "_get_name"}  # of what a proxy defines, to what the wrapped class does
_OF_C = (
    types.MemberDescriptorType, types.GetSetDescriptorType, types.MethodDescriptorType, types.WrapperDescriptorType,
    types.ClassMethodDescriptorType,
)  # fmt: skip


own_names: Any = vars(type)["__dict__"].__get__  # of a class, whatever its metaclass makes of `__dict__`


def class_for(kind: type, wrapped: type, forward: Callable[[type, type], Any]) -> type:
    """Returns a subclass of `kind` and of `wrapped` whose `forward` is made of both; the one that exists already, if one does.

    No code of the wrapped class runs: neither its metaclass nor its `__init_subclass__` is told of the subclass. A class whose
    objects have slots, or are dicts or the like, cannot be inherited beside `kind`: what it defines is copied instead.
    """
    for known in [*type.__subclasses__(wrapped), *type.__subclasses__(kind)]:
        if own_names(known).get(KIND) is kind and own_names(known)[WRAPPED] is wrapped:
            return known
    names = _names(kind, wrapped, forward)
    try:
        return _made(kind, wrapped, (kind, wrapped), names)
    except TypeError:  # no order of bases, or no layout, serves both
        own = {name for base in kind.__mro__ if base not in nn.Module.__mro__ for name in vars(base)} - _GIVING_WAY
        flat = _flat(wrapped, own)
        return _made(kind, wrapped, (kind,), {**flat, **names})


class _ProxyType(type):
    """Hands what is asked of the classes made here, or set on them, to the wrapped class. Methods know them as `type(self)`."""

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        return _wrapped(cls)(*args, **kwargs) if WRAPPED in own_names(cls) else super().__call__(*args, **kwargs)

    @property
    def __dict__(cls) -> types.MappingProxyType[str, Any]:  # type: ignore[override]
        return vars(_wrapped(cls)) if WRAPPED in own_names(cls) else own_names(cls)

    @property
    def __signature__(cls) -> inspect.Signature:
        if WRAPPED not in own_names(cls):
            raise AttributeError("__signature__")
        return inspect.signature(_wrapped(cls))

    def __setattr__(cls, name: str, value: Any) -> None:
        setattr(_wrapped(cls), name, value) if WRAPPED in own_names(cls) else super().__setattr__(name, value)

    def __delattr__(cls, name: str) -> None:
        delattr(_wrapped(cls), name) if WRAPPED in own_names(cls) else super().__delattr__(name)

    def __instancecheck__(cls, value: Any) -> bool:
        return isinstance(value, _wrapped(cls)) if WRAPPED in own_names(cls) else super().__instancecheck__(value)

    def __subclasscheck__(cls, other: Any) -> bool:
        return issubclass(other, _wrapped(cls)) if WRAPPED in own_names(cls) else super().__subclasscheck__(other)


class _ClassMethod:
    """Calls a class method of the wrapped class with that class."""

    def __init__(self, wrapped: type, name: str) -> None:
        self._wrapped, self._name = wrapped, name

    def __get__(self, *_: Any) -> Any:
        return getattr(self._wrapped, self._name)


def _wrapped(cls: type) -> Any:
    return own_names(cls)[WRAPPED]


def _made(kind: type, wrapped: type, bases: tuple[type, ...], names: dict[str, Any]) -> type:
    metaclass = type(wrapped) if wrapped in bases else type(kind)
    if not issubclass(metaclass, type(kind)):
        raise TypeError("no metaclass serves both")
    metaclass = _ProxyType if metaclass is type else type(metaclass.__name__, (_ProxyType, metaclass), {})
    return type.__new__(metaclass, wrapped.__name__, bases, dict(names))


def _names(kind: type, wrapped: type, forward: Callable[[type, type], Any]) -> dict[str, Any]:
    names = {
        KIND: kind,
        WRAPPED: wrapped,
        "__module__": wrapped.__module__,
        "__qualname__": wrapped.__qualname__,
        "__doc__": wrapped.__doc__,
        "__slots__": (),
        "__slotnames__": [],  # of what an object's state holds, as copyreg has it
        # As its methods mean it: a proxy is made before it is of this class.
        "__init__": wrapped.__init__,  # type: ignore[misc]
        "forward": forward(kind, wrapped),
    }
    for name in {name for base in wrapped.__mro__ for name, value in vars(base).items() if type(value) is classmethod}:
        if not name.startswith("__"):
            names[name] = _ClassMethod(wrapped, name)
    if hasattr(wrapped, "__del__"):
        names["__del__"] = lambda self: None  # the module's runs, once
    return names


def _flat(wrapped: type, own: set[str]) -> dict[str, Any]:
    """Returns what a class and its bases define beside nn.Module, but for names of `own`."""
    found: dict[str, Any] = {}
    for base in wrapped.__mro__:
        for name, value in vars(base).items():
            found.setdefault(name, None if base in (nn.Module, object) else value)
    left = {name: value for name, value in found.items() if value is not None and name not in own | _OF_LAYOUT}
    flat = {name: _asked(value) if isinstance(value, _OF_C) else value for name, value in left.items()}
    return {**flat, "__getattr__": _attribute}


def _attribute(self: Any, name: str) -> Any:
    if name == "_rekindle":
        raise AttributeError(name)
    return getattr(self._rekindle.module, name)


def _asked(descriptor: Any) -> Any:
    """Returns an attribute that asks the wrapped module for what C keeps in an object's layout."""

    def read(self: Any) -> Any:
        module = self._rekindle.module
        return descriptor.__get__(module, type(module))

    if isinstance(descriptor, (types.MethodDescriptorType, types.WrapperDescriptorType)):
        return lambda self, *args, **kwargs: read(self)(*args, **kwargs)
    return property(
        read,
        lambda self, value: descriptor.__set__(self._rekindle.module, value),
        lambda self: descriptor.__delete__(self._rekindle.module),
    )
