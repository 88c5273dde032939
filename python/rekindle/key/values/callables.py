"""Adds the leaves of functions, classes and references; see `walker.Walker`.

For example, `functools.partial(scale, 2)` at the path `f` gives:

    f            partial
    f.func       function scale <digest of its code>
    f.args       (2,)
    f.keywords   dict[0]
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
import io
import threading
import types
import weakref
from collections.abc import Callable, Iterator
from typing import Any

from rekindle.key.code.binaries import build_of
from rekindle.key.code.code_objects import code_digest
from rekindle.key.values.cached_answers import ANSWERS
from rekindle.key.values.cells import (
    FUNCTION,
    OBJECT,
    PROPERTY,
    VARIABLE,
    VOLATILE_ATTRIBUTES,
    WRAPPER,
    functions_of_property,
    seen_only,
)
from rekindle.key.values.library_members import add_class_members
from rekindle.key.values.names import SINGLE_DISPATCH
from rekindle.key.values.walker import IMMUTABLE, Walker, handles, kinds, label, opaque
from rekindle.process.origin import is_covered_class, is_heap_class

_DESCRIPTORS = (
    types.WrapperDescriptorType,
    types.MethodDescriptorType,
    types.ClassMethodDescriptorType,
    types.GetSetDescriptorType,
    types.MemberDescriptorType,
)
# What functions of torch have in their closures for its address only, such as the module that a class of parametrized modules
# was made for, which need not be the one that has the class: it may be a copy.
_ADDRESSED = {("torch.nn.utils.parametrize", "get_cached_parametrization", "module")}
# What functools.wraps copies from the function that is walked besides.
_OF_WRAPPED = frozenset(
    {"__doc__", "__annotations__", "__module__", "__name__", "__qualname__", "__wrapped__", "__type_params__"}
)


@handles(*_DESCRIPTORS, cells=IMMUTABLE)
def named(walker: Walker, path: str, value: Any) -> None:
    """Adds the name of a C descriptor."""
    walker.leaves.append((path, f"{type(value).__name__} {label(value)}"))


@handles(types.CodeType, cells=IMMUTABLE)
def _code(walker: Walker, path: str, value: types.CodeType) -> None:
    walker.leaves.append((path, f"code {code_digest(value)}"))


@handles(types.FunctionType, cells=(FUNCTION,), attributes=False)
def _function(walker: Walker, path: str, value: types.FunctionType) -> None:
    walker.functions.append(value)
    called = "" if value.__name__ == value.__code__.co_name else f" called {value.__name__}"
    walker.leaves.append((path, f"function {value.__qualname__}{called} {code_digest(value.__code__)}"))
    if value.__code__ is SINGLE_DISPATCH:  # its closure holds a cache that fills as it runs
        walker.walk(f"{path}.registry", value.registry)  # type: ignore[attr-defined]
        return
    if value.__defaults__ is not None:
        walker.walk(f"{path}.__defaults__", value.__defaults__)
    if value.__kwdefaults__ is not None:
        walker.walk(f"{path}.__kwdefaults__", value.__kwdefaults__)
    if value.__closure__ is not None:
        for name, cell in zip(value.__code__.co_freevars, value.__closure__, strict=True):
            if (value.__module__, value.__name__, name) in _ADDRESSED:
                continue
            try:
                content = cell.cell_contents
            except ValueError:
                walker.leaves.append((f"{path}.{name}", "empty cell"))
                continue
            walker.walk(f"{path}.{name}", content)
    for name, item in vars(value).items():
        if name not in VOLATILE_ATTRIBUTES:
            walker.walk(f"{path}.{name}", item)


@handles(types.BuiltinFunctionType, types.MethodWrapperType, cells=IMMUTABLE)
def _builtin(walker: Walker, path: str, value: Any) -> None:
    owner = value.__self__
    build = build_of(getattr(value, "__module__", None))
    walker.leaves.append((path, f"builtin {label(value)}{build}"))
    of_pybind11 = type(owner).__module__ == "pybind11_builtins"  # the record of a C++ function, which its name stands for
    if isinstance(owner, io.TextIOWrapper):
        raise opaque(f"{path}.__self__", owner)  # what functions of C call it for, no recorder is told of
    if owner is not None and not of_pybind11 and not isinstance(owner, (types.ModuleType, type)):
        walker.walk(f"{path}.__self__", owner)


@handles(types.MethodType, cells=IMMUTABLE, attributes=False)
def _method(walker: Walker, path: str, value: types.MethodType) -> None:
    walker.leaves.append((path, f"method {value.__func__.__qualname__}"))
    walker.walk(f"{path}.__func__", value.__func__)
    walker.walk(f"{path}.__self__", value.__self__)


def _partial_of(value: Any) -> Any:
    function, arguments, keywords, _ = functools.partial.__reduce__(value)[2]  # type: ignore[misc]
    return functools.partial(function, *arguments, **keywords)


@handles(functools.partial, cells=(), by_identity=True, exact=_partial_of)
def _partial(walker: Walker, path: str, value: functools.partial) -> None:
    walker.leaves.append((path, "partial"))
    walker.walk(f"{path}.func", value.func)
    walker.walk(f"{path}.args", value.args)
    walker.walk(f"{path}.keywords", value.keywords)


class _Listener(threading.local):
    """Holds who is told of the cached functions that walks of this thread meet."""

    of_cached: Callable[[str, Any], None] | None = None


_listener = _Listener()


@contextlib.contextmanager
def told_of_cached(listener: Callable[[str, Any], None]) -> Iterator[None]:
    """Calls `listener(path, function)`, while the body runs, for each cached function that walks of this thread meet."""
    before, _listener.of_cached = _listener.of_cached, listener
    try:
        yield
    finally:
        _listener.of_cached = before


@handles(functools._lru_cache_wrapper, cells=(ANSWERS, OBJECT), attributes=False, shared=True)
def _cached_function(walker: Walker, path: str, value: Any) -> None:
    """Adds the code of a function with a cache; what it has answered is an observation."""
    walker.leaves.append((path, f"{type(value).__name__} {sorted(value.cache_parameters().items())}"))
    walker.walk(f"{path}.__wrapped__", value.__wrapped__)
    walker.attributes(path, value, _OF_WRAPPED | {"cache_parameters"})
    if _listener.of_cached is not None:
        _listener.of_cached(path, value)


def _wrapped_by(kind: type) -> Callable[[Any], Any]:
    return lambda value: kind(vars(kind)["__func__"].__get__(value))


@handles(staticmethod, cells=(WRAPPER,), by_identity=False, attributes=False, exact=_wrapped_by(staticmethod))
@handles(classmethod, cells=(WRAPPER,), by_identity=False, attributes=False, exact=_wrapped_by(classmethod))
def _wrapper(walker: Walker, path: str, value: Any) -> None:
    walker.leaves.append((path, type(value).__name__))
    walker.walk(f"{path}.__func__", value.__func__)


def _property_of(value: Any) -> property:
    return property(*functions_of_property(value))


@handles(property, cells=(PROPERTY,), by_identity=False, exact=_property_of, shared=True)
def _property(walker: Walker, path: str, value: property) -> None:
    walker.leaves.append((path, "property"))
    for name in ("fget", "fset", "fdel"):
        walker.walk(f"{path}.{name}", getattr(value, name))


@handles(functools.cached_property, cells=(OBJECT,), attributes=False, shared=True)
def _cached_property(walker: Walker, path: str, value: functools.cached_property) -> None:
    walker.leaves.append((path, "cached_property"))
    walker.walk(f"{path}.func", value.func)
    walker.attributes(path, value, _OF_WRAPPED | {"func", "lock"})


@handles(type, cells=IMMUTABLE, attributes=False, shared=True)
def _class_value(walker: Walker, path: str, value: type) -> None:
    """Adds the name of a class, and its code unless a version stands for it; then what is set on it."""
    is_covered = is_covered_class(value)
    deep = is_heap_class(value) and not is_covered
    walker.leaves.append((path, f"class {walker.add_class(value) if deep else label(value) + build_of(value.__module__)}"))
    if is_covered:
        add_class_members(walker, path, value)


_IS_DEAD = seen_only(lambda value: (weakref.ref.__call__(value) is None,))


@handles(weakref.ref, cells=(_IS_DEAD,), by_identity=False, exact=lambda value: value)
def _weak_reference(walker: Walker, path: str, value: weakref.ref) -> None:
    """Adds what a weak reference refers to, which nothing that watches it may keep alive."""
    walker.leaves.append((path, "weakref"))
    target = weakref.ref.__call__(value)
    if target is not None:
        walker.weak.add(id(target))
    walker.walk(f"{path}()", target)


@handles(contextvars.ContextVar, cells=(VARIABLE,), by_identity=False, shared=True)
def _context_variable(walker: Walker, path: str, value: contextvars.ContextVar) -> None:
    walker.leaves.append((path, f"context variable {value.name}"))
    try:
        walker.walk(f"{path}.get()", value.get())
    except LookupError:
        walker.leaves.append((f"{path}.get()", "unset"))


CLASS_VALUE = kinds[type]
