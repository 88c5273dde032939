"""Makes a wrapped module a proxy by construction: its class is made from the wrapped one's, over the same attributes.

Such an object and its module have one `__dict__`: tables, modes, hooks and attributes are the same through either. Its class
inherits the wrapped one's: methods, special methods and properties are found as in the module, by Python's own rules, and run
with the proxy as `self`. Only `forward` is another. See docs/decisions/0027-the-wrapper-is-a-proxy-by-construction.md.

An example: `model = rekindle.Module(linear)` with an nn.Linear. Then `vars(model) is vars(linear)`, `isinstance(model,
nn.Linear)` and `model.__class__ is nn.Linear`, while `type(model)` is a class of its own, made from rekindle.Module and
nn.Linear.
"""

from __future__ import annotations

import functools
import types
from dataclasses import dataclass
from typing import Any

from torch import nn

from rekindle.modules.proxy_classes import KIND, WRAPPED, class_for, own_names

_attributes: Any = vars(nn.Module)["__dict__"].__get__  # of an object, whatever its class makes of these names
_set_attributes: Any = vars(nn.Module)["__dict__"].__set__
_set_class: Any = vars(object)["__class__"].__set__


@dataclass(eq=False, slots=True)
class Wrapping:
    """Holds what a proxy knows beside the attributes of its module."""

    module: nn.Module  # the wrapped module
    options: Any  # an Options
    runtime: Any  # a Runtime, which makes the calls
    forward: Any = None  # what was put around the proxy's forward, if anything was
    patched: Any = None  # the proxy's forward where the module has one that is not its class's


class _Unless:
    """Makes an attribute of proxies give way to one of the same name of the wrapped module."""

    def __init__(self, own: str) -> None:
        self._own = own

    def __set_name__(self, _: type, name: str) -> None:
        self._name = name

    def __get__(self, model: Any, kind: Any = None) -> Any:
        if model is None:
            return self
        wrapping = wrapping_of(model)
        if wrapping is None:
            return _attribute(_attributes(model), self._name)
        return getattr(wrapping.module, self._name, getattr(wrapping, self._own))

    def __set__(self, model: Any, value: Any) -> None:
        _attributes(model)[self._name] = value

    def __delete__(self, model: Any) -> None:
        _attribute(_attributes(model), self._name)
        del _attributes(model)[self._name]


class Proxy(nn.Module):
    """Stands for a module once `adopt` was called.

    Of a class made by `class_for`, one that wraps nothing (as `type(self)(...)` makes) behaves as an object of the wrapped class.
    """

    __slots__ = ("_rekindle",)

    module = _Unless("module")
    _runtime = _Unless("runtime")

    def __init_subclass__(cls, **kwargs: Any) -> None:
        if KIND not in own_names(cls):
            super().__init_subclass__(**kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the wrapped module's forward, from a cached graph where that can be."""
        return _record(self).runtime.call(args, kwargs)

    def apply(self, *args: Any, **kwargs: Any) -> Any:
        """Calls the wrapped module's `apply`.

        Where that is nn.Module's, functions get the module itself: they often ask for exact classes.
        """
        own, wrapping = super().apply, wrapping_of(self)
        if wrapping is None or own.__func__ is not nn.Module.apply:
            return own(*args, **kwargs)
        own.__func__(wrapping.module, *args, **kwargs)
        return self

    def _get_name(self) -> str:
        return f"rekindle.Module({super()._get_name()})"

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        """Returns the wrapped module's attributes, the dict itself."""
        wrapping = wrapping_of(self)
        return _attributes(self if wrapping is None else wrapping.module)

    @__dict__.setter
    def __dict__(self, attributes: dict[str, Any]) -> None:
        wrapping = wrapping_of(self)
        if wrapping is not None:
            _set_attributes(wrapping.module, attributes)
        _set_attributes(self, attributes)

    @property
    def __class__(self) -> type:
        """Returns the wrapped module's class; type() tells the truth."""
        wrapping = wrapping_of(self)
        return getattr(type(self), WRAPPED, type(self)) if wrapping is None else type(wrapping.module)

    @__class__.setter
    def __class__(self, kind: type) -> None:
        wrapping = wrapping_of(self)
        if wrapping is None or issubclass(kind, Proxy):
            _set_class(self, kind)
        else:
            wrapping.module.__class__ = kind  # type: ignore[assignment]
            _follow(self, wrapping)


_record: Any = vars(Proxy)["_rekindle"].__get__


class _Forward:
    """Takes the place of `forward` in a class that is made for proxies: what is set there stays with the proxy."""

    def __init__(self, kind: type[Proxy], wrapped: type[nn.Module]) -> None:
        self._wrapped = wrapped
        self._function = (
            kind.forward if kind.forward is not Proxy.forward else _forward_like(getattr(wrapped, "forward", kind.forward))
        )

    def __get__(self, model: Any, kind: Any = None) -> Any:
        if model is None:
            return self._function
        attributes = _attributes(model)
        try:
            wrapping = _record(model)
        except AttributeError:  # it stands for nothing
            return attributes["forward"] if "forward" in attributes else self._wrapped.forward.__get__(model)
        module = wrapping.module
        if type(module) is not self._wrapped or attributes is not _attributes(module):
            _follow(model, wrapping)
            return model.forward
        if wrapping.forward is not None:
            return wrapping.forward
        if "forward" not in attributes:
            return types.MethodType(self._function, model)
        if wrapping.patched is None or wrapping.patched.__wrapped__ is not attributes["forward"]:
            wrapping.patched = functools.partial(_forward_like(attributes["forward"]), model)
            functools.update_wrapper(wrapping.patched, attributes["forward"])
        return wrapping.patched

    def __set__(self, model: Any, value: Any) -> None:
        wrapping = wrapping_of(model)
        if wrapping is None:
            _attributes(model)["forward"] = value
        else:  # what goes around the forward of a proxy is no attribute of the module
            wrapping.forward = None if value == types.MethodType(self._function, model) or value is wrapping.patched else value

    def __delete__(self, model: Any) -> None:
        wrapping = wrapping_of(model)
        attributes = _attributes(model)
        if wrapping is None or wrapping.forward is None:
            _attribute(attributes, "forward")
        else:
            wrapping.forward = None
        attributes.pop("forward", None)


def _forward_like(original: Any) -> Any:
    """Returns a forward for proxies that is called like another, for those who look at its signature to know what to pass."""

    @functools.wraps(original)
    def forward(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        return _record(self).runtime.call(args, kwargs)

    forward.__name__ = "forward"
    return forward


def _attribute(attributes: dict[str, Any], name: str) -> Any:
    if name not in attributes:
        raise AttributeError(name)
    return attributes[name]


def wrapping_of(value: Any) -> Wrapping | None:
    """Returns the record of a proxy; None for anything else, and for a proxy that stands for nothing."""
    if not issubclass(type(value), Proxy):
        return None
    try:
        return _record(value)
    except AttributeError:
        return None


def unwrapped(value: Any) -> Any:
    """Returns what a proxy stands for; anything else is returned as it is."""
    wrapping = wrapping_of(value)
    return value if wrapping is None else wrapping.module


def kind_of(model: Proxy) -> type[Proxy]:
    """Returns the class that a proxy was made of before it stood for something."""
    return getattr(type(model), KIND, type(model))


def adopt(model: Proxy, wrapping: Wrapping) -> None:
    """Lets a proxy that stands for nothing stand for a module; attributes that the proxy has become the module's."""
    attributes = _attributes(model)
    vars(Proxy)["_rekindle"].__set__(model, wrapping)
    _follow(model, wrapping)
    for name, value in attributes.items():
        setattr(model, name, value)


def _follow(model: Proxy, wrapping: Wrapping) -> None:
    """Takes over the module's attributes and class, which may have become others."""
    kind, wrapped = kind_of(model), type(wrapping.module)
    _set_class(model, class_for(kind, wrapped, _Forward))
    _set_attributes(model, _attributes(wrapping.module))


def as_unwrapped(model: Proxy) -> Any:
    """Returns an object of the wrapped class with the attributes of a proxy that stands for nothing."""
    other = object.__new__(getattr(type(model), WRAPPED))
    _set_attributes(other, _attributes(model))
    return other
