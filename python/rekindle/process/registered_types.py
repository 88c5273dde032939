"""Keeps the functions by which users say what a value of a type holds; see key/values/registered.py, which adds to them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

registered: dict[type, Callable[[Any], Any]] = {}  # by a user, for a type and its subclasses


def is_registered(kind: type) -> bool:
    """Tells whether a user says what values of a type hold."""
    return bool(registered) and any(base in registered for base in kind.__mro__)
