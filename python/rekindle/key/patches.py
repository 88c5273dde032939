"""Adds leaves for what was patched into torch: entries of its namespaces that torch itself did not put there."""

from __future__ import annotations

import functools
import os
import types
from typing import Any

import torch

from rekindle.key.values.names import codes_of
from rekindle.key.values.walker import Walker, label
from rekindle.process.origin import is_covered_class
from rekindle.process.process_state import unpatched
from rekindle.process.torch_internals import NN_MODULE, NN_OPERATORS

TORCH_DIR = os.path.dirname(torch.__file__) + os.sep

_C_FUNCTIONS = (
    types.BuiltinFunctionType, types.MethodDescriptorType, types.WrapperDescriptorType, types.GetSetDescriptorType,
)  # fmt: skip

# Values that no code of theirs makes other than torch's own, and that no one can change.
_LASTING = (*_C_FUNCTIONS, torch.dtype, torch.layout, torch.memory_format)

_PLAIN = (bool, int, float, complex, str, bytes, type(None))  # of torch's own or not: the texts are the same everywhere

NAMESPACES: tuple[tuple[str, Any], ...] = (
    ("torch.nn.functional", torch.nn.functional),
    ("torch", torch),
    ("torch.Tensor", torch.Tensor),
    ("torch.nn.Parameter", torch.nn.Parameter),
    (NN_MODULE, NN_OPERATORS),
    ("torch.nn.init", torch.nn.init),
    ("torch.autograd.Function", torch.autograd.Function),
)


class _Settled:
    """Remembers entries of a namespace that gave no leaf, which are nearly all: they give none while they are what they were."""

    def __init__(self) -> None:
        self._values: dict[str, Any] = {}
        self._codes: dict[str, tuple[types.FunctionType, types.CodeType]] = {}  # of those that are functions of Python

    def others(self, namespace: Any) -> list[tuple[str, Any]]:
        """Returns the entries of a namespace that may give a leaf."""
        values, get = self._values, self._values.get
        for name in [name for name, (function, code) in list(self._codes.items()) if function.__code__ is not code]:
            values.pop(name, None)
            self._codes.pop(name, None)
        return [(name, value) for name, value in vars(namespace).copy().items() if get(name, values) is not value]

    def add(self, name: str, value: Any) -> None:
        """Notes that a value gave no leaf, if nothing else than its code can let it give one."""
        self._codes.pop(name, None)
        if type(value) is types.FunctionType:
            self._codes[name] = value, value.__code__
        elif not (type(value) in _LASTING or issubclass(type(value), type)):
            return
        self._values[name] = value


_settled = {owner: _Settled() for owner, _ in NAMESPACES}


def add_patches(walker: Walker) -> None:
    """Adds leaves for what is not torch's own under a name of torch's; what is, torch's version stands for."""
    for owner, namespace in NAMESPACES:
        for name, value in _settled[owner].others(namespace):
            if name.startswith("__") and namespace is not torch.Tensor:
                continue
            now = unpatched(value)
            if not _add_patch(walker, owner, name, now) and now is value:
                _settled[owner].add(name, value)


def _add_patch(walker: Walker, owner: str, name: str, value: Any) -> bool:
    """Adds leaves for a value that torch does not have under this name; tells whether it is one."""
    if isinstance(value, _C_FUNCTIONS) or (type(value) is types.FunctionType and _is_of_torch(value.__code__)):
        if value.__name__ == name:
            return False
        # A few are in every torch; their texts are the same everywhere.
        walker.emit(f"patched.{owner}.{name}", f"{type(value).__name__} {label(value)}")
    elif _is_foreign(name, value):
        walker.walk(f"patched.{owner}.{name}", value)
    else:
        return False
    return True


def _is_foreign(name: str, value: Any) -> bool:
    kind = type(value)
    if kind in _PLAIN:
        return not name.startswith("__")
    if isinstance(value, (property, staticmethod, classmethod)):
        return not all(map(_is_of_torch, codes_of(value)))
    if kind is types.FunctionType or isinstance(value, (functools.partial, types.MethodType)):
        return True
    return callable(value) and not (isinstance(value, type) or is_covered_class(kind) or kind.__module__ == "pybind11_builtins")


def _is_of_torch(code: types.CodeType) -> bool:
    return code.co_filename.startswith(TORCH_DIR)
