"""Forwards that ask for gradients, or that tell a tensor to require one, give what eager gives."""

from __future__ import annotations

from pathlib import Path

import rekindle
import torch
import torch.nn.functional as F
from module_support import Twins
from torch import nn


class Adapted(nn.Module):
    """MAML: a step of gradient descent inside of the forward."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, x: torch.Tensor, y: torch.Tensor, query: torch.Tensor) -> torch.Tensor:
        parameters = dict(self.net.named_parameters())
        loss = (torch.func.functional_call(self.net, parameters, (x,)) - y).square().mean()
        gradients = torch.autograd.grad(loss, list(parameters.values()), create_graph=True)
        adapted = {name: value - 0.1 * slope for (name, value), slope in zip(parameters.items(), gradients, strict=True)}
        return torch.func.functional_call(self.net, adapted, (query,))


def test_gradients_asked_for_in_the_forward_are_eagers(tmp_path: Path) -> None:
    twins = Twins(Adapted(), cache_dir=tmp_path)
    for _ in range(3):
        twins.call(torch.randn(5, 4), torch.randn(5, 1), torch.randn(6, 4))
    assert "in forward asks for gradients in the forward (torch.autograd.grad)" in twins.status.bypass[0][1]


class Accumulating(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layer(x)
        y.square().sum().backward(retain_graph=True)
        return y


def test_a_backward_in_the_forward_accumulates_once(tmp_path: Path) -> None:
    twins = Twins(Accumulating(), cache_dir=tmp_path)
    for _ in range(3):
        twins.call(torch.randn(5, 4))
    assert twins.reasons() == ["side_effect"]


class Transformed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.func.vmap(self.layer)(x) + torch.func.grad(lambda w: F.linear(x, w).square().sum())(self.layer.weight).sum()


def test_transforms_of_torch_func_in_the_forward_are_eagers(tmp_path: Path) -> None:
    twins = Twins(Transformed(), cache_dir=tmp_path)
    twins.call(torch.randn(5, 4))
    assert "in a transform of torch.func" in twins.status.bypass[0][1]


class Marked(nn.Module):
    """As a feature encoder of speech does, for the sake of checkpoints."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x[:, None]
        rows.requires_grad = True
        return self.linear(rows.requires_grad_()).tanh()


class Unfrozen(Marked):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.linear.weight.requires_grad = True
        return self.linear(x)


def test_what_the_forward_makes_may_be_told_to_require_a_gradient() -> None:
    twins = Twins(Marked(), fallback="error")
    for rows in (2, 3):
        twins.call(torch.randn(rows, 4))
    assert twins.status.exports == 1
    model = Unfrozen()
    model.linear.weight.requires_grad = False
    wrapped = rekindle.Module(model)
    wrapped(torch.randn(2, 4))
    assert model.linear.weight.requires_grad
    assert [code for code, _ in rekindle.status(wrapped).bypass] == ["state_mutated"]
