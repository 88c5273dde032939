"""Keeps Python's garbage collector out of what a user waits for."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

_NEVER = 2**31 - 1  # collections of the middle generation until one of all objects


@contextlib.contextmanager
def collector_paused() -> Iterator[None]:
    """Lets no collection begin within the block, if the collector is on.

    For work that makes many objects and no cycles: a full collection, which so many may start, looks at all that `import torch`
    has made. That takes a tenth of a second.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextlib.contextmanager
def no_full_collection() -> Iterator[None]:
    """Lets collections look at young objects only within the block: those that were made lately.

    For work that may make cycles, and many objects: a cycle that holds a model's activations goes when it is young.
    """
    before = gc.get_threshold()
    within = (*before[:2], _NEVER)
    gc.set_threshold(*within)
    try:
        yield
    finally:
        if gc.get_threshold() == within:  # nobody else has set it
            gc.set_threshold(*before)
