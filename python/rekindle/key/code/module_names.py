"""Finds the module that a dict holds the names of, so that such dicts are not taken for data."""

from __future__ import annotations

import builtins
import sys
import types
from typing import Any

_SPAWNED_MAIN = "__mp_main__"  # as multiprocessing.spawn calls it


def module_of(value: dict[Any, Any]) -> types.ModuleType | None:
    """Returns the loaded module whose names a dict is, or None."""
    if value is vars(builtins):
        return builtins
    name = dict.get(value, "__name__")
    found = sys.modules.get(name) if type(name) is str else None
    return found if isinstance(found, types.ModuleType) and read_names(found) is value else None


def is_of_library(value: dict[Any, Any]) -> bool:
    """Tells whether a dict is sys.modules, or the names of a module of Python's or torch's: nothing is put back there."""
    if value is sys.modules:
        return True
    found = module_of(value)
    if found is None:
        return False
    root = str(vars(found).get("__name__")).partition(".")[0]
    return root == "torch" or (root in sys.stdlib_module_names and root != "__main__")


def names_of(module: str) -> dict[str, Any] | None:
    """Returns the names of a loaded module, or None if none is loaded.

    Where an object of a class of its own stands for the module, as in torch.backends, these are the names of the module that it
    was made for.
    """
    loaded = sys.modules.get(module)
    return None if loaded is None else own_names(loaded)


def own_names(module: types.ModuleType, wanted: str = "") -> dict[str, Any]:
    """Returns the names of a module.

    Where an object of a class of its own stands for the module, these are the names that it was given if `wanted` is one of them,
    else those of the module that it was made for.
    """
    if type(module) is types.ModuleType or wanted in vars(module):
        return read_names(module)
    name = vars(module).get("__name__")
    inner = (value for value in vars(module).values() if type(value) is types.ModuleType and value.__name__ == name)
    return vars(next(inner, module))


def read_names(module: types.ModuleType) -> dict[str, Any]:
    """Returns the names that the functions of a module read: its own.

    Of the main script of a process that multiprocessing has spawned, the module has copies, and the functions read the originals.
    """
    if vars(module).get("__name__") != _SPAWNED_MAIN:
        return vars(module)
    for value in list(vars(module).values()):
        for member in [value, *(vars(value).values() if isinstance(value, type) else ())]:
            if type(member) is types.FunctionType and member.__globals__.get("__name__") == _SPAWNED_MAIN:
                return member.__globals__
    return vars(module)
