"""A value that no key can hold is refused with a bypass that names it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fingerprint_support import World
from rekindle.reasons import Bypass, Reason
from torch import nn


def _hook(*_: Any) -> None:
    return None


BYPASSES: dict[str, tuple[Callable[[World], Any], Reason, str]] = {
    "backward hook": (lambda w: w.model.first.register_full_backward_hook(_hook), Reason.HOOKS, "model.first"),
    "backward pre-hook": (
        lambda w: w.model.first.register_full_backward_pre_hook(_hook), Reason.HOOKS, "backward pre"),
    "generator": (lambda w: setattr(w.model, "rng", torch.Generator()), Reason.OPAQUE_VALUE, "model.rng"),
    "open file": (lambda w: setattr(w.model, "log", sys.__stdin__), Reason.OPAQUE_VALUE, "model.log"),
    "opaque in a config": (
        lambda w: w.model.config.extra.update(items=[1, iter([])]), Reason.OPAQUE_VALUE, "extra['items'][1]"),
    "hidden parameter": (
        lambda w: setattr(w.model, "layers", [nn.Linear(2, 2)]), Reason.OPAQUE_VALUE, "model.layers[0]"),
    "large plain tensor on another device": (
        lambda w: setattr(w.model, "big", torch.zeros(1 << 19, device="meta")), Reason.OPAQUE_VALUE, "model.big"),
    "tensor subclass parameter": (
        lambda w: setattr(w.model.head, "weight", nn.Parameter(torch.zeros(4, 4).as_subclass(Odd))),
        Reason.OPAQUE_VALUE, "model.head.weight"),
    "tensor subclass input": (
        lambda w: setattr(w, "args", (torch.zeros(2).as_subclass(Odd),)),
        Reason.UNSUPPORTED_INPUT, "input.args[0]"),
    "unknown input": (lambda w: setattr(w, "kwargs", {"x": object()}), Reason.UNSUPPORTED_INPUT, "input.x"),
    "sparse input": (
        lambda w: setattr(w, "args", (torch.eye(4).to_sparse(),)), Reason.UNSUPPORTED_INPUT, "input.args[0]"),
    "data parallel": (lambda w: setattr(w, "model", nn.DataParallel(w.model)), Reason.DATA_PARALLEL, "model"),
}  # fmt: skip


class Odd(torch.Tensor):
    """A tensor subclass without meaning."""


@pytest.mark.parametrize("name", BYPASSES)
def test_what_cannot_be_keyed_is_a_bypass_that_names_it(name: str) -> None:
    change, reason, text = BYPASSES[name]
    world = World()
    change(world)
    with pytest.raises(Bypass) as caught:
        world.describe()
    assert caught.value.reason is reason
    assert text in caught.value.message


def test_a_global_hook_is_a_bypass() -> None:
    handle = nn.modules.module.register_module_forward_hook(_hook)
    try:
        with pytest.raises(Bypass, match="global") as caught:
            World().describe()
    finally:
        handle.remove()
    assert caught.value.reason is Reason.HOOKS


class _Mode(torch.overrides.TorchFunctionMode):
    pass


class _Dispatch(torch.utils._python_dispatch.TorchDispatchMode):
    pass


@pytest.mark.parametrize("context", [_Mode, _Dispatch, lambda: torch.autograd.graph.saved_tensors_hooks(_hook, _hook)])
def test_an_active_mode_is_a_bypass(context: Callable[[], Any]) -> None:
    world = World()
    with context(), pytest.raises(Bypass) as caught:
        world.describe()
    assert caught.value.reason is Reason.MODE_STACK


def test_vmap_is_a_bypass() -> None:
    world = World()
    reasons = []

    def inner(x: torch.Tensor) -> torch.Tensor:
        with pytest.raises(Bypass) as caught:
            world.describe()
        reasons.append(caught.value.reason)
        return x

    torch.vmap(inner)(torch.zeros(2))
    assert reasons == [Reason.MODE_STACK]
