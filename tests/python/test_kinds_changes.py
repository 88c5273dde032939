"""State of many kinds that a forward reads, changed after a call: the next call of the wrapped module, and a new wrapper over the
same cache, follow as eager does."""

from __future__ import annotations

import builtins
import gc
import pathlib
import sys
import weakref
from typing import Any

import numpy
import pytest
import rekindle
import torch
from kind_changes import CHANGES, Box
from module_support import assert_same, rows
from reader_support import Holder, assert_a_change_is_followed
from rekindle.lookup.store import flush
from torch import nn


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_followed(name: str, tmp_path: pathlib.Path) -> None:
    make, read, change = CHANGES[name]
    status = assert_a_change_is_followed(Holder(make(), read), change, tmp_path)
    assert status.source in ("export", "local"), status.bypass


def test_a_namespace_of_exec_is_left_as_it_is(tmp_path: pathlib.Path) -> None:
    namespace: dict[str, Any] = {}
    exec("k = 2.0", namespace)
    names = dict(vars(builtins))
    order = list(vars(builtins))
    module = Holder(namespace, lambda held: held["k"])
    wrapped = rekindle.Module(module, rekindle.Options(cache_dir=str(tmp_path)))
    assert_same(wrapped(rows()), module(rows()))
    assert rekindle.status(wrapped).source == "export", rekindle.status(wrapped).bypass
    assert vars(builtins) == names and list(vars(builtins)) == order and namespace["__builtins__"] is vars(builtins)
    namespace["k"] = 3.0
    assert_same(wrapped(rows()), module(rows()))


class WeakList(list):  # type: ignore[type-arg]
    k = 1.0


@pytest.mark.parametrize("make", [lambda: Box(k=1.0), WeakList])
def test_a_weakly_held_object_is_not_kept_alive(make: Any, tmp_path: pathlib.Path) -> None:
    held = make()
    module = Holder(weakref.ref(held), lambda reference: 3.0 if reference() is None else reference().k)
    wrapped = rekindle.Module(module, rekindle.Options(cache_dir=str(tmp_path)))
    assert_same(wrapped(rows()), module(rows()))
    assert rekindle.status(wrapped).source == "export"
    held.k = 2.0
    assert_same(wrapped(rows()), module(rows()))
    del held
    flush()
    gc.collect()
    assert module.held() is None
    assert_same(wrapped(rows()), module(rows()))


def test_an_array_that_is_held_weakly_is_compared_and_not_kept_alive(tmp_path: pathlib.Path) -> None:
    held = numpy.ones(4)
    module = Holder(weakref.ref(held), lambda reference: 3.0 if reference() is None else float(reference().sum()))
    wrapped = rekindle.Module(module, rekindle.Options(cache_dir=str(tmp_path)))
    for value in (1.0, 1.0, 2.0):
        held[:] = value
        assert_same(wrapped(rows()), module(rows()))
    assert rekindle.status(wrapped).eager_calls == 0
    del held
    flush()
    gc.collect()
    assert module.held() is None
    assert_same(wrapped(rows()), module(rows()))


class Registers(nn.Module):
    """Holds an object, and knows it by a name as long as somebody holds it."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.held: Any = Box(k=1.0)
        self.known = weakref.WeakValueDictionary(held=self.held)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * (self.known["held"].k if "held" in self.known else 5.0)


@pytest.mark.parametrize("grad", [True, False])
def test_an_attribute_that_is_replaced_is_gone_at_once(grad: bool, tmp_path: pathlib.Path) -> None:
    module = Registers()
    wrapped = rekindle.Module(module, rekindle.Options(cache_dir=str(tmp_path)))
    for _ in range(2):
        with torch.set_grad_enabled(grad):
            assert_same(wrapped(rows()), module(rows()))
    assert rekindle.status(wrapped).source == "export" and rekindle.status(wrapped).eager_calls == 0
    flush()
    gc.collect()
    module.held = None
    assert not module.known
    assert_same(wrapped(rows()), module(rows()))


@pytest.mark.parametrize("grad", [True, False])
def test_an_object_and_what_it_held_are_gone_when_the_module_replaces_it(grad: bool, tmp_path: pathlib.Path) -> None:
    """Although nothing of the model refers to it weakly: the user does, after the call."""
    module = Holder(Box(k=2.0, inner=Box(k=3.0)), lambda held: held.k * held.inner.k)
    wrapped = rekindle.Module(module, rekindle.Options(cache_dir=str(tmp_path)))
    for _ in range(2):
        with torch.set_grad_enabled(grad):
            assert_same(wrapped(rows()), module(rows()))
    assert rekindle.status(wrapped).source == "export" and rekindle.status(wrapped).eager_calls == 0
    flush()
    gc.collect()
    references = [weakref.ref(module.held), weakref.ref(module.held.inner)]
    module.held = Box(k=4.0, inner=Box(k=5.0))
    assert [reference() for reference in references] == [None, None]
    assert_same(wrapped(rows()), module(rows()))


def test_second_gradients_of_a_call_name_the_object_that_is_gone(tmp_path: pathlib.Path) -> None:
    module = Holder(Box(k=2.0), lambda held: held.k)
    wrapped = rekindle.Module(module, rekindle.Options(cache_dir=str(tmp_path)))
    x = rows().requires_grad_()
    wrapped(x)
    loss = wrapped(x).pow(2).sum()
    flush()
    gc.collect()
    module.held = Box(k=4.0)
    with pytest.raises(RuntimeError, match="an object that the module held then is gone; keep it alive"):
        torch.autograd.grad(loss, x, create_graph=True)


class Refers(Holder):
    """Asks whether what it held is still there."""

    def __init__(self, held: Any) -> None:
        super().__init__(held, lambda held: 1.0)
        self.reference = weakref.ref(held)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * (2.0 if self.reference() is None else 3.0)


@pytest.mark.parametrize("make", [lambda: Box(k=1.0), WeakList, nn.Identity, lambda: torch.ones(4)])
def test_what_a_module_lets_go_of_is_gone(make: Any, tmp_path: pathlib.Path) -> None:
    """Without the garbage collector: an export leaves nothing for it, and what watched a call is gone before the next."""
    gc.disable()
    try:
        for _ in range(2):
            models = [Refers(make()), Refers(make())]
            models[1].load_state_dict(models[0].state_dict())
            models[1] = rekindle.Module(models[1], rekindle.Options(cache_dir=str(tmp_path)))
            for step in range(4):
                for model in models if step == 2 else []:
                    model.held = None
                assert_same(models[1](rows()), models[0](rows()))
                flush()
    finally:
        gc.enable()


@pytest.mark.parametrize("count", [600, 20_000])
def test_a_long_chain_of_objects_is_followed_to_its_end(count: int, tmp_path: pathlib.Path) -> None:
    last = Box(k=1.0)
    first = last
    for _ in range(count):
        first = Box(next=first)
    module = Holder(first, lambda _: last.k)
    wrapped = rekindle.Module(module, rekindle.Options(cache_dir=str(tmp_path)))
    assert_same(wrapped(rows()), module(rows()))
    assert rekindle.status(wrapped).source == "export", rekindle.status(wrapped).bypass
    last.k = 3.0
    assert_same(wrapped(rows()), module(rows()))
    module.held = None  # what Python frees one by one it frees by recursion
    while first is not last:
        first = first.__dict__.pop("next")


def test_what_lies_deep_is_followed(tmp_path: pathlib.Path) -> None:
    last: list[Any] = [1.0]
    first: Any = last
    for depth in range(6000):
        first = ([first], {"a": first}, lambda held=first: held)[depth % 3]
    module = Holder(first, lambda _: last[0])
    wrapped = rekindle.Module(module, rekindle.Options(cache_dir=str(tmp_path)))
    assert_same(wrapped(rows()), module(rows()))
    assert rekindle.status(wrapped).source == "export", rekindle.status(wrapped).bypass
    last[0] = 3.0
    assert_same(wrapped(rows()), module(rows()))


def test_a_weak_proxy_in_the_place_of_a_submodule(tmp_path: pathlib.Path) -> None:
    module = Holder(None, lambda _: 2.0)
    module.proxy = weakref.proxy(module.linear)  # nn.Module takes it for a module
    wrapped = rekindle.Module(module, rekindle.Options(cache_dir=str(tmp_path)))
    assert_same(wrapped(rows()), module(rows()))
    assert rekindle.status(wrapped).bypass[0][0] == "opaque_value"


def _of_an_import(_: Any) -> float:
    import rekindle_tests_no_module

    return float(rekindle_tests_no_module.k)


def test_what_is_loaded_as_a_module_and_is_none(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded = Box(k=2.0)
    monkeypatch.setitem(sys.modules, "rekindle_tests_no_module", loaded)  # type: ignore[arg-type]
    module = Holder(None, _of_an_import)
    wrapped = rekindle.Module(module, rekindle.Options(cache_dir=str(tmp_path)))
    for value in (2.0, 3.0):
        loaded.k = value
        assert_same(wrapped(rows()), module(rows()))


@pytest.mark.parametrize("owner", [torch.Tensor, nn.Parameter, nn.Module, nn.Linear, nn.functional])
def test_a_name_that_a_part_of_torch_is_given(owner: Any, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    name = "given_by_a_test"

    def read(module: Any) -> Any:
        where = {torch.Tensor: module.linear.weight.detach(), nn.Parameter: module.linear.weight, nn.functional: nn.functional}
        return getattr(where.get(owner, module.linear), name, 1.0)

    module = Holder(None, read)
    module.held = module.linear  # the tables of a module are no place for itself
    module.read = lambda _: read(module)
    for value in (None, 2.0, 3.0):
        if value is not None:
            monkeypatch.setattr(owner, name, value, raising=False)
        wrapped = rekindle.Module(module, rekindle.Options(cache_dir=str(tmp_path)))
        for _ in range(2):
            assert_same(wrapped(rows()), module(rows()))


def test_a_method_may_be_of_no_module(tmp_path: pathlib.Path) -> None:
    def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
        return 2 * nn.Identity.forward(self, x)

    forward.__module__ = None  # type: ignore[assignment]
    module = type("Own", (nn.Identity,), {"forward": forward, "__module__": __name__})()
    wrapped = rekindle.Module(module, rekindle.Options(cache_dir=str(tmp_path)))
    assert_same(wrapped(rows()), module(rows()))
    assert rekindle.status(wrapped).source == "export", rekindle.status(wrapped).bypass
