"""Comparisons of graphs as they are: a wrong gradient is found, rounding is no error, and everything stays as it was."""

from __future__ import annotations

import functools
from typing import Any

import rekindle
import torch
from module_support import rows
from torch import nn
from torch.nn import functional as F


class _Rounds(torch.autograd.Function):
    """Straight through: its backward is not the derivative of its forward."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(4 * x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient


class StraightThrough(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.large, self.small = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return (1e4 * self.large(x)).square().sum() + (1e-4 * _Rounds.apply(self.small(x))).sum()


def test_an_inlined_straight_through_function_beside_a_large_term_is_found() -> None:
    torch.manual_seed(0)
    model = rekindle.Module(StraightThrough(), rekindle.Options(log="off", inline_functions=True))
    model(rows()).backward()
    assert [code for code, _ in rekindle.status(model).bypass] == ["verification_failed"]
    called = rekindle.Module(StraightThrough(), rekindle.Options(log="off"))
    called(rows()).backward()
    assert rekindle.status(called).source == "export"


class Mixed(nn.Module):
    """Scales, dtypes and discrete choices side by side; a right graph of it differs from eager by rounding alone."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.line, self.score = nn.LayerNorm(8), nn.Linear(8, 8), nn.Linear(8, 1)
        self.table = nn.Parameter(torch.randn(5, 8) * torch.tensor([1e-8, 1e-4, 1.0, 1e4, 1e8])[:, None])

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        h = self.line(self.norm(x)).clamp(-0.5, 0.5)
        weights = self.score(h).softmax(0)  # which no bias changes
        coarse = (h.bfloat16() @ h.bfloat16().t()).float()
        spectrum = torch.fft.rfft(h.double())
        return (weights * h).sum(0), self.table * h[:5], coarse, spectrum.abs(), h.argmax(-1), h > 0, spectrum


def test_what_rounding_explains_is_no_error() -> None:
    torch.manual_seed(0)
    model = rekindle.Module(Mixed(), rekindle.Options(log="off"))
    x = torch.randn(6, 8)
    model(x)
    assert rekindle.status(model).source == "export", rekindle.status(model).bypass
    assert rekindle.verify(model, x)


class Drawing(nn.Module):
    """Has a gradient that is None, a buffer that is replaced, draws, and counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.line, self.unused = nn.Linear(4, 3), nn.Parameter(torch.ones(2))
        self.register_buffer("mean", torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = F.dropout(self.line(x), 0.5, self.training)
        self.mean.lerp_(result.detach().mean(0), 0.1)
        return result


def test_rekindle_verify_leaves_everything_as_it_was() -> None:
    torch.manual_seed(0)
    inner = Drawing()
    model = rekindle.Module(inner, rekindle.Options(log="off"))
    inner.line.weight.grad = torch.full((3, 4), 2.0)
    before, grads = {name: x.clone() for name, x in model.state_dict().items()}, inner.line.weight.grad
    buffer, state, hooks = (
        inner.mean,
        torch.get_rng_state(),
        functools.reduce(lambda n, m: n + len(m._forward_hooks), inner.modules(), 0),
    )
    x = rows().requires_grad_()
    for _ in range(2):
        found = rekindle.verify(model, x)
        assert found, str(found)
        assert {"unused", "input 0", "mean"} <= {row.what for row in found.rows}
        assert inner.mean is buffer and inner.line.weight.grad is grads and inner.line.bias.grad is None
        assert x.grad is None and bool((grads == 2).all()) and torch.equal(torch.get_rng_state(), state)
        assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
        assert sum(len(module._forward_hooks) for module in inner.modules()) == hooks
    assert found.source == "export"
