"""Copies functions, methods and the like for private copies, and says what every kind of copier does. See copied_kinds.py."""

from __future__ import annotations

import functools
import types
import weakref
from collections.abc import Callable, Iterable
from typing import Any

Of = Callable[[Any], Any]  # what stands for a live object in the copy


class Copier:
    """Copies objects of one kind. The defaults are those of what holds nothing further."""

    def parts(self, value: Any) -> Iterable[Any]:
        """Returns what the object leads to."""
        return ()

    def make(self, value: Any, of: Of) -> Any:
        """Makes one like it; what is mutable is empty, for what it holds may lead back to it."""
        raise NotImplementedError

    def inner(self, value: Any, made: Any) -> Iterable[tuple[Any, Any]]:
        """Returns (object, its copy) for what is made together with it."""
        return ()

    def fill(self, value: Any, made: Any, of: Of) -> None:
        """Lets the copy hold what stands for what the object holds."""


class _Cell(Copier):
    """Copies a cell, which holds a variable of a closure."""

    def parts(self, value: Any) -> Iterable[Any]:
        return () if value == types.CellType() else (value.cell_contents,)

    def make(self, value: Any, of: Of) -> Any:
        return types.CellType()

    def fill(self, value: Any, made: Any, of: Of) -> None:
        for content in self.parts(value):
            made.cell_contents = of(content)


class _Function(Copier):
    """Copies a function of Python, whose code stays the same."""

    def parts(self, value: Any) -> Iterable[Any]:
        return (value.__defaults__, value.__kwdefaults__, *(value.__closure__ or ()), *vars(value).values())

    def make(self, value: Any, of: Of) -> Any:
        closure = value.__closure__ and tuple(map(of, value.__closure__))
        made = types.FunctionType(value.__code__, value.__globals__, value.__name__, of(value.__defaults__), closure)
        made.__qualname__, made.__module__, made.__doc__ = value.__qualname__, value.__module__, value.__doc__
        made.__kwdefaults__ = of(value.__kwdefaults__)
        return made

    def fill(self, value: Any, made: Any, of: Of) -> None:
        vars(made).update((name, of(item)) for name, item in vars(value).items())


class _Method(Copier):
    """Copies a method bound to an object, of Python or of C."""

    def parts(self, value: Any) -> Iterable[Any]:
        return (value.__self__, value.__func__) if type(value) is types.MethodType else (value.__self__,)

    def make(self, value: Any, of: Of) -> Any:
        if type(value) is types.MethodType:
            return types.MethodType(of(value.__func__), of(value.__self__))
        owner = of(value.__self__)
        method = getattr(type(owner), value.__name__, None)  # an attribute of the object may have its name
        return method.__get__(owner) if hasattr(type(method), "__get__") else getattr(owner, value.__name__)


class _Partial(Copier):
    """Copies a functools.partial."""

    def parts(self, value: Any) -> Iterable[Any]:
        return (value.func, *value.args, *value.keywords.values(), *vars(value).values())

    def make(self, value: Any, of: Of) -> Any:
        keywords = {name: of(item) for name, item in value.keywords.items()}
        return functools.partial.__new__(type(value), of(value.func), *map(of, value.args), **keywords)

    def fill(self, value: Any, made: Any, of: Of) -> None:
        vars(made).update((name, of(item)) for name, item in vars(value).items())


class _Reference(Copier):
    """Copies a weak reference."""

    def parts(self, value: Any) -> Iterable[Any]:
        return (value(),)

    def make(self, value: Any, of: Of) -> Any:
        return weakref.ref(of(value()))


class _Wrapper(Copier):
    """Copies a staticmethod or a classmethod."""

    def parts(self, value: Any) -> Iterable[Any]:
        return (value.__func__,)

    def make(self, value: Any, of: Of) -> Any:
        return type(value)(of(value.__func__))


CELL, FUNCTION, METHOD, PARTIAL, REFERENCE, WRAPPER = _Cell(), _Function(), _Method(), _Partial(), _Reference(), _Wrapper()
