"""Leaves for what was patched into torch: entries of its namespaces that torch itself did not put there."""

from __future__ import annotations

import os
import types
from collections.abc import Iterator
from typing import Any

import torch

from rekindle.fingerprint.values import Walker

TORCH_DIR = os.path.dirname(torch.__file__) + os.sep

NAMESPACES: tuple[tuple[str, Any], ...] = (
    ("torch.nn.functional", torch.nn.functional),
    ("torch", torch),
    ("torch.Tensor", torch.Tensor),
    ("torch._C._nn", torch._C._nn),
    ("torch.nn.init", torch.nn.init),
    ("torch.autograd.Function", torch.autograd.Function),
)


def add_patches(walker: Walker) -> None:
    """Add one leaf set per Python function from elsewhere; torch's own functions are covered by its
    version."""
    for name, function in _foreign():
        walker.walk(name, function)


def _foreign() -> Iterator[tuple[str, types.FunctionType]]:
    for label, namespace in NAMESPACES:
        for name, value in vars(namespace).items():
            if type(value) is types.FunctionType and not value.__code__.co_filename.startswith(TORCH_DIR):
                yield f"patched.{label}.{name}", value
