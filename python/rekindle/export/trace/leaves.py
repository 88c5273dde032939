"""Finds the leaves of what torch is called with and returns, without code of torch's, which a recorder would be told of."""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_leaves

_LEAVES = (torch.Tensor, torch.nn.Parameter, int, float, bool, str, type(None), torch.dtype, torch.device)


def leaves_of(values: Any) -> list[Any]:
    """Returns the leaves of nested containers, in the order of `torch.utils._pytree.tree_leaves`."""
    kind = type(values)
    if kind in _LEAVES:
        return [values]
    if kind is dict:
        values = values.values()
    elif kind is not tuple and kind is not list:
        return tree_leaves(values)
    return [leaf for value in values for leaf in leaves_of(value)]


def tensors_of(values: Any) -> list[torch.Tensor]:
    """Returns the tensors among the leaves."""
    return [leaf for leaf in leaves_of(values) if isinstance(leaf, torch.Tensor)]
