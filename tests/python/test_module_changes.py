"""What a forward reads may change in the process, after a graph exists: the next call follows, as eager does."""

from __future__ import annotations

import collections.abc
import enum
import os
from collections.abc import Callable
from typing import Any, ClassVar

import changing_model
import pytest
import torch
from changing_model import Reader
from module_support import Twins, assert_same, rows


def with_defaults(x: torch.Tensor, by: float = 4.0) -> torch.Tensor:
    return x - by


def _mask(models: list[Any], value: float) -> None:
    for model in models:
        model.mask[0] = value


def _mask_data(models: list[Any], value: float) -> None:
    for model in models:
        model.mask.data.fill_(value)


def _settings(models: list[Any], value: float) -> None:
    for model in models:
        model.settings["rate"] = value


def _method(models: list[Any], value: float) -> None:
    for model in models:
        model.linear.forward = lambda x: x * value


CHANGES: dict[str, Callable[[pytest.MonkeyPatch, list[Any]], None]] = {
    "global constant": lambda patch, _: patch.setattr(changing_model, "SCALE", 3.0),
    "content of a global": lambda patch, _: patch.setitem(changing_model.TABLE, "shift", 5.0),
    "content of a global tensor": lambda patch, _: patch.setattr(changing_model, "OFFSETS", torch.ones(4)),
    "helper function": lambda patch, _: patch.setattr(changing_model, "helper", lambda x: with_defaults(x)),
    "code of a helper": lambda patch, _: patch.setattr(changing_model.helper, "__code__", (lambda x: x - 2).__code__),
    "function of torch": lambda patch, _: patch.setattr(torch.nn.functional, "gelu", torch.tanh),
    "function under torch.nn.Linear": lambda patch, _: patch.setattr(torch.nn.functional, "linear", lambda x, w, b: x @ w),
    "class attribute": lambda patch, _: patch.setattr(Reader, "GAIN", 0.25),
    "content of a class attribute": lambda patch, _: patch.setitem(Reader.LIMITS, "max", 0.5),
    "attribute of another class": lambda patch, _: patch.setattr(changing_model.Settings, "POWER", 7),
    "method of the class": lambda patch, _: patch.setattr(Reader, "forward", lambda self, x: self.linear(x) * 9),
    "environment variable": lambda patch, _: patch.setenv("CHANGING_MODEL", "on"),
    "tensor attribute in place": lambda _, models: _mask(models, 5.0),
    "tensor attribute through data": lambda _, models: _mask_data(models, 0.5),
    "content of an attribute": lambda _, models: _settings(models, 4.0),
    "method of a submodule": lambda _, models: _method(models, 2.0),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_followed_and_so_is_its_undoing(change: str) -> None:
    twins = Twins(Reader())
    before = twins.call(rows())
    with pytest.MonkeyPatch.context() as patch:
        CHANGES[change](patch, [twins.eager, twins.module])
        assert not torch.allclose(twins.call(rows()), before), "the change must matter"
        twins.call(rows())
        exports = twins.status.exports
    again = twins.call(rows())
    if change not in (
        "tensor attribute in place",
        "tensor attribute through data",
        "content of an attribute",
        "method of a submodule",
    ):
        assert_same(again, before)
        assert twins.status.exports == exports, "the first graph is used again"
    assert exports == 2
    assert twins.status.eager_calls == 0


def test_a_global_tensor_written_in_place_is_followed() -> None:
    twins = Twins(Reader(), fallback="error")
    before = twins.call(rows())
    try:
        changing_model.OFFSETS.add_(3)
        assert not torch.allclose(twins.call(rows()), before)
    finally:
        changing_model.OFFSETS.sub_(3)
    twins.call(rows())


class ClassProperty:
    def __init__(self, function: Callable[[Any], float]) -> None:
        self.function = function

    def __get__(self, instance: Any, owner: Any) -> float:
        return self.function(owner)


class Base:
    factor = 2.0
    table: ClassVar[dict[str, float]] = {"factor": 2.0}

    @classmethod
    def read(cls) -> float:
        return cls.factor

    @classmethod
    def look_up(cls) -> float:
        return cls.table["factor"]

    @classmethod
    def make(cls) -> Base:
        return cls()

    current = ClassProperty(lambda owner: owner.factor)


class Derived(Base):
    pass


class Level(enum.Enum):
    LOW = 2.0

    @classmethod
    def first(cls) -> float:
        return cls.LOW.value


# What a forward reads through a class that it is handed, never named where it is read.
OF_CLASSES: dict[str, tuple[Callable[[], float], Callable[[pytest.MonkeyPatch], None]]] = {
    "own": (lambda: Base.read(), lambda patch: patch.setattr(Base, "factor", 3.0)),
    "inherited": (lambda: Derived.read(), lambda patch: patch.setattr(Derived, "factor", 3.0, raising=False)),
    "of a dict": (lambda: Derived.look_up(), lambda patch: patch.setitem(Base.table, "factor", 3.0)),
    "of an instance": (lambda: Derived.make().factor, lambda patch: patch.setattr(Base, "factor", 3.0)),
    "descriptor": (lambda: Derived.current, lambda patch: patch.setattr(Derived, "factor", 3.0, raising=False)),
    "handed on": (lambda: next(read() for read in (Base.read,)), lambda patch: patch.setattr(Base, "factor", 3.0)),
    "enum": (lambda: Level.first(), lambda patch: patch.setattr(Level.LOW, "_value_", 3.0)),
    "registration": (
        lambda: 3.0 if isinstance(REGISTERED, collections.abc.Sequence) else 2.0,
        lambda patch: collections.abc.Sequence.register(Derived),
    ),
}
REGISTERED = Derived()


class Scaling(torch.nn.Module):
    """Multiplies by what a function reads at each call."""

    def __init__(self, read: Callable[[], float]) -> None:
        super().__init__()
        self.linear, self.read = torch.nn.Linear(4, 4), read

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.read()


@pytest.mark.parametrize("name", OF_CLASSES)
def test_a_change_of_a_class_that_a_method_is_handed_is_followed(name: str) -> None:
    twins = Twins(Scaling(OF_CLASSES[name][0]), fallback="error")
    before = twins.call(rows())
    with pytest.MonkeyPatch.context() as patch:
        OF_CLASSES[name][1](patch)
        assert not torch.allclose(twins.call(rows()), before)
    if name != "registration":  # which is for good
        assert_same(twins.call(rows()), before)


class Wrapped:
    as_property = property(lambda self: 2.0)
    as_static = staticmethod(lambda: 2.0)
    as_class = classmethod(lambda cls: 2.0)


READS: dict[str, tuple[Callable[[], float], Callable[..., float]]] = {
    "as_property": (lambda: Wrapped().as_property, lambda self: 5.0),
    "as_static": (lambda: Wrapped.as_static(), lambda: 5.0),
    "as_class": (lambda: Wrapped.as_class(), lambda cls: 5.0),
}


@pytest.mark.parametrize("name", READS)
def test_a_descriptor_that_is_made_anew_in_place_is_followed(name: str) -> None:
    twins, descriptor = Twins(Scaling(READS[name][0]), fallback="error"), vars(Wrapped)[name]
    before = twins.call(rows())
    function = descriptor.fget if name == "as_property" else descriptor.__func__
    descriptor.__init__(READS[name][1])
    try:
        assert not torch.allclose(twins.call(rows()), before)
    finally:
        descriptor.__init__(function)
    assert_same(twins.call(rows()), before)


def test_settings_of_the_process_are_followed() -> None:
    twins = Twins(Reader())
    twins.call(rows())
    try:
        torch.set_default_dtype(torch.float64)
        for model in (twins.eager, twins.wrapped):
            model.double()
            model.zero_grad()
        assert twins.call(rows().double()).dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    for model in (twins.eager, twins.wrapped):
        model.float()
        model.zero_grad()
    twins.call(rows())
    try:
        torch.use_deterministic_algorithms(True)
        twins.call(rows())
        assert twins.status.exports + twins.status.eager_calls >= 3
    finally:
        torch.use_deterministic_algorithms(False)
    twins.call(rows())


def test_what_a_forward_does_not_read_is_not_watched(monkeypatch: pytest.MonkeyPatch) -> None:
    twins = Twins(Reader(), fallback="error")
    twins.call(rows())
    [variant] = [variant for kind in twins.wrapped._runtime._kinds for variant in kind.graphs]
    monkeypatch.setitem(os.environ, "SOMETHING_ELSE", "1")
    monkeypatch.setattr(changing_model, "UNREAD", 1, raising=False)
    with torch.no_grad():
        twins.module.linear.weight.add_(1)
    assert variant.guard.check()
