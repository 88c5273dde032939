"""A forward runs in eager if it leaves a setting of torch behind, or returns tensors with attributes or leaves of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import torch
from rekindle.process.torch_internals import is_multithreading_enabled
from torch import nn


class Net(nn.Module):
    def __init__(self, compute: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.linear, self.compute = nn.Linear(4, 4), compute

    def forward(self, x: torch.Tensor) -> Any:
        return self.compute(self.linear(x))


def wrapped(cache_dir: Any, compute: Callable[[torch.Tensor], Any]) -> nn.Module:
    return rekindle.Module(Net(compute), options=rekindle.Options(start="wait", cache_dir=cache_dir))


def without_gradients(y: torch.Tensor) -> torch.Tensor:
    torch.set_grad_enabled(False)
    return y


def on_one_thread(y: torch.Tensor) -> torch.Tensor:
    torch.autograd.set_multithreading_enabled(False)
    return y


def printed_short(y: torch.Tensor) -> torch.Tensor:
    torch.set_printoptions(precision=2)
    return y


def swapped(y: torch.Tensor) -> torch.Tensor:
    torch.__future__.set_swap_module_params_on_conversion(True)
    return y


SETTINGS: dict[str, tuple[Callable[[torch.Tensor], Any], Callable[[], Any], Callable[[], Any]]] = {
    "grad": (without_gradients, torch.is_grad_enabled, lambda: torch.set_grad_enabled(True)),
    "threads": (
        on_one_thread,
        is_multithreading_enabled,
        lambda: torch.autograd.set_multithreading_enabled(True),
    ),
    "printing": (
        printed_short,
        lambda: str(torch.tensor(1.23456)),
        lambda: torch.set_printoptions(profile="default"),
    ),
    "swapping": (
        swapped,
        torch.__future__.get_swap_module_params_on_conversion,
        lambda: torch.__future__.set_swap_module_params_on_conversion(False),
    ),
}


@pytest.mark.parametrize("name", sorted(SETTINGS))
def test_a_setting_that_a_forward_leaves_is_left_at_each_call(tmp_path: Any, name: str) -> None:
    compute, ask, undo = SETTINGS[name]
    before = ask()
    for _ in range(2):  # the second with what the first has in the cache
        model = wrapped(tmp_path, compute)
        for _ in range(2):
            try:
                model(torch.ones(2, 4))
                assert ask() != before
            finally:
                undo()
        assert rekindle.status(model).bypass[0][0] == "side_effect"


def tagged(y: torch.Tensor) -> torch.Tensor:
    y.tag = 5
    return y


@pytest.mark.parametrize(
    ("compute", "shown"),
    [
        (tagged, lambda y: y.tag),
        (lambda y: y.detach().requires_grad_(), lambda y: y.requires_grad),
        (lambda y: nn.Parameter(y.detach()), type),
    ],
    ids=["attribute", "leaf", "parameter"],
)
def test_a_result_that_is_more_than_its_numbers_is_eagers(
    tmp_path: Any, compute: Callable[[torch.Tensor], torch.Tensor], shown: Callable[[torch.Tensor], Any]
) -> None:
    model, x = wrapped(tmp_path, compute), torch.ones(2, 4)
    with torch.no_grad():
        assert shown(model(x)) == shown(Net(compute)(x))
    assert rekindle.status(model).bypass[0][0] == "unsupported_output"
