"""A module's state around a forward that is traced: tensors in the place of others, and everything as it was afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from rekindle.module_tables import named_modules
from rekindle.reasons import Bypass, Reason


@contextlib.contextmanager
def replaced(module: nn.Module, state: dict[str, torch.Tensor]) -> Iterator[None]:
    """Put `state` in the place of the module's parameters and buffers, under every name a shared one has."""
    by_identity: dict[int, torch.Tensor] = {}
    modules = named_modules(module)
    for name, tensor in state.items():
        owner, _, leaf = name.rpartition(".")
        found = modules[owner]
        original = found._parameters.get(leaf) if leaf in found._parameters else found._buffers[leaf]
        by_identity[id(original)] = tensor
    swapped: list[tuple[dict[str, Any], str, Any]] = []
    tables = [table for submodule in modules.values() for table in (submodule._parameters, submodule._buffers)]
    before = [dict(table) for table in tables]
    changed = None
    try:
        for submodule in modules.values():
            for table in (submodule._parameters, submodule._buffers):
                for leaf, original in list(table.items()):
                    if original is not None:
                        swapped.append((table, leaf, original))
                        table[leaf] = by_identity[id(original)]
        yield
        changed = next((leaf for table, leaf, original in swapped if table.get(leaf) is not by_identity[id(original)]), None)
        added = next((leaf for table, kept in zip(tables, before, strict=True) for leaf in table if leaf not in kept), None)
        changed = changed or added
    finally:
        for table, kept in zip(tables, before, strict=True):
            table.clear()
            table.update(kept)
    if changed is not None:
        raise Bypass(
            Reason.BUFFER_MUTATED, f"the forward puts another tensor in the place of {changed!r}, which no graph can do yet"
        )


# What torch's recurrent layers derive from their parameters whenever these are others.
_FLAT_WEIGHTS = ("_flat_weights", "_flat_weight_refs")


@contextlib.contextmanager
def attributes_kept(module: nn.Module) -> Iterator[None]:
    """Undo what the forward does to the modules' attributes, and refuse a forward that does anything to them."""
    before = [(submodule, dict(submodule.__dict__)) for submodule in named_modules(module).values()]
    changed = None
    try:
        yield
    finally:
        for submodule, attributes in before:
            derived = _FLAT_WEIGHTS if isinstance(submodule, nn.RNNBase) else ()
            for name in [*submodule.__dict__, *attributes]:
                if submodule.__dict__.get(name) is not attributes.get(name) and name not in derived:
                    changed = changed or f"{type(submodule).__name__}.{name}"
            submodule.__dict__.clear()
            submodule.__dict__.update(attributes)
    if changed is not None:
        raise Bypass(Reason.STATE_MUTATED, f"the forward changes the attribute {changed}; keep state in buffers")
