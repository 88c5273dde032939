"""Names code that ran so that it can be found again, and finds it by that name, without importing anything.

A chain of names is followed through modules and classes, and no further: their attributes are read without running code.

    follow({"math": math}, ("math", "pi", "real"))      # (3.14159..., 2): a float is not looked into
    follow({"math": math}, ("math", "tau2"))            # (ABSENT, 2)
"""

from __future__ import annotations

import functools
import sys
import types
from collections.abc import Iterator, Sequence
from importlib.machinery import PathFinder
from typing import Any

import torch

from rekindle.key.code.code_objects import nested_code
from rekindle.key.code.module_names import own_names, read_names
from rekindle.process.process_state import builtin_named
from rekindle.process.torch_internals import CustomOperator


class Absent:
    """Marks a name that is not there; distinct from None."""


ABSENT = Absent()
SINGLE_DISPATCH = functools.singledispatch(len).__code__  # shared by all single-dispatch functions
_APPLY = vars(torch.autograd.Function)["apply"]


def find(module_name: str, qualname: str) -> Any:
    """Returns what `qualname` names in a loaded module, class members unbound, or ABSENT."""
    module = sys.modules.get(module_name)
    if module is None:
        return ABSENT
    value: Any = module
    for part in qualname.split("."):
        names = read_names(value) if value is module else vars(value) if isinstance(value, (types.ModuleType, type)) else {}
        value = names.get(part, ABSENT)
        if value is ABSENT:
            return ABSENT
    return value


def follow(namespace: dict[str, Any], chain: Sequence[str]) -> tuple[Any, int]:
    """Returns the value at the end of a chain and how many names it took; ABSENT if a name is not there."""
    value = namespace.get(chain[0], ABSENT)
    if value is ABSENT:
        value = builtin_named(chain[0], ABSENT)
    used = 1
    for name in chain[1:]:
        # Modules of other classes make attributes when asked, which no check may do; what they have is followed.
        if type(value) is types.ModuleType or (isinstance(value, types.ModuleType) and name in own_names(value, name)):
            value = own_names(value, name).get(name, ABSENT)
        elif isinstance(value, type):
            value = _class_attribute(value, name)
        else:
            break
        used += 1
    return value, used


def _class_attribute(cls: type, name: str) -> Any:
    for base in cls.__mro__:
        if name in vars(base):
            return vars(base)[name]
    return ABSENT


def takes_class(value: Any) -> bool:
    """Tells whether Python hands the class on to what is taken from it: to a classmethod, or a descriptor of another kind.

    Functions and static methods get nothing of the class. `apply` of an autograd Function calls that back at each run.
    """
    kind = type(value)
    if kind is types.FunctionType or kind is staticmethod or value is _APPLY:
        return False
    return any("__get__" in vars(base) for base in kind.__mro__)


def parts_of_operator(operator: CustomOperator) -> dict[str, Any]:
    """Returns what its user has given an operator defined in Python, by torch's names."""
    names = (
        "_init_fn",
        "_abstract_fn",
        "_setup_context_fn",
        "_backward_fn",
        "_vmap_fn",
        "_autocast_cpu_dtype",
        "_autocast_cuda_dtype",
    )
    parts = {name: getattr(operator, name, None) for name in names}
    parts.update({f"_backend_fns[{device!r}]": _without_torch(kernel) for device, kernel in operator._backend_fns.items()})
    parts.update({f"_torch_dispatch_fns[{kind.__qualname__}]": rule for kind, rule in operator._torch_dispatch_fns.items()})
    return parts


def _without_torch(kernel: Any) -> Any:
    """Returns a kernel's function without torch's wrappers, which are its own business and change with the first call."""
    while type(kernel) is types.FunctionType and kernel.__globals__["__name__"].startswith("torch."):
        cells = dict(zip(kernel.__code__.co_freevars, kernel.__closure__ or (), strict=True))
        inner = vars(kernel).get("__wrapped__") or ("fn" in cells and cells["fn"].cell_contents)
        if not inner:
            break
        kernel = inner
    return kernel


def codes_of(value: Any) -> Iterator[types.CodeType]:
    """Yields every code object that running `value` may run by itself: wrapped functions and nested code included."""
    seen: set[int] = set()
    todo = [value]
    while todo:
        value = todo.pop()
        if id(value) in seen:
            continue
        seen.add(id(value))
        kind = type(value)
        if kind is types.FunctionType:
            yield from nested_code(value.__code__)
            todo += [cell.cell_contents for cell in value.__closure__ or () if _filled(cell)]
            todo.append(vars(value).get("__wrapped__"))
            if value.__code__ is SINGLE_DISPATCH:
                todo += value.registry.values()
        elif kind is staticmethod or kind is classmethod or kind is types.MethodType:
            todo.append(value.__func__)
        elif isinstance(value, property):
            todo += (value.fget, value.fset, value.fdel)
        elif isinstance(value, functools.partial | functools.cached_property):
            todo.append(value.func)
        elif kind is functools._lru_cache_wrapper:
            todo.append(value.__wrapped__)
        elif kind is CustomOperator:
            todo += parts_of_operator(value).values()


def _filled(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def class_codes(cls: type) -> Iterator[types.CodeType]:
    """Yields every code object of the Python classes in the MRO, of functions in their containers too."""
    for base in cls.__mro__:
        for member in vars(base).values():
            yield from codes_of(member)
            if type(member) in (dict, list, tuple):
                for item in member.values() if type(member) is dict else member:
                    yield from codes_of(item)


def _holds(value: Any, code: types.CodeType) -> bool:
    return any(found is code for found in codes_of(value))


def find_owner(code: types.CodeType, namespace: dict[str, Any], first_type: type | None) -> tuple[str, str, str] | None:
    """Returns (kind, module, qualified name) under which the code is found, or None; kind is "function" or "class".

    Code of a class is owned by the class, whose digest also covers the attributes its methods read. Tried in order: the code's
    own qualified name, every value of the module's namespace, the class of the first argument.

    namespace: globals that the code ran with
    first_type: class of its first argument, or None
    """
    module_name = namespace.get("__name__")
    module = sys.modules.get(module_name) if isinstance(module_name, str) else None
    if module is not None and read_names(module) is namespace:
        owner = _by_qualname(code, module) or _by_namespace(code, module)
        if owner is not None:
            return owner
    return _by_class(code, first_type) if first_type is not None else None


def _by_qualname(code: types.CodeType, module: types.ModuleType) -> tuple[str, str, str] | None:
    parts = code.co_qualname.partition(".<locals>")[0].split(".")
    value: Any = module
    for depth, part in enumerate(parts):
        value = (read_names(value) if value is module else vars(value)).get(part)
        name = ".".join(parts[: depth + 1])
        if isinstance(value, type):
            if any(found is code for member in vars(value).values() for found in codes_of(member)):
                return "class", module.__name__, name
            continue
        return ("function", module.__name__, name) if _holds(value, code) else None
    return None


def _by_namespace(code: types.CodeType, module: types.ModuleType) -> tuple[str, str, str] | None:
    for name, value in list(read_names(module).items()):
        if isinstance(value, type):
            if value.__module__ == module.__name__ and any(found is code for found in class_codes(value)):
                return "class", module.__name__, name
        elif _holds(value, code):
            return "function", module.__name__, name
        elif type(value) in (dict, list, tuple):
            inner = value.values() if type(value) is dict else value
            if any(_holds(item, code) for item in inner):
                return "function", module.__name__, name
    return None


def _by_class(code: types.CodeType, first_type: type) -> tuple[str, str, str] | None:
    for base in first_type.__mro__:
        for member in vars(base).values():
            if any(found is code for found in codes_of(member)):
                for cls in (first_type, base):
                    if find(cls.__module__, cls.__qualname__) is cls:
                        return "class", cls.__module__, cls.__qualname__
    return None


def locate(name: str) -> str | None:
    """Returns the path of the file that importing `name` would run, or None; imports nothing."""
    loaded = sys.modules.get(name)
    if loaded is not None:
        return getattr(loaded, "__file__", None) or name
    path = None
    parent = name.rpartition(".")[0]
    if parent:
        package = sys.modules.get(parent)
        if package is not None:
            path = getattr(package, "__path__", None)
        else:
            spec = _spec(parent)
            path = spec.submodule_search_locations if spec is not None else None
        if path is None:
            return None
    spec = PathFinder.find_spec(name, path)
    return None if spec is None else spec.origin or name


def _spec(name: str) -> Any:
    parent = name.rpartition(".")[0]
    if not parent:
        return PathFinder.find_spec(name)
    spec = _spec(parent)
    return None if spec is None else PathFinder.find_spec(name, spec.submodule_search_locations)
