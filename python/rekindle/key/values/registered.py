"""Keeps the functions by which users say what a value of a type holds: `rekindle.register_digest`.

For example, after `register_digest(Vocabulary, lambda vocabulary: vocabulary.words)` a module may hold a `Vocabulary`: its key
has the words in it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rekindle.key.values.walker import Walker, opaque, resolved
from rekindle.process.digest import digest_leaves
from rekindle.process.registered_types import registered
from rekindle.reasons import Bypass


def register_digest(kind: type, function: Callable[[Any], Any] | None) -> None:
    """Makes values of `kind` and its subclasses digestible, wherever they are met.

    `function(value)` returns plain data, nested if need be, that stands for the value: whatever may change what a forward does
    has to change the data. It is called at every call of a module that holds such a value, so it should be fast. Its code is part
    of the key as well. None removes a registration. Raises TypeError if `kind` is no type.
    """
    if not isinstance(kind, type):
        raise TypeError(f"register_digest takes a type, not {kind!r}")
    if function is None:
        registered.pop(kind, None)
    else:
        registered[kind] = function
    resolved.clear()


def registered_walk(path: str, value: Any, function: Callable[[Any], Any]) -> Walker:
    """Returns a walk over what a digest function says of a value; raises Bypass if it does not say."""
    try:
        data = function(value)
    except Exception as error:
        why = f", whose registered digest function raised {type(error).__name__}: {error}"
        raise opaque(path, value, why) from error
    if type(data) is type(value):
        raise opaque(path, value, ", whose registered digest function returned another such value")
    walker = Walker()
    walker.walk(f"{path}.digest", data)
    return walker


def still_registered(value: Any, digest: str, path: str = "") -> bool:
    """Tells whether the digest function of a value's type says of it what it said before.

    If it raises, it does not; the next description of the module tells its user.
    """
    function = next((registered[base] for base in type(value).__mro__ if base in registered), None)
    try:
        return function is not None and digest_leaves(registered_walk(path, value, function).leaves) == digest
    except Bypass:
        return False
