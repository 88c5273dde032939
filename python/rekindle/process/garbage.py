"""Keeps Python's garbage collector out of what a user waits for."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator


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
