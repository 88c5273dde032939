"""Keeps the collectives of an export from the other ranks, which need not run as often, or not at all."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from rekindle import _native


@contextlib.contextmanager
def answered_here() -> Iterator[None]:
    """Answers torch.distributed's collectives in this thread, as if all ranks had the same tensors.

    An example: in one of 4 ranks, `all_reduce(torch.ones(2))` gives [4, 4], and no other rank hears of it. Received tensors hold
    a fixed pattern. See python/process/collectives.h.
    """
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        yield
        return
    before = _native.answer_collectives(True)
    try:
        yield
    finally:
        _native.answer_collectives(before)
