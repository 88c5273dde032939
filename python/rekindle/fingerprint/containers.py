"""Handlers for plain values and containers of them; see `values.Walker`."""

from __future__ import annotations

import collections
import enum
import types
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from rekindle.fingerprint.digest import digest128, digest_leaves
from rekindle.fingerprint.origin import is_covered_class
from rekindle.fingerprint.values import Walker, attribute_path, handles, label, leaves_text
from rekindle.fingerprint.world import order_mark

_ENUM_FIELDS = frozenset({"_name_", "_value_", "__objclass__", "_sort_order_"})
_TEXT_LIMIT = 160  # longer texts are digested
_PRIMITIVES = frozenset({type(None), bool, int, float, str})


def _plain_text(value: Any) -> str | None:
    """The repr of a container of plain values, or None if an integer is too long for decimal digits."""
    try:
        return repr(value)
    except ValueError:
        return None


def _clip(kind: str, size: int, text: str) -> str:
    if len(text) <= _TEXT_LIMIT:
        return text
    return f"{kind}[{size}] {digest128(text.encode('utf-8', 'surrogatepass'))}"


@handles(type(None), bool, float)
def _plain(walker: Walker, path: str, value: Any) -> None:
    walker.leaves.append((path, value))


@handles(int)
def _int(walker: Walker, path: str, value: int) -> None:
    walker.leaves.append((path, value if -(1 << 63) <= value < 1 << 63 else f"int {value:x}"))


@handles(str)
def _str(walker: Walker, path: str, value: str) -> None:
    walker.leaves.append((path, _clip("str", len(value), repr(value))))


@handles(bytes, bytearray)
def _bytes(walker: Walker, path: str, value: bytes | bytearray) -> None:
    if type(value) is bytearray:
        walker.tensors.append((path, value))
    text = f"{type(value).__name__}[{len(value)}] "
    walker.leaves.append((path, text + (value.hex() if len(value) <= 32 else digest128(bytes(value)))))


@handles(complex, range, slice, type(...), type(NotImplemented), types.GenericAlias, types.UnionType)
def _repr(walker: Walker, path: str, value: Any) -> None:
    walker.leaves.append((path, f"{type(value).__name__} {value!r}"))


@handles(list, tuple, collections.deque)
def sequence(walker: Walker, path: str, value: Any) -> None:
    """A list, tuple or deque: one line if all items are plain, else leaves per item."""
    kind = type(value).__name__
    if type(value) is list:
        walker.containers.append(value)
    elif type(value) is collections.deque:
        walker.reads.append((value, tuple))
    # Which equal tuples are one object is up to the interpreter, so only mutable sequences are known by
    # identity.
    if type(value) is not tuple and walker.seen(path, value):
        return
    if set(map(type, value)) <= _PRIMITIVES:
        text = _plain_text(value if type(value) in (list, tuple) else list(value))
        if text is not None:
            text = text if type(value) in (list, tuple) else f"{kind} {text}"
            walker.leaves.append((path, _clip(kind, len(value), text)))
            return
    walker.leaves.append((path, f"{kind}[{len(value)}]"))
    for index, item in enumerate(value):
        walker.walk(f"{path}[{index}]", item)


@handles(dict, OrderedDict, collections.defaultdict, collections.Counter, types.MappingProxyType)
def _mapping(walker: Walker, path: str, value: Any) -> None:
    if isinstance(value, dict):
        walker.containers.append(value)
    else:
        walker.reads.append((value, _pairs))
    if walker.seen(path, value):
        return
    items(walker, path, type(value).__name__, value.items())
    factory = getattr(value, "default_factory", None)
    if factory is not None:
        walker.walk(f"{path}.default_factory", factory)


def _pairs(mapping: Any) -> tuple[Any, ...]:
    return (*mapping, *mapping.values())


def items(walker: Walker, path: str, kind: str, pairs: Iterable[tuple[Any, Any]]) -> None:
    """Leaves of mapping items in their order; keys that are not plain get leaves of their own."""
    pairs = list(pairs)
    walker.leaves.append((path, f"{kind}[{len(pairs)}]"))
    for index, (key, item) in enumerate(pairs):
        text = _plain_text(key) if type(key) in _PRIMITIVES else None
        if text is not None:
            walker.walk(f"{path}[{text}]", item)
        else:
            walker.walk(f"{path}.keys[{index}]", key)
            walker.walk(f"{path}.values[{index}]", item)


@handles(set, frozenset)
def unordered(walker: Walker, path: str, value: Any) -> None:
    """A set: the sorted texts of its items, and of numbers what tells their order."""
    if type(value) is set:
        walker.containers.append(value)
        if walker.seen(path, value):
            return
    kind, mark = type(value).__name__, order_mark(value)
    plain = [_plain_text(item) for item in value] if set(map(type, value)) <= _PRIMITIVES else [None]
    if None not in plain:
        text = _clip(kind, len(value), f"{kind} {sorted(plain)}")  # type: ignore[type-var]
        walker.leaves.append((path, text + mark))
        return
    texts = []
    for item in value:
        inner = Walker(walker.deep_classes)
        inner.excluded = walker.excluded
        inner.walk(f"{path}{{}}", item)
        texts.append(leaves_text(inner.leaves))
        walker.take_parts(inner)
    walker.leaves.append((path, f"{kind}[{len(value)}] {digest_leaves(('', text) for text in sorted(texts))}{mark}"))


def _class_text(walker: Walker, cls: type) -> str:
    return label(cls) if is_covered_class(cls) else walker.add_class(cls)


def enum_member(walker: Walker, path: str, value: enum.Enum) -> None:
    """An enum member: class, name and value."""
    if walker.seen(path, value):
        return
    walker.leaves.append((path, f"enum {_class_text(walker, type(value))}.{value._name_}"))
    walker.walk(f"{path}.value", value._value_)
    walker.containers.append(vars(value))
    for name, item in vars(value).items():
        if name not in _ENUM_FIELDS:
            walker.walk(attribute_path(path, name), item)


def namedtuple(walker: Walker, path: str, value: Any) -> None:
    """A named tuple or struct sequence: class and items."""
    walker.leaves.append((path, f"tuple {_class_text(walker, type(value))}[{len(value)}]"))
    names = getattr(value, "_fields", range(len(value)))
    for name, item in zip(names, value, strict=True):
        walker.walk(f"{path}.{name}", item)
