"""Handlers for functions, classes, modules, references and what is noise; see `values.Walker`."""

from __future__ import annotations

import contextvars
import functools
import threading
import types
import weakref
from typing import Any

from rekindle.fingerprint.code import code_digest
from rekindle.fingerprint.origin import Origin, installed, is_covered_class, origin_of
from rekindle.fingerprint.values import OF_IMPORT, Walker, attribute_path, handles, label

SINGLE_DISPATCH = functools.singledispatch(len).__code__  # shared by all single-dispatch functions
_VOLATILE_ATTRIBUTES = frozenset({"_torchdynamo_wrapper_id"})  # an address, differs from process to process
_HEAP_TYPE = 1 << 9
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
# What holds no data that a forward could compute with.
_NOISE = (type(threading.Lock()), type(threading.RLock()), threading.Condition, threading.Event)
_NOISE += (threading.Semaphore, threading.BoundedSemaphore)


@handles(*_DESCRIPTORS)
def named(walker: Walker, path: str, value: Any) -> None:
    """A C descriptor: its name."""
    walker.leaves.append((path, f"{type(value).__name__} {label(value)}"))


@handles(types.CodeType)
def _code(walker: Walker, path: str, value: types.CodeType) -> None:
    walker.leaves.append((path, f"code {code_digest(value)}"))


@handles(types.FunctionType)
def _function(walker: Walker, path: str, value: types.FunctionType) -> None:
    if walker.seen(path, value):
        return
    walker.functions.append(value)
    walker.leaves.append((path, f"function {value.__qualname__} {code_digest(value.__code__)}"))
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
        if name not in _VOLATILE_ATTRIBUTES:
            walker.walk(f"{path}.{name}", item)


@handles(types.BuiltinFunctionType, types.MethodWrapperType)
def _builtin(walker: Walker, path: str, value: Any) -> None:
    owner = value.__self__
    walker.leaves.append((path, f"builtin {label(value)}"))
    of_pybind11 = type(owner).__module__ == "pybind11_builtins"  # the record of a C++ function, which its name stands for
    if owner is not None and not of_pybind11 and not isinstance(owner, (types.ModuleType, type)):
        walker.walk(f"{path}.__self__", owner)


@handles(types.MethodType)
def _method(walker: Walker, path: str, value: types.MethodType) -> None:
    walker.leaves.append((path, f"method {value.__func__.__qualname__}"))
    walker.walk(f"{path}.__func__", value.__func__)
    walker.walk(f"{path}.__self__", value.__self__)


@handles(functools.partial)
def partial(walker: Walker, path: str, value: functools.partial) -> None:
    """A functools.partial: the function, what is bound, and its attributes."""
    walker.leaves.append((path, "partial"))
    walker.walk(f"{path}.func", value.func)
    walker.walk(f"{path}.args", value.args)
    walker.walk(f"{path}.keywords", value.keywords)
    walker.containers.append(vars(value))
    for name, item in vars(value).items():
        walker.walk(attribute_path(path, name), item)


@handles(functools._lru_cache_wrapper)
def _cached_function(walker: Walker, path: str, value: Any) -> None:
    """A function with a cache: its code; what it has answered is an observation."""
    if walker.seen(path, value):
        return
    walker.leaves.append((path, type(value).__name__))
    walker.walk(f"{path}.__wrapped__", value.__wrapped__)
    from rekindle.fingerprint.answers import meet  # which walks itself

    meet(path, value)


@handles(staticmethod, classmethod)
def _wrapper(walker: Walker, path: str, value: Any) -> None:
    walker.leaves.append((path, type(value).__name__))
    walker.walk(f"{path}.__func__", value.__func__)


@handles(property)
def property_value(walker: Walker, path: str, value: property) -> None:
    """A property: its functions."""
    walker.leaves.append((path, "property"))
    for name in ("fget", "fset", "fdel"):
        walker.walk(f"{path}.{name}", getattr(value, name))


@handles(functools.cached_property)
def cached_property(walker: Walker, path: str, value: functools.cached_property) -> None:
    """A cached_property: its function."""
    walker.leaves.append((path, "cached_property"))
    walker.walk(f"{path}.func", value.func)


@handles(type)
def class_value(walker: Walker, path: str, value: type) -> None:
    """A class: its name, and its code unless a version stands for it."""
    deep = value.__flags__ & _HEAP_TYPE and not is_covered_class(value)
    walker.leaves.append((path, f"class {walker.add_class(value) if deep else label(value)}"))


@handles(types.ModuleType)
def module_value(walker: Walker, path: str, value: types.ModuleType) -> None:
    """A module: its name, and what is in it unless a version stands for it. Modules in it are only named."""
    walker.leaves.append((path, f"module {vars(value).get('__name__')} {vars(value).get('__version__')}"))
    if type(value) is not types.ModuleType or not _is_the_users(value):
        return
    if not walker.deep_classes:
        walker.named.append(value)
    elif not walker.inside_module and not walker.seen(f"{path}.__dict__", vars(value)):
        walker.containers.append(vars(value))
        walker.inside_module = True
        for name, item in vars(value).items():
            if name not in OF_IMPORT:
                walker.walk(attribute_path(path, name), item)
        walker.inside_module = False


def _is_the_users(module: types.ModuleType) -> bool:
    file = vars(module).get("__file__")
    return isinstance(file, str) and origin_of(file) is Origin.USER and not installed(file)


@handles(weakref.ref)
def weak_reference(walker: Walker, path: str, value: weakref.ref) -> None:
    """A weak reference: what it refers to."""
    walker.leaves.append((path, "weakref"))
    walker.reads.append((value, _is_dead))
    walker.walk(f"{path}()", value())


def _is_dead(reference: weakref.ref) -> tuple[Any, ...]:
    return (reference() is None,)


_UNSET = object()


@handles(contextvars.ContextVar)
def _context_variable(walker: Walker, path: str, value: contextvars.ContextVar) -> None:
    walker.leaves.append((path, f"context variable {value.name}"))
    walker.reads.append((value, _value_in_context))
    try:
        walker.walk(f"{path}.get()", value.get())
    except LookupError:
        walker.leaves.append((f"{path}.get()", "unset"))


def _value_in_context(variable: contextvars.ContextVar) -> tuple[Any, ...]:
    return (variable.get(_UNSET),)


@handles(*_NOISE)
def noise(walker: Walker, path: str, value: Any) -> None:
    """A logger, a lock and the like: its type only."""
    walker.leaves.append((path, f"noise {type(value).__name__}"))
