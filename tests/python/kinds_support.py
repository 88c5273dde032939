"""Changes of values of registered kinds, and the guards that see them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rekindle import _native
from rekindle.key.values.cells import Cells
from rekindle.key.values.walker import Walker, value_text

Change = Callable[[Any], Any]


class Thing:
    def __init__(self) -> None:
        self.k = 1.0


def set_to(name: str, value: Any) -> Change:
    return lambda held: setattr(held, name, value)


def deleted(name: str) -> Change:
    return lambda held: delattr(held, name)


def guarded(value: Any) -> tuple[Any, str, list[tuple[Any, Cells]]]:
    walker = Walker()
    walker.walk("value", value)
    cells = [(held, one.comparison) for held, one in walker.cells]
    return _native.Guard([], [], [], cells), value_text("value", value), walker.cells
