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


def add_patches(walker: Walker) -> None:
    """Adds leaves for what is not torch's own under a name of torch's; what is, torch's version stands for."""
    for owner, namespace in NAMESPACES:
        for name, value in list(vars(namespace).items()):
            if not name.startswith("__") or namespace is torch.Tensor:
                now = unpatched(value)
                if not (type(now) in _C_FUNCTIONS and now.__name__ == name):  # torch's own, as most are: no leaf
                    _add_patch(walker, f"patched.{owner}.{name}", name, now)


def _add_patch(walker: Walker, path: str, name: str, value: Any) -> None:
    if type(value) in _PLAIN and not name.startswith("__"):
        walker.walk(path, value)
    elif type(value) is types.FunctionType:
        if not value.__code__.co_filename.startswith(TORCH_DIR):
            walker.walk(path, value)
        elif value.__name__ != name:  # a few are, in every torch: their texts are the same everywhere
            walker.emit(path, f"function {label(value)}")
    elif isinstance(value, _C_FUNCTIONS):
        if value.__name__ != name:
            walker.emit(path, f"{type(value).__name__} {label(value)}")
    elif callable(value) and not isinstance(value, type):
        kind = type(value)
        if not (is_covered_class(kind) or kind.__module__ == "pybind11_builtins") or isinstance(
            value, (functools.partial, types.MethodType)
        ):
            walker.walk(path, value)
    elif isinstance(value, (property, staticmethod, classmethod)):
        for code in codes_of(value):
            if not code.co_filename.startswith(TORCH_DIR):
                walker.walk(path, value)
                break
