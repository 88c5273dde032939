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
