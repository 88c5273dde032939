"""Values of subclasses and enums, and classes of extensions: a guard sees what can be set on them, and their texts have it."""

from __future__ import annotations

import collections
import datetime
import decimal
import enum
import functools
import pathlib
import sys
import weakref
from typing import Any

import pytest
from fingerprint_support import load
from kinds_support import Thing, deleted, guarded, set_to
from rekindle.key.values import kinds as _every_kind  # noqa: F401  which fills the registry
from rekindle.key.values.walker import kinds, value_text


def _function(k: float = 1.0) -> float:
    return k


class Kept(dict):  # type: ignore[type-arg]
    __slots__ = ("s",)

    def items(self) -> Any:
        raise AssertionError("a method of the user's runs")

    __iter__ = keys = values = __len__ = __getitem__ = items  # type: ignore[assignment]


@pytest.mark.parametrize(
    "kind", [kind for kind, known in kinds.items() if known.exact is not None], ids=lambda kind: kind.__name__
)
def test_a_subclass_is_its_class_its_attributes_its_slots_and_what_it_is_made_of(kind: type) -> None:
    samples: dict[Any, tuple[Any, ...]] = {
        tuple: ((1, 2),), list: ([1, 2],), str: ("a",), int: (1,), float: (1.0,), complex: (1j,), bytes: (b"a",), set: ({1},),
        frozenset: ({1},), bytearray: (b"a",), dict: ({"a": 1},), collections.OrderedDict: ({"a": 1},), datetime.time: (1,),
        collections.Counter: ({"a": 1},), collections.defaultdict: (int, {"a": 1}), collections.deque: ([1], 3),
        functools.partial: (_function, 1), property: (_function,), weakref.ref: (Thing,), decimal.Decimal: ("1",),
        datetime.date: (2000, 1, 1), datetime.datetime: (2000, 1, 1), datetime.timedelta: (1,), staticmethod: (_function,),
        classmethod: (_function,),
    }  # fmt: skip
    own = type("Own", (kind,), {"__module__": __name__})
    arguments = samples.get(kind, ("a",) if issubclass(kind, pathlib.PurePath) else ())
    if kind in (pathlib.Path, pathlib.PurePath):
        own = type("Own", (type(kind("a")),), {"__module__": __name__})
    value = own(*arguments)
    for change in (set_to("k", 1.0), set_to("k", 3.0), set_to("other", None), deleted("k")):
        guard, text, _ = guarded(value)
        assert guard.check()
        change(value)
        assert not guard.check() and value_text("value", value) != text


def test_no_method_of_a_subclass_runs() -> None:
    value = Kept(a=1.0)
    before = value_text("value", value)
    dict.__setitem__(value, "a", 2.0)
    assert value_text("value", value) != before
    value.s = 1.0
    guard, _, _ = guarded(value)
    value.s = 2.0
    assert not guard.check()


def test_members_of_enums_and_classes_are_watched() -> None:
    class Colour(enum.Enum):
        RED = 1

    guard, text, _ = guarded(Colour.RED)
    Colour.RED.k = 3.0  # type: ignore[attr-defined]
    assert not guard.check() and value_text("value", Colour.RED) != text


def test_the_class_of_another_build_of_an_extension_has_another_text(tmp_path: pathlib.Path, monkeypatch: Any) -> None:
    from rekindle.key.code import binaries

    module = load("kinds_extension", "class Made:\n    pass\n")
    texts = set()
    for build in (b"1", b"2"):
        path = tmp_path / f"kinds_extension{build.decode()}.so"
        path.write_bytes(build)
        monkeypatch.setattr(module, "__file__", str(path))
        assert binaries.build_of("kinds_extension")
        texts.add(value_text("value", module.Made))
    assert len(texts) == 2
    del sys.modules["kinds_extension"]
