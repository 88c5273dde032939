"""Values whose texts tests compare."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from rekindle.key.values.walker import value_text


@dataclass
class Point:
    x: int
    y: int


class Slotted:
    __slots__ = ("left", "right")

    def __init__(self, left: Any) -> None:
        self.left = left


def closure(value: Any) -> Callable[[], Any]:
    return lambda: value


def text(value: Any) -> str:
    return value_text("value", value)
