"""Adds leaves for memory that a module's tensors share, with each other or with arguments.

Arguments that share memory with arguments only are left out: batches come as slices of one tensor, and a graph that writes to one
of them looks at each call whether others see it.
"""

from __future__ import annotations

from typing import Any

import torch

from rekindle.key.values.walker import Walker
from rekindle.results.layouts import bytes_of

FIELD = "memory"  # what the names of these leaves begin with


def add_memory(walker: Walker, state: list[tuple[str, torch.Tensor]], inputs: list[torch.Tensor]) -> None:
    """Adds a leaf for each group of tensors that see the same bytes, at least one of them the module's.

    state: parameters and buffers of the module, by path
    inputs: tensors of the call, in order
    """
    found: dict[int, tuple[int, int, str, bool]] = {}
    for path, tensor in state:
        found.setdefault(id(tensor), (*bytes_of(tensor), path, True))
    for i, tensor in enumerate(inputs):
        found.setdefault(id(tensor), (*bytes_of(tensor), f"argument {i}", False))
    groups = [group for group in _groups(list(found.values())) if any(is_state for *_, is_state in group)]
    for i, names in enumerate(sorted([path for _, _, path, _ in group] for group in groups)):
        walker.emit(f"{FIELD}[{i}]", " ".join(names))


def _groups(ranges: list[tuple[int, int, str, bool]]) -> list[list[Any]]:
    """Returns the groups of two or more ranges with bytes in common, directly or through others.

    ranges: (begin, end, name, is the module's)
    """
    groups: list[list[Any]] = []
    end = 0
    for one in sorted(ranges):
        if one[0] == one[1]:
            continue
        if one[0] < end:
            groups[-1].append(one)
        else:
            groups.append([one])
        end = max(end, one[1])
    return [group for group in groups if len(group) > 1]
