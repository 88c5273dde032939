"""Makes `len(tensor)` give a size of the trace in a traced forward.

Python lets nothing but a plain int come out of `__len__`, which would fix the size. So the function itself is another one
meanwhile; other threads do not notice, nor do modules that are imported, of which `torch._dynamo` keeps what it finds for ever.
"""

from __future__ import annotations

import builtins
import contextlib
import importlib._bootstrap as _bootstrap  # type: ignore[import-not-found]
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch

from rekindle.process.process_state import in_this_thread, replaced
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
    with replaced(builtins, "len", _length) as original, _put_back_for_imports(original):
        if original is not _length:
            _Active.original = staticmethod(original)  # of every thread
        before, _active.is_followed = _active.is_followed, True
        try:
            yield
        finally:
            _active.is_followed = before


@contextlib.contextmanager
def _put_back_for_imports(original: Callable[[Any], int]) -> Iterator[None]:
    """Gives modules that this thread imports in the block Python's own function."""
    find = _bootstrap._find_and_load

    def find_with_own(name: str, import_: Any) -> Any:
        if builtins.len is not _length:  # for a module that imports this one
            return find(name, import_)
        builtins.len = original
        try:
            return find(name, import_)
        finally:
            if builtins.len is original:
                builtins.len = _length

    with replaced(_bootstrap, "_find_and_load", in_this_thread(find_with_own, find)):
        yield
