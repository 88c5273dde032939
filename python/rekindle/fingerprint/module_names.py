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
