"""Reads the world outside the process's Python objects: environment variables, random states, the order of sets.

Some answers:

    env_text("HOME", "/root")  # "'/root'"; None for a variable that is not set
    env_text("API_TOKEN", "abc")  # "str[3] " and a digest: its name says that it is secret
    order_kind({1, 2}), order_kind({"a", "b"}), order_kind({object()})  # (None, "texts", "objects")
"""

from __future__ import annotations

import contextlib
import os
import random
import re
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

from rekindle import _native
from rekindle.process.digest import digest128, digest_parts
from rekindle.process.process_state import in_this_thread, replaced

_SECRET = "token|key|secret|pass|cred|auth"  # compiled when the first variable is observed
_TEXT_LIMIT = 64
_MOST_NAMES = 16  # in a set whose order is told by them
# No variable can have such a name.
ALL_NAMES = "=names in os.environ"
ALL_VALUES = "=values in os.environ"


def is_secret(name: str) -> bool:
    """Tells whether a name says that its value should not be written down."""
    return re.search(_SECRET, name, re.IGNORECASE) is not None


def env_text(name: str, value: str | None) -> str | None:
    """Returns what is remembered of a variable: its value if short and not secret by name, else a digest; None if unset."""
    if value is None or (len(value) <= _TEXT_LIMIT and not is_secret(name)):
        return None if value is None else repr(value)
    return f"str[{len(value)}] {digest128(value.encode('utf-8', 'surrogateescape'))}"


def env_now(name: str) -> str | None:
    """Returns what is remembered of a variable, or of all of them, as they are now. Reads past whoever watches the mapping."""
    data = os.environ._data  # type: ignore[attr-defined]
    if name == ALL_NAMES:
        return digest_parts(sorted(data))
    if name == ALL_VALUES:
        return digest_parts(part for pair in sorted(data.items()) for part in pair)
    value = data.get(os.environ.encodekey(name))  # type: ignore[attr-defined]
    return env_text(name, None if value is None else os.environ.decodevalue(value))  # type: ignore[attr-defined]


class EnvironmentReads:
    """Notes, while entered, every read of os.environ by this thread, of unset variables too.

    texts: what is remembered of each variable that was read, by its name
    skip: tells whether a read is not to be noted
    """

    def __init__(self, skip: Callable[[], bool]) -> None:
        self.texts: dict[str, str | None] = {}
        self._skip = skip
        self._entered = contextlib.ExitStack()

    def __enter__(self) -> EnvironmentReads:
        kind = type(os.environ)
        original = {name: getattr(kind, name) for name in ("__getitem__", "__iter__", "__len__")}

        def read(environ: Any, key: Any) -> Any:
            # `get`, `in`, os.getenv and copy all come here, of os.environ and of os.environb.
            if isinstance(key, (str, bytes)) and not self._skip():
                self.note(os.fsdecode(key))
            return original["__getitem__"](environ, key)

        def names(environ: Any) -> Any:
            if not self._skip():
                self.note(ALL_NAMES)
            return original["__iter__"](environ)

        def count(environ: Any) -> int:
            if not self._skip():
                self.note(ALL_NAMES)
            return int(original["__len__"](environ))

        for name, watched in (("__getitem__", read), ("__iter__", names), ("__len__", count)):
            self._entered.enter_context(replaced(kind, name, in_this_thread(watched, original[name])))
        return self

    def __exit__(self, *_: object) -> None:
        self._entered.close()

    def note(self, name: str) -> None:
        """Remembers a variable as it is now, unless it was read before."""
        if name not in self.texts:
            self.texts[name] = env_now(name)


def interpreter_random_states() -> tuple[Any, ...]:
    """Returns the states of Python's and NumPy's global generators, comparable with `==`."""
    numpy = sys.modules.get("numpy.random")
    if numpy is None:
        return random.getstate(), None
    kind, keys, *rest = numpy.get_state()
    return random.getstate(), (kind, keys.tobytes(), *rest)


@contextlib.contextmanager
def interpreter_random_states_kept() -> Iterator[None]:
    """Puts Python's and NumPy's global generators back after the block: the call that follows draws from them as eager's."""
    python = random.getstate()
    numpy = sys.modules.get("numpy.random")
    state = numpy.get_state() if numpy is not None else None
    try:
        yield
    finally:
        random.setstate(python)
        if numpy is not None:
            numpy.set_state(state)


class _CalledBack(threading.local):
    """Holds a flag per thread.

    active: whether code runs that a graph runs too, such as that of an autograd Function; its questions are asked again each time
    """

    active: bool = False


called_back = _CalledBack()

_PROCESS = os.urandom(8).hex()
_PROBE = "rekindle"
_STABLE = (int, float, bool, complex)  # types whose hashes are the same everywhere


def order_kind(items: Any) -> str | None:
    """Returns what the order of a set of such items depends on.

    That is "texts" for the seed of hashes alone, "objects" for addresses, None for nothing.
    """
    kinds = {type(item) for item in items}
    if any(item != item for item in items if type(item) in (float, complex)):
        return "objects"  # NaN, of which the address is hashed
    if kinds <= set(_STABLE):
        return None
    return "texts" if kinds <= {str, bytes, *_STABLE} else "objects"


def order_name(items: Any) -> str | None:
    """Returns a name by which `order_text` finds the order of a set again; None for an order that depends on nothing.

    That is the set's kind or, of a few names whose order their hashes alone decide, the size of the set's table and the names.
    """
    kind = order_kind(items)
    if kind != "texts" or len(items) > _MOST_NAMES or not all(type(item) is str and item.isidentifier() for item in items):
        return kind
    slots = _native.slots_of_set(items)
    return f"{slots} {' '.join(sorted(items))}" if _by_hash(slots, items) == list(items) else kind


def _by_hash(slots: int, names: Any) -> list[str] | None:
    """Returns names in the order of their places in a table; None where two have one place, or the table is not known."""
    places = {hash(name) % slots: name for name in names} if slots else {}
    return [places[i] for i in sorted(places)] if len(places) == len(names) else None


def order_text(name: str) -> str:
    """Returns a text that is equal in processes that order the items of equal sets alike.

    name: a result of `order_name` that is not None
    """
    if name == "objects":
        return f"{_PROCESS} {os.getpid()}"
    slots, *names = name.split(" ")
    order = _by_hash(int(slots), names) if names else None
    return f"{hash(_PROBE):x}" if order is None else " ".join(order)


def order_mark(items: Any) -> str:
    """Returns a text that tells a set of numbers from an equal one in another order.

    It says how the set's order differs from that of a set made of sorted items. It is empty where the two do not differ, and for
    other sets, whose order is another in each process anyway.
    """
    if len(items) < 2 or order_kind(items) is not None:
        return ""
    order = list(items)
    by_text = sorted(order, key=_text)
    if order == list(set(by_text)):
        return ""
    return f" in order {digest_parts(_text(item).encode() for item in order)}"


def _text(item: Any) -> str:
    return f"{item:x}" if type(item) is int else ascii(item)  # hexadecimal, which has no limit of digits
