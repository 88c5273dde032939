"""Walks a module's tree by its tables, whatever its classes make of nn.Module's methods, and whether or not they have a hash."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import nn

from rekindle.modules.proxy import unwrapped
from rekindle.process.torch_internals import disabled_torch_function


def named_modules(root: nn.Module) -> dict[str, nn.Module]:
    """Returns each module under the first of its names, as nn.Module.named_modules does."""
    return dict(_walk("", root, set()))


def _walk(name: str, module: nn.Module, seen: set[int]) -> Iterator[tuple[str, nn.Module]]:
    if id(module) not in seen:
        seen.add(id(module))
        yield name, module
        for leaf, child in module._modules.items():
            if child is not None:
                yield from _walk(f"{name}.{leaf}" if name else leaf, child, seen)


def named_parameters(root: nn.Module) -> dict[str, nn.Parameter]:
    """Returns each parameter under the first of its names, as nn.Module.named_parameters does."""
    return _tensors(root, "_parameters")


def named_buffers(root: nn.Module) -> dict[str, torch.Tensor]:
    """Returns each buffer that graphs may take under the first of its names, as nn.Module.named_buffers does."""
    return {name: buffer for name, buffer in _tensors(root, "_buffers").items() if has_strides(buffer)}


def places_of(root: nn.Module, attributes: Iterable[tuple[str, str]]) -> list[tuple[dict[str, Any], str]]:
    """Returns the dict of the module that has, or is to have, each attribute, given as (module's name, attribute's).

    Raises KeyError for a module that is not there.
    """
    places = list(attributes)
    modules = named_modules(root) if places else {}
    return [(unwrapped(modules[owner]).__dict__, name) for owner, name in places]


def has_strides(buffer: object) -> bool:
    """Tells whether a buffer is a tensor that graphs may take; asks nothing of what stands for one in a private copy."""
    if not issubclass(type(buffer), torch.Tensor):
        return False
    with disabled_torch_function():
        return buffer.layout is torch.strided  # type: ignore[attr-defined]


def _tensors(root: nn.Module, table: str) -> dict[str, torch.Tensor]:
    seen: set[int] = set()
    found: dict[str, torch.Tensor] = {}
    for name, module in named_modules(root).items():
        for leaf, tensor in getattr(module, table).items():
            if tensor is not None and id(tensor) not in seen:
                seen.add(id(tensor))
                found[f"{name}.{leaf}" if name else leaf] = tensor
    return found
