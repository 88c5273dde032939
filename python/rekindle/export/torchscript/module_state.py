"""Refuses what a forward may not do to the private copy of a module that it runs on: the live one would have to follow."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from torch import nn

from rekindle.modules.module_tables import named_modules
from rekindle.reasons import Bypass, Reason


@contextlib.contextmanager
def state_kept(module: nn.Module) -> Iterator[None]:
    """Refuses a forward that puts other tensors in the place of parameters or buffers, or adds some."""
    tables = [table for submodule in named_modules(module).values() for table in (submodule._parameters, submodule._buffers)]
    before = [dict(table) for table in tables]
    yield
    for table, kept in zip(tables, before, strict=True):
        changed = next((leaf for leaf in {**kept, **table} if table.get(leaf) is not kept.get(leaf)), None)
        if changed is not None:
            raise Bypass(
                Reason.BUFFER_MUTATED, f"the forward puts another tensor in the place of {changed!r}, which no graph can do yet"
            )


# What torch's recurrent layers derive from their parameters whenever these are others.
_FLAT_WEIGHTS = ("_flat_weights", "_flat_weight_refs")


@contextlib.contextmanager
def attributes_kept(module: nn.Module) -> Iterator[None]:
    """Refuses a forward that does anything to the modules' attributes."""
    before = [(submodule, dict(submodule.__dict__)) for submodule in named_modules(module).values()]
    yield
    for submodule, attributes in before:
        derived = _FLAT_WEIGHTS if isinstance(submodule, nn.RNNBase) else ()
        for name in [*submodule.__dict__, *attributes]:
            if submodule.__dict__.get(name) is not attributes.get(name) and name not in derived:
                what = f"{type(submodule).__name__}.{name}"
                raise Bypass(Reason.STATE_MUTATED, f"the forward changes the attribute {what}; keep state in buffers")
