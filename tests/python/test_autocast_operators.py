"""Operators that call others, which autocast computes in bfloat16: they run from graphs, and give what eager gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import torch
from module_support import rows
from torch import nn

OPERATORS: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "einsum": lambda x, w: torch.einsum("bi,io->bo", x, w),
    "einsum of three": lambda x, w: torch.einsum("bi,io,ko->bk", x, w, w),
    "einsum with a sum of one operand": lambda x, w: torch.einsum("bi,jo->bo", x, w),
    "einsum without a product": lambda x, w: torch.einsum("bi->ib", x * w[:, 0]),
    "einsum of two dtypes": lambda x, w: torch.einsum("bi,io->bo", x.bfloat16(), w),
    "einsum of mixed results": lambda x, w: torch.einsum("bi,io->bo", x @ w, w.t()),
    "tensordot": lambda x, w: torch.tensordot(x, w, dims=([1], [0])),
    "multi_dot": lambda x, w: torch.linalg.multi_dot([x, w, w.t()]),
    "inner": lambda x, w: torch.inner(x, w.t()),
}
LAYERS: dict[str, Callable[[], nn.Module]] = {
    "lstm": lambda: nn.LSTM(4, 6),
    "lstm of two layers, both ways": lambda: nn.LSTM(4, 3, 2, batch_first=True, bidirectional=True),
    "projected lstm": lambda: nn.LSTM(4, 6, proj_size=2),
    "rnn": lambda: nn.RNN(4, 6),
    "gru": lambda: nn.GRU(4, 6),
    "lstm cell": lambda: nn.LSTMCell(4, 6),
    "gru cell": lambda: nn.GRUCell(4, 6),
    "rnn cell": lambda: nn.RNNCell(4, 6),
}


class Operator(nn.Module):
    """Applies an operator to its input and a weight."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, 20).reshape(4, 5))
        self.operator = OPERATORS[name]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.operator(x, self.weight)


def tensors(result: Any) -> list[torch.Tensor]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]


def compare(make: Callable[[], nn.Module], given: list[torch.Tensor], autocast: Callable[[], Any]) -> None:
    """Compares training steps and calls without gradients, cold and warm."""
    for source in ("export", "local"):
        plain = make()
        wrapped = rekindle.Module(make(), rekindle.Options(fallback="error"))
        for x in given:
            results, gradients = [], []
            for model in (wrapped, plain):
                model.zero_grad()
                x = x.detach().requires_grad_()
                with autocast():
                    result = tensors(model(x))
                sum(tensor.float().pow(2).sum() for tensor in result if tensor.requires_grad).backward()
                with autocast(), torch.no_grad():
                    result += tensors(model(x))
                results.append(result)
                gradients.append([x.grad, *(parameter.grad for parameter in model.parameters())])
            torch.testing.assert_close(*results)
            torch.testing.assert_close(*gradients, rtol=0.02, atol=0.02)
        assert rekindle.status(wrapped).source in (source, "memory", "local")
        assert not torch.is_autocast_enabled("cpu")
        rekindle.lookup.store.flush()


def bfloat16() -> Any:
    return torch.autocast("cpu", torch.bfloat16)


@pytest.mark.parametrize("name", OPERATORS)
def test_an_operator_is_eagers(name: str) -> None:
    compare(lambda: Operator(name), [rows(count=3), rows(1, 7), rows(2, 3)], bfloat16)


@pytest.mark.parametrize("name", LAYERS)
def test_a_recurrent_layer_is_eagers(name: str) -> None:
    def made() -> nn.Module:
        torch.manual_seed(3)
        return LAYERS[name]()

    given = [rows(seed, 6) if name.endswith("cell") else rows(seed, 6).reshape(2, 3, 4) for seed in range(2)]
    compare(made, given, bfloat16)


class Within(nn.Module):
    """Has a region of autocast of its own, and one without in it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.linspace(-1, 1, 20).reshape(4, 5))

    def forward(self, x: torch.Tensor) -> Any:
        before = torch.einsum("bi,io->bo", x, self.weight)
        with torch.autocast("cpu", torch.bfloat16):
            within = torch.einsum("bi,io->bo", x, self.weight)
            with torch.autocast("cpu", enabled=False):
                exact = torch.einsum("bi,io->bo", x, self.weight)
        return before, within, exact


def test_a_region_in_the_forward_is_followed() -> None:
    class Nothing:
        def __enter__(self) -> None: ...
        def __exit__(self, *_: object) -> None: ...

    compare(Within, [rows(count=3), rows(1, 5)], Nothing)
