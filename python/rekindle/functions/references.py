"""Names live objects for another process: by a path from a loaded module or the wrapped one, step by step.

A path is a list: where it starts, then one step a level. Following it reads dictionaries and closures only: no code of the user
runs, nothing is imported, and nothing is reached that the live model does not reach already.

    path  := start step*
    start := ["model"] | ["module", name of a loaded module]
    step  := ["submodule", name] | ["code", position among the constants] | ["attribute", name] | ["item", key or position]
           | ["cell", position] | ["function"] | ["class", position in its MRO]

An example: [["model"], ["submodule", "layers.0"], ["attribute", "scale"]] is what Python writes as model.layers[0].scale.
"""

from __future__ import annotations

import functools
import itertools
import sys
import types
from collections import deque
from collections.abc import Iterator, Set
from typing import Any

from torch import nn

from rekindle.modules.module_tables import named_modules
from rekindle.process.torch_internals import LINALG_MODULE, NN_MODULE

Path = list[list[Any]]

_MAX_STEPS = 8  # of a path: what is further away counts as not found
_MAX_OBJECTS = 50_000  # that one search meets; it ends there, as not found, for a module can lead to most of a process
_OF_PYTHON = (types.ModuleType, types.FunctionType, types.MethodType, staticmethod, classmethod, property, functools.partial)
# Where functions of C are found by their names.
_BUILTINS = ("torch", NN_MODULE, LINALG_MODULE, "torch.nn.functional", "operator", "math", "builtins")
_OF_IMPORTS = ("__builtins__", "__loader__", "__spec__")  # of a module: they lead to what imported it, and to all that it knows
_NOTHING = object()


def path_to(target: Any, model: nn.Module) -> Path | None:
    """Returns a shortest path to `target`: by its own name, through the model, or through the modules of the model's code.

    None if there is none of `_MAX_STEPS` steps, or none among the first `_MAX_OBJECTS` objects.
    """
    return (
        _by_name(target)
        or _in_model(target, model)
        or _search(target, [([start], module) for start, module in _modules_of(model)])
    )


def containers_from(model: nn.Module, left_out: Set[tuple[int, str]]) -> dict[int, tuple[Any, Path]]:
    """Returns the lists and dicts that path_to() finds, and those of other modules and their classes, by their identity.

    Gives each with a path to it.

    left_out: attributes that no path leads through, by their owners' identity
    """
    starts: list[tuple[Path, Any]] = [([start], module) for start, module in _modules_of(model)]
    found: dict[int, tuple[Any, Path]] = {}
    for path, value in itertools.chain(_reached(_modules_in(model), left_out), _reached(starts, left_out), _of_other_modules()):
        if type(value) in (list, dict):
            found.setdefault(id(value), (value, path))
    return found


def _of_other_modules() -> Iterator[tuple[Path, Any]]:
    """Yields the lists and dicts that modules and their classes hold, and those inside of them."""
    seen: set[int] = set()
    for name, module in [*sys.modules.items()]:
        root = name.partition(".")[0]
        if root in ("torch", "rekindle") or (root in sys.stdlib_module_names and name != "__main__"):
            continue
        for key, value in _attributes(module).items():
            path: Path = [["module", name], ["attribute", key]]
            if type(value) in (list, dict) and key not in _OF_IMPORTS:
                yield from _within(path, value, seen)
            elif isinstance(value, type) and value.__module__ == name:
                for inner, held in _attributes(value).items():
                    if type(held) in (list, dict):
                        yield from _within([*path, ["attribute", inner]], held, seen)


def _within(path: Path, container: Any, seen: set[int]) -> Iterator[tuple[Path, Any]]:
    seen.add(id(container))
    yield path, container
    pairs = container.items() if type(container) is dict else enumerate(container)
    for key, value in [*pairs] if len(path) < _MAX_STEPS else []:
        if type(value) in (list, dict) and type(key) in (str, int) and id(value) not in seen:
            yield from _within([*path, ["item", key]], value, seen)


def _in_model(target: Any, model: nn.Module) -> Path | None:
    """Returns a path from the module that is nearest to `target`: a model can be deep."""
    starts = _modules_in(model)
    return next((start for start, module in starts if module is target), None) or _search(target, starts)


def _modules_in(model: nn.Module) -> list[tuple[Path, Any]]:
    return [([["model"], ["submodule", name]] if name else [["model"]], module) for name, module in named_modules(model).items()]


def follow(path: Path, model: nn.Module) -> Any:
    """Returns what the path leads to now. Raises LookupError naming the step that leads nowhere."""
    (kind, *name), *steps = path
    value: Any = model if kind == "model" else sys.modules.get(*name, _NOTHING)
    for step in [None, *steps]:
        if step is not None:
            value = _step(value, step)
        if value is _NOTHING:
            raise LookupError(f"{show(path)} leads nowhere{'' if step is None else f' at {step[-1]!r}'}")
    return value


def show(path: Path) -> str:
    """Returns the path as one would write it in Python."""
    text = "model" if path[0][0] == "model" else path[0][1]
    forms = {
        "attribute": ".{}",
        "item": "[{!r}]",
        "cell": ".__closure__[{}]",
        "function": ".__func__",
        "class": ".__class__.__mro__[{}]",
        "code": ".__code__.co_consts[{}]",
    }
    for kind, *what in path[1:]:
        if kind == "submodule":
            text += "".join(f"[{part}]" if part.isdigit() else f".{part}" for part in what[0].split("."))
            continue
        text += forms[kind].format(*what)
    return text


def _step(value: Any, step: list[Any]) -> Any:
    kind, *what = step
    if kind == "attribute":
        return _attributes(value).get(what[0], _NOTHING)
    if kind == "item" and type(value) in (list, tuple):
        return value[what[0]] if type(what[0]) is int and -len(value) <= what[0] < len(value) else _NOTHING
    if kind == "item" and isinstance(value, dict):
        return dict.get(value, what[0], _NOTHING)
    if kind == "cell" and type(value) is types.FunctionType:
        cells = value.__closure__ or ()
        return _content(cells[what[0]]) if what[0] < len(cells) else _NOTHING
    if kind == "submodule":
        for name in what[0].split("."):
            value = _attributes(value).get("_modules", {}).get(name, _NOTHING)
        return value
    if kind == "code":
        code = value.__code__ if type(value) is types.FunctionType else value
        constants = code.co_consts if type(code) is types.CodeType else ()
        return constants[what[0]] if type(what[0]) is int and 0 <= what[0] < len(constants) else _NOTHING
    if kind == "class":
        bases = type(value).__mro__
        return bases[what[0]] if what[0] < len(bases) else _NOTHING
    return _function_of(value) if kind == "function" else _NOTHING


def _by_name(target: Any) -> Path | None:
    if isinstance(target, types.BuiltinFunctionType):
        found = (name for name in _BUILTINS if name in sys.modules and vars(sys.modules[name]).get(target.__name__) is target)
        return next(([["module", name], ["attribute", target.__name__]] for name in found), None)
    module, name = getattr(target, "__module__", None), getattr(target, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or not isinstance(target, (type, types.FunctionType)):
        return None
    path: Path = [["module", module], *(["attribute", part] for part in name.split("."))]
    try:
        return path if follow(path, nn.Identity()) is target else None
    except LookupError:
        return None


def code_path(function: types.FunctionType) -> tuple[Path, Path] | None:
    """Returns the paths to the outermost function around a function, and to its own code; None if there are none."""
    module = sys.modules.get(function.__module__)
    path: Path = [
        ["module", function.__module__],
        *(["attribute", part] for part in function.__qualname__.split(".<locals>")[0].split(".")),
    ]
    if module is None:
        return None
    try:
        outer = follow(path, nn.Identity())
    except LookupError:
        return None
    outer = _function_of(outer) if isinstance(outer, (staticmethod, classmethod, property)) else outer
    if type(outer) is not types.FunctionType or outer.__globals__ is not function.__globals__:
        return None
    steps = _steps_to(function.__code__, outer.__code__)
    return None if steps is None else (path, [*path, *steps])


def _steps_to(wanted: types.CodeType, code: types.CodeType) -> Path | None:
    for i, constant in enumerate(code.co_consts):
        if constant is wanted:
            return [["code", i]]
        if type(constant) is types.CodeType and (found := _steps_to(wanted, constant)) is not None:
            return [["code", i], *found]
    return None


def _modules_of(model: nn.Module) -> Iterator[tuple[list[Any], Any]]:
    names = {base.__module__ for module in named_modules(model).values() for base in type(module).__mro__}
    for name in sorted(names):
        root = name.partition(".")[0]
        if name in sys.modules and root not in ("torch", "builtins"):
            yield ["module", name], sys.modules[name]


def _search(target: Any, starts: list[tuple[Path, Any]]) -> Path | None:
    return next((path for path, value in _reached(starts) if value is target), None)


def _reached(starts: list[tuple[Path, Any]], left_out: Set[tuple[int, str]] = frozenset()) -> Iterator[tuple[Path, Any]]:
    """Yields what can be reached, breadth first, so that a path is short and does not depend on anything far away."""
    left: deque[tuple[Path, Any]] = deque(starts)
    seen = {id(value) for _, value in left}
    while left and len(seen) < _MAX_OBJECTS:
        path, value = left.popleft()
        yield path, value
        if len(path) > _MAX_STEPS + 1:
            continue
        for step, inner in _steps_from(value):
            if id(inner) not in seen and (id(value), step[-1]) not in left_out:
                seen.add(id(inner))
                left.append(([*path, step], inner))


def _steps_from(value: Any) -> Iterator[tuple[list[Any], Any]]:
    skipped = _OF_IMPORTS if isinstance(value, types.ModuleType) else ()
    for name, inner in _attributes(value).items():
        if name not in skipped and _may_lead_on(inner):
            yield ["attribute", name], inner
    if type(value) in (list, tuple) or isinstance(value, dict):
        pairs = list(dict.items(value)) if isinstance(value, dict) else enumerate(value)
        yield from ((["item", key], inner) for key, inner in pairs if type(key) in (str, int) and _may_lead_on(inner))
    if type(value) is types.FunctionType:
        for i, cell in enumerate(value.__closure__ or ()):
            if (inner := _content(cell)) is not _NOTHING:
                yield ["cell", i], inner
    if (function := _function_of(value)) is not _NOTHING:
        yield ["function"], function
    if not isinstance(value, (type, *_OF_PYTHON)):
        for i, base in enumerate(type(value).__mro__):
            if base.__module__.partition(".")[0] not in ("torch", "builtins", "collections"):
                yield ["class", i], base


def _may_lead_on(value: Any) -> bool:
    return not isinstance(value, (types.ModuleType, str, bytes, int, float, complex, type(None)))


def _attributes(value: Any) -> dict[str, Any]:
    try:
        return dict(vars(value))
    except TypeError:
        return {}


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        return _NOTHING


def _function_of(value: Any) -> Any:
    if isinstance(value, (staticmethod, classmethod, types.MethodType)):
        return value.__func__
    if isinstance(value, property):
        return value.fget
    if isinstance(value, functools.partial):
        return value.func
    return _NOTHING
