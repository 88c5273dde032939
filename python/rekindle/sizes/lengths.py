"""Makes `len(tensor)` give a size of the trace in a traced forward.

Python lets nothing but a plain int come out of `__len__`, which would fix the size. So the function itself is another one
meanwhile; other threads do not notice.
"""

from __future__ import annotations

import builtins
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import torch

from rekindle.process.process_state import replaced
from rekindle.sizes.traced_sizes import is_traced


class _Active(threading.local):
    is_followed: bool = False
    original = staticmethod(len)


_active = _Active()


def _length(value: Any, /) -> Any:
    if _active.is_followed and isinstance(value, torch.Tensor) and value.dim() > 0:
        size = value.shape[0]
        if is_traced(size):
            return size
    return _active.original(value)


# To whoever asks for whom code runs it is Python's own: what `len` calls runs for the caller of `len`.
LENGTH = _length.__code__ = _length.__code__.replace(co_filename="<frozen len>")


@contextlib.contextmanager
def lengths_followed(active: bool) -> Iterator[None]:
    """Makes lengths of tensors, asked by this thread, sizes of the trace if `active`. Other threads get ints as ever."""
    if not active:
        yield
        return
    with replaced(builtins, "len", _length) as original:
        if original is not _length:
            _Active.original = staticmethod(original)  # of every thread
        before, _active.is_followed = _active.is_followed, True
        try:
            yield
        finally:
            _active.is_followed = before
