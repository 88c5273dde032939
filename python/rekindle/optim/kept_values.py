"""Tells what an optimizer keeps beside the state of each parameter, and whether steps change it.

An example: an optimizer counts its steps in `self.steps`. `kept_values` of it has the counter, and `changed` names it when it is
given what they were a step ago.
"""

from __future__ import annotations

import copy
import gc
import types
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch.optim import Optimizer

# Of torch.optim.Optimizer: what a step works on, what runs around it, and what a scheduler puts in its place.
_NOT_KEPT = frozenset(
    {"state", "param_groups", "step", "_optimizer_step_pre_hooks", "_optimizer_step_post_hooks", "_opt_called"}
)  # fmt: skip


def kept_values(optimizer: Optimizer) -> dict[str, Any]:
    """Returns the attributes of an optimizer, and the settings of its groups, by name."""
    kept = {name: value for name, value in vars(optimizer).items() if name not in _NOT_KEPT}
    for place, group in enumerate(optimizer.param_groups):
        kept |= {f"param_groups[{place}][{name!r}]": value for name, value in group.items() if name != "params"}
    return kept


def picture(kept: Mapping[str, Any]) -> dict[str, Any]:
    """Returns a deep copy, for `changed`. Raises what a copy of such a value raises."""
    return copy.deepcopy(dict(kept))


def changed(before: Mapping[str, Any], after: Mapping[str, Any]) -> str | None:
    """Returns the name of a value that is not what it was in a picture; None where all are."""
    names = before.keys() | after.keys()
    return next((name for name in sorted(names) if not _same(before.get(name), after.get(name), {})), None)


def leading_to(kept: Mapping[str, Any], tensors: set[int]) -> str | None:
    """Returns the name of a value that leads to one of the tensors, given by identity; None where none does."""
    return next((name for name, value in kept.items() if any(id(one) in tensors for one in _reached(value))), None)


def _reached(value: Any) -> Iterator[torch.Tensor]:
    """Yields the tensors that a value leads to by items, attributes and closures."""
    met: dict[int, Any] = {}
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if id(one) in met or isinstance(one, (type, types.ModuleType)):
            continue
        met[id(one)] = one
        if isinstance(one, torch.Tensor):
            yield one
        elif isinstance(one, types.FunctionType):  # without its globals, which lead everywhere
            waiting += [one.__closure__, one.__defaults__, one.__kwdefaults__]
        else:
            waiting += gc.get_referents(one)


def _same(one: Any, other: Any, met: dict[tuple[int, int], Any]) -> bool:
    """Compares by content; `met`: pairs that are being compared, which it keeps alive."""
    if one is other or (id(one), id(other)) in met:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, torch.Tensor):
        return one.shape == other.shape and one.dtype == other.dtype and torch.allclose(one, other, 0, 0, equal_nan=True)
    met[id(one), id(other)] = one, other
    if isinstance(one, Mapping):
        return one.keys() == other.keys() and all(_same(value, other[name], met) for name, value in one.items())
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(_same(*pair, met) for pair in zip(one, other, strict=True))
    if isinstance(one, types.MethodType):
        return one.__func__ is other.__func__ and _same(one.__self__, other.__self__, met)
    if type(one).__eq__ is object.__eq__:  # by what a copy is made of
        return _same(one.__reduce_ex__(4), other.__reduce_ex__(4), met)
    equal = one == other
    return bool(equal.all()) if hasattr(equal, "all") else bool(equal) or one != one
