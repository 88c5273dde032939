"""Recurrent layers, which keep a list of their parameters, and weak references to them, beside the parameters."""

from __future__ import annotations

import copy
import pathlib
from collections.abc import Iterator

import pytest
import rekindle
import torch
from torch import nn


@pytest.fixture
def swapping() -> Iterator[None]:
    torch.__future__.set_swap_module_params_on_conversion(True)
    yield
    torch.__future__.set_swap_module_params_on_conversion(False)


class Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(6, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.lstm(x)[0]


def test_a_recurrent_layer_that_was_called_with_other_parameters_has_a_graph() -> None:
    torch.manual_seed(0)
    eager = Recurrent()
    wrapped = rekindle.Module(copy.deepcopy(eager), rekindle.Options(fallback="error"))
    for is_given_others in (True, True, False, False, True, False):
        x = torch.randn(3, 6)
        found = []
        for model in (wrapped, eager):
            used = dict(model.named_parameters())
            if is_given_others:
                used = {name: (value * 2).detach().requires_grad_() for name, value in used.items()}
            result = torch.func.functional_call(model, used, (x,)) if is_given_others else model(x)
            found.append([result, *torch.autograd.grad(result.square().sum(), [*used.values()])])
        torch.testing.assert_close(*found)


@pytest.mark.usefixtures("swapping")
@pytest.mark.parametrize("layer", [nn.RNN, nn.LSTM, nn.GRU])
def test_a_layer_that_has_run_from_a_graph_can_be_converted_by_exchange(layer: type[nn.Module], tmp_path: pathlib.Path) -> None:
    wrapped = rekindle.Module(layer(4, 4), rekindle.Options(cache_dir=tmp_path, fallback="error"))
    with torch.no_grad():
        wrapped(torch.randn(2, 4))
    wrapped.double()
    assert {parameter.dtype for parameter in wrapped.parameters()} == {torch.float64}
    result = wrapped(torch.randn(2, 4, dtype=torch.float64))[0]
    assert result.dtype is torch.float64 and result.requires_grad
