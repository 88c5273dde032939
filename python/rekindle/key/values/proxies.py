"""Adds the leaves of wrapped modules that a module holds: each is digested as the module that it stands for."""

from __future__ import annotations

from typing import Any

from rekindle.key.values.cells import seen_only
from rekindle.key.values.walker import Kind, Walker, opaque
from rekindle.modules.proxy import wrapping_of


def proxy(walker: Walker, path: str, value: Any) -> None:
    """Adds what a wrapped module stands for, and what was put around its forward; what its graphs are is not what it computes."""
    wrapping = wrapping_of(value)
    if wrapping is None:
        raise opaque(path, value)
    walker.walk(path, wrapping.module)
    around_forward(walker, path, value)


def around_forward(walker: Walker, path: str, value: Any) -> None:
    """Adds what was put around the forward of a wrapped module."""
    if not walker.seen(f"{path}.forward", value):
        walker.watch(value, _AROUND)
        walker.walk(f"{path}.forward", *_forward(value))


def _forward(value: Any) -> tuple[Any]:
    wrapping = wrapping_of(value)
    return (None if wrapping is None else wrapping.forward,)


_AROUND = seen_only(_forward)
PROXY = Kind(proxy, cells=(), by_identity=False)
