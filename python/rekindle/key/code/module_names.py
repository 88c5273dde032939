"""Dicts that are the names of a module: whose they are, and that they are not taken for data."""

from __future__ import annotations

import builtins
import sys
import types
from typing import Any


def module_of(value: dict[Any, Any]) -> types.ModuleType | None:
    """The loaded module whose names a dict is, or None."""
    if value is vars(builtins):
        return builtins
    name = dict.get(value, "__name__")
    found = sys.modules.get(name) if type(name) is str else None
    return found if isinstance(found, types.ModuleType) and vars(found) is value else None


def is_of_library(value: dict[Any, Any]) -> bool:
    """Whether a dict is the names of a module of Python's or torch's, or sys.modules itself: nothing is put back there."""
    if value is sys.modules:
        return True
    found = module_of(value)
    if found is None:
        return False
    root = str(vars(found).get("__name__")).partition(".")[0]
    return root == "torch" or (root in sys.stdlib_module_names and root != "__main__")


def names_of(module: str) -> dict[str, Any] | None:
    """The names of a loaded module. Where an object of a class of its own stands for it, as in torch.backends, those of the
    module that it was made for."""
    loaded = sys.modules.get(module)
    return None if loaded is None else own_names(loaded)


def own_names(module: types.ModuleType, wanted: str = "") -> dict[str, Any]:
    """The names of a module; where an object of a class of its own stands for it, those that it was given if one of them is
    wanted, else those of the module that it was made for."""
    if type(module) is types.ModuleType or wanted in vars(module):
        return vars(module)
    name = vars(module).get("__name__")
    inner = (value for value in vars(module).values() if type(value) is types.ModuleType and value.__name__ == name)
    return vars(next(inner, module))
