"""Adds the leaves of plain values and containers of them; see `walker.Walker`.

For example, `[1, [2, 3], {"b", "a"}]` at the path `x` gives one leaf for each item, as not all of them are plain:

    x       list[3]
    x[0]    1
    x[1]    [2, 3]
    x[2]    set ["'a'", "'b'"]
"""

from __future__ import annotations

import collections
import enum
import types
import typing
from collections import OrderedDict
from collections.abc import Iterable
from typing import Any

from rekindle.key.code.module_names import module_of
from rekindle.key.values.cells import BYTES as BYTE_ARRAY
from rekindle.key.values.cells import DEQUE, ITEMS, LIST, OBJECT, SET, Cells, seen_only
from rekindle.key.values.library_members import add_class_members
from rekindle.key.values.walker import IMMUTABLE, Kind, Walker, attribute_path, handles, label, leaves_text, opaque
from rekindle.process.digest import digest128, digest_leaves
from rekindle.process.origin import is_covered_class
from rekindle.process.world import order_mark

_ENUM_FIELDS = frozenset({"_name_", "_value_", "__objclass__", "_sort_order_"})
_TEXT_LIMIT = 160  # longer texts are digested
_MOST_LEVELS = 30  # of sets inside of each other
_PRIMITIVES = frozenset({type(None), bool, int, float, str})


def _plain_text(value: Any) -> str | None:
    """Returns the repr of a container of plain values, or None if an integer is too long for decimal digits."""
    try:
        return repr(value)
    except ValueError:
        return None


def _clip(kind: str, size: int, text: str) -> str:
    if len(text) <= _TEXT_LIMIT:
        return text
    return f"{kind}[{size}] {digest128(text.encode('utf-8', 'surrogatepass'))}"


@handles(type(None), bool, cells=IMMUTABLE)
def _plain(walker: Walker, path: str, value: Any) -> None:
    walker.leaves.append((path, value))


@handles(float, cells=IMMUTABLE, exact=float.__float__)
def _float(walker: Walker, path: str, value: float) -> None:
    walker.leaves.append((path, value))


@handles(int, cells=IMMUTABLE, exact=int.__int__)
def _int(walker: Walker, path: str, value: int) -> None:
    walker.leaves.append((path, value if -(1 << 63) <= value < 1 << 63 else f"int {value:x}"))


@handles(str, cells=IMMUTABLE, exact=str.__str__)
def _str(walker: Walker, path: str, value: str) -> None:
    walker.leaves.append((path, _clip("str", len(value), repr(value))))


def _bytes_text(value: bytes) -> str:
    return value.hex() if len(value) <= 32 else digest128(value)


@handles(bytes, cells=IMMUTABLE, exact=bytes.__bytes__)
def _bytes(walker: Walker, path: str, value: bytes) -> None:
    walker.leaves.append((path, f"bytes[{len(value)}] {_bytes_text(value)}"))


@handles(bytearray, cells=(BYTE_ARRAY,), by_identity=False, exact=lambda value: bytearray(memoryview(value)))
def _bytearray(walker: Walker, path: str, value: bytearray) -> None:
    walker.leaves.append((path, f"bytearray[{len(value)}] {_bytes_text(bytes(value))}"))


# Classes of one object each; typing.NoDefault came with Python 3.13.
_SINGLETONS = {type(only) for only in (..., NotImplemented, getattr(typing, "NoDefault", ...))}


@handles(range, *_SINGLETONS, cells=IMMUTABLE)
def _repr(walker: Walker, path: str, value: Any) -> None:
    walker.leaves.append((path, f"{type(value).__name__} {value!r}"))


@handles(complex, cells=IMMUTABLE, exact=complex.__complex__)
def _complex(walker: Walker, path: str, value: complex) -> None:
    walker.leaves.append((path, f"complex {value!r}"))


@handles(slice, cells=IMMUTABLE, shared=True)
def _slice(walker: Walker, path: str, value: slice) -> None:
    parts = (value.start, value.stop, value.step)
    if set(map(type, parts)) <= _PRIMITIVES:
        walker.leaves.append((path, f"slice {value!r}"))
        return
    walker.leaves.append((path, "slice"))
    for name, part in zip(("start", "stop", "step"), parts, strict=True):
        walker.walk(f"{path}.{name}", part)


# Which equal tuples are one object is up to the interpreter, so only mutable sequences are known by identity.
@handles(tuple, cells=IMMUTABLE, exact=lambda value: tuple(tuple.__iter__(value)))
def _tuple(walker: Walker, path: str, value: Any) -> None:
    _sequence(walker, path, value, "tuple")


@handles(list, cells=(LIST,), exact=lambda value: list(list.__iter__(value)))
def _list(walker: Walker, path: str, value: Any) -> None:
    _sequence(walker, path, value, "list")


_LENGTH: Any = vars(collections.deque)["maxlen"]


def _deque_of(value: Any) -> Any:
    return collections.deque(collections.deque.__iter__(value), _LENGTH.__get__(value))


@handles(collections.deque, cells=(DEQUE,), exact=_deque_of)
def _deque(walker: Walker, path: str, value: Any) -> None:
    _sequence(walker, path, list(value), f"deque of {value.maxlen}" if value.maxlen is not None else "deque")


def _sequence(walker: Walker, path: str, value: Any, kind: str) -> None:
    """Adds one line if all items are plain, else leaves per item."""
    if set(map(type, value)) <= _PRIMITIVES:
        text = _plain_text(value)
        if text is not None:
            text = text if kind in ("list", "tuple") else f"{kind} {text}"
            walker.leaves.append((path, _clip(kind, len(value), text)))
            return
    walker.leaves.append((path, f"{kind}[{len(value)}]"))
    for index, item in enumerate(value):
        walker.walk(f"{path}[{index}]", item)


@handles(dict, cells=(ITEMS,), exact=lambda value: dict(dict.items(value)))
def _dict(walker: Walker, path: str, value: Any) -> None:
    module = module_of(value) if "__name__" in value else None
    if module is not None:
        walker.leaves.append((path, "names of a module"))
        walker.walk(path, module)
    else:
        items(walker, path, "dict", value.items())


@handles(OrderedDict, cells=(ITEMS,), exact=lambda value: OrderedDict(OrderedDict.items(value)))
@handles(collections.Counter, cells=(ITEMS,), exact=lambda value: collections.Counter(dict(dict.items(value))))
def _mapping(walker: Walker, path: str, value: Any) -> None:
    items(walker, path, type(value).__name__, type(value).items(value))
    add_class_members(walker, path, type(value))


_FACTORY: Any = vars(collections.defaultdict)["default_factory"]
_DEFAULT = Cells(None, lambda value: (_FACTORY.__get__(value),), lambda value, parts: _FACTORY.__set__(value, parts[0]))


def _defaultdict_of(value: Any) -> Any:
    return collections.defaultdict(_FACTORY.__get__(value), dict.items(value))


@handles(collections.defaultdict, cells=(ITEMS, _DEFAULT), exact=_defaultdict_of)
def _defaultdict(walker: Walker, path: str, value: Any) -> None:
    items(walker, path, "defaultdict", value.items())
    walker.walk(f"{path}.default_factory", value.default_factory)


@handles(types.MappingProxyType, cells=(seen_only(lambda value: (*value, *value.values())),))
def _proxy(walker: Walker, path: str, value: Any) -> None:
    items(walker, path, "mappingproxy", value.items())


def items(walker: Walker, path: str, kind: str, pairs: Iterable[tuple[Any, Any]]) -> None:
    """Adds the leaves of mapping items in their order; keys that are not plain get leaves of their own."""
    pairs = list(pairs)
    walker.leaves.append((path, f"{kind}[{len(pairs)}]"))
    for index, (key, item) in enumerate(pairs):
        text = _plain_text(key) if type(key) in _PRIMITIVES else None
        if text is not None:
            walker.walk(f"{path}[{text}]", item)
        else:
            walker.walk(f"{path}.keys[{index}]", key)
            walker.walk(f"{path}.values[{index}]", item)


@handles(set, cells=(SET,), exact=lambda value: set(set.__iter__(value)))
@handles(frozenset, cells=IMMUTABLE, exact=lambda value: frozenset(frozenset.__iter__(value)))
def _unordered(walker: Walker, path: str, value: Any) -> None:
    """Adds the sorted texts of a set's items, and of numbers what tells their order."""
    kind, mark = type(value).__name__, order_mark(value)
    plain = [_plain_text(item) for item in value] if set(map(type, value)) <= _PRIMITIVES else [None]
    if None not in plain:
        text = _clip(kind, len(value), f"{kind} {sorted(plain)}")  # type: ignore[type-var]
        walker.leaves.append((path, text + mark))
        return
    if walker.level >= _MOST_LEVELS:
        raise opaque(path, value, f" inside of {_MOST_LEVELS} others")
    texts = []
    for item in value:
        inner = Walker(walker.deep_classes, level=walker.level + 1)
        inner.excluded = walker.excluded
        inner.walk(f"{path}{{}}", item)
        texts.append(leaves_text(inner.leaves))
        walker.take_parts(inner)
        walker.met_in_sets.append((texts[-1], inner.met))
    walker.leaves.append((path, f"{kind}[{len(value)}] {digest_leaves(('', text) for text in sorted(texts))}{mark}"))


def class_text(walker: Walker, cls: type) -> str:
    """Returns a class by name if a version stands for it, else by its code as well."""
    return label(cls) if is_covered_class(cls) else walker.add_class(cls)


def _enum_member(walker: Walker, path: str, value: enum.Enum) -> None:
    walker.leaves.append((path, f"enum {class_text(walker, type(value))}.{value._name_}"))
    walker.walk(f"{path}.value", value._value_)
    walker.attributes(path, value, _ENUM_FIELDS)


def _structure(walker: Walker, path: str, value: Any) -> None:
    """Adds a struct sequence, as of time or torch.return_types: what it shows as items, and what only by name."""
    shown, named = value.__reduce__()[1]
    walker.leaves.append((path, f"tuple {label(type(value))}[{len(value)}]"))
    for index, item in enumerate(shown):
        walker.walk(f"{path}[{index}]", item)
    for name, item in named.items():
        walker.walk(attribute_path(path, name), item)


def find(cls: type) -> Kind | None:
    """Returns the kind of a class that is made of a plain one, or None."""
    if issubclass(cls, enum.Enum):
        return ENUM_MEMBER
    if issubclass(cls, tuple) and hasattr(cls, "n_sequence_fields"):
        return Kind(_structure, IMMUTABLE, False)
    return None


ENUM_MEMBER = Kind(_enum_member, (OBJECT,), True, shared=True)
