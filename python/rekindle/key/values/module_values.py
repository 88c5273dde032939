"""Adds the leaves of modules; see `walker.Walker`.

For example, the user's package `conf` with the module `conf.train`, which has `RATE = 0.1`, gives at the path `model.conf`:

    model.conf               module conf None
    model.conf.train         module conf.train None
    model.conf.train.RATE    0.1
"""

from __future__ import annotations

import sys
import types
from typing import Any

from rekindle.key.values.cells import ITEMS, seen_only
from rekindle.key.values.library_members import SEEN_ITEMS, add_module_members
from rekindle.key.values.walker import IMMUTABLE, OF_IMPORT, Walker, attribute_path, handles, kinds
from rekindle.process.origin import Origin, installed, origin_of

_SETTINGS = (bool, int, float, str, type(None))
_WITHOUT_FILES = ("built-in", "frozen")  # origins of modules that are in Python itself
CLASS_OF = seen_only(lambda value: (type(value),))


@handles(types.ModuleType, cells=IMMUTABLE, attributes=False, shared=True)
def _module_value(walker: Walker, path: str, value: types.ModuleType) -> None:
    """Adds the name of a module, and all that is in it unless a version stands for it: what modules in it hold, too.

    No recorder is told of what code takes from a module that it was given, so that it may be anything that this leads to.
    """
    names = vars(value)
    walker.leaves.append((path, f"module {names.get('__name__')} {names.get('__version__')}"))
    if not is_the_users(value):
        _add_library(walker, path, value)
    elif not walker.deep_classes:
        walker.named.append(value)
    elif not walker.seen(path, value):
        walker.watch(names, ITEMS)
        walker.watch(value, CLASS_OF)
        if type(value) is not types.ModuleType:
            walker.leaves.append((f"{path}.__class__", walker.add_class(type(value))))
        for name, item in list(names.items()):
            if name not in OF_IMPORT:
                walker.walk(attribute_path(path, name), item)


def _add_library(walker: Walker, path: str, value: types.ModuleType) -> None:
    """Adds what a version does not tell of a library's module: what its user has set."""
    names = vars(value)
    walker.watch(names, SEEN_ITEMS)
    if type(value) is types.ModuleType:
        add_module_members(walker, path, value)
        return
    for name, item in names.items():  # of one that makes some of its attributes when asked, as those of torch.backends
        if type(item) in _SETTINGS and name not in OF_IMPORT:
            walker.leaves.append((attribute_path(path, name), repr(item)))


def is_the_users(module: types.ModuleType) -> bool:
    """Tells whether a module is the user's own: no version stands for it. One that was made by hand is, too."""
    names = vars(module)
    file, folders, name = names.get("__file__"), names.get("__path__"), str(names.get("__name__"))
    if isinstance(file, str):
        return _is_the_users(file)
    if folders is not None:  # without an __init__.py
        return any(map(_is_the_users, folders))
    root: Any = sys.modules.get(name.partition(".")[0])
    if isinstance(root, types.ModuleType) and root is not module and "." in name:  # as of an extension module's parts
        return is_the_users(root)
    return root is not module or getattr(names.get("__spec__"), "origin", None) not in _WITHOUT_FILES


def _is_the_users(path: Any) -> bool:
    return isinstance(path, str) and origin_of(path) is Origin.USER and not installed(path)


MODULE_VALUE = kinds[types.ModuleType]
