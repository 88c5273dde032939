"""Gradients of PyTorch's operators that have nodes of their own, against eager: every bit, every layout of memory."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import torch
from torch import nn
from torch.nn import functional as F


class Affine(nn.Module):
    """A normalization without parameters or statistics of its own, beside a relu of what it gives."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(6, affine=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(x)) * x


class InPlace(nn.Module):
    """A relu in place after a sum, as in a ResNet."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(3, 3, 3, padding=1), nn.Conv2d(3, 3, 1)
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        out = self.first(x)
        out += x
        return self.second(self.relu(out))


def shared() -> nn.Module:
    convolution = nn.Conv2d(4, 4, 3, padding=1, groups=2)
    return nn.Sequential(convolution, nn.BatchNorm2d(4), nn.ReLU(), convolution)


def frozen() -> nn.Module:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 3))
    model[0].weight.requires_grad_(False)
    model[1].bias.requires_grad_(False)
    return model


def frozen_in_a_row() -> nn.Module:
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.Conv2d(4, 5, 1), nn.ConvTranspose2d(5, 4, 3), nn.Conv2d(4, 2, 3))
    for layer in model[1:3]:
        layer.requires_grad_(False)
    return model


CASES: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "conv1d": (lambda: nn.Conv1d(4, 6, 3, stride=2, padding=1), (2, 4, 11)),
    "conv2d": (lambda: nn.Conv2d(3, 8, 3, padding="same", dilation=2), (2, 3, 12, 10)),
    "grouped": (lambda: nn.Conv2d(4, 8, 3, groups=4, bias=False), (2, 4, 9, 9)),
    "conv3d": (lambda: nn.Conv3d(2, 3, 2), (2, 2, 4, 5, 6)),
    "transposed": (lambda: nn.ConvTranspose2d(4, 3, 3, stride=2, output_padding=1, groups=1), (2, 4, 5, 5)),
    "transposed in groups": (lambda: nn.ConvTranspose2d(4, 6, 3, groups=2), (2, 4, 5, 5)),
    "unbatched": (lambda: nn.Conv2d(3, 4, 3), (3, 8, 8)),
    "batch norm": (lambda: nn.Sequential(nn.Conv2d(3, 5, 3, bias=False), nn.BatchNorm2d(5), nn.ReLU()), (4, 3, 7, 7)),
    "batch norm of rows": (lambda: nn.Sequential(nn.Linear(5, 6), nn.BatchNorm1d(6), nn.Tanh()), (7, 5)),
    "batch norm 3d": (lambda: nn.BatchNorm3d(2), (3, 2, 3, 4, 5)),
    "average of all": (lambda: nn.BatchNorm2d(3, momentum=None), (4, 3, 5, 5)),
    "without parameters": (Affine, (8, 6)),
    "in place": (InPlace, (2, 3, 8, 8)),
    "shared": (shared, (2, 4, 7, 7)),
    "frozen": (frozen, (3, 3, 9, 9)),
    "frozen in a row": (frozen_in_a_row, (2, 3, 9, 9)),
}


def gradients(model: Any, parameters: list[nn.Parameter], x: torch.Tensor) -> list[torch.Tensor | None]:
    for parameter in parameters:
        parameter.grad = None
    x = x.detach().requires_grad_()
    out = model(x)
    (out.square().mean() + out.sum()).backward()
    return [out.detach(), x.grad, *(parameter.grad for parameter in parameters)]


def check_equal(a: torch.Tensor, b: torch.Tensor) -> None:
    assert torch.equal(a, b)


def check_same(module: nn.Module, x: torch.Tensor, rounded: bool = False) -> None:
    """Compares three backwards, and the state after them; `rounded`: sums may be in another order."""
    wrapped = rekindle.Module(copy.deepcopy(module), rekindle.Options(fallback="error", log="error"))
    compare = torch.testing.assert_close if rounded else check_equal
    for step in range(3):
        theirs = gradients(module, list(module.parameters()), x * (1 + step))
        ours = gradients(wrapped, list(wrapped.parameters()), x * (1 + step))
        for a, b in zip(theirs, ours, strict=True):
            assert (a is None) == (b is None)
            if a is not None and b is not None:
                compare(a, b)
                assert a.stride() == b.stride()
    for a, b in zip(module.state_dict().values(), wrapped.state_dict().values(), strict=True):
        compare(a, b)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_eagers_bit_for_bit(name: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    make, shape = CASES[name]
    check_same(make().to(dtype), torch.randn(shape, dtype=dtype), rounded=name == "average of all")


@pytest.mark.parametrize("name", ["conv2d", "batch norm", "in place", "shared"])
def test_gradients_in_channels_last(name: str) -> None:
    torch.manual_seed(0)
    make, shape = CASES[name]
    check_same(
        make().to(memory_format=torch.channels_last), torch.randn(shape).to(memory_format=torch.channels_last), rounded=True
    )


@pytest.mark.parametrize("name", ["conv2d", "transposed"])
def test_gradients_of_complex_convolutions(name: str) -> None:
    torch.manual_seed(0)
    make, shape = CASES[name]
    module = make().to(torch.complex64)
    wrapped = rekindle.Module(copy.deepcopy(module), rekindle.Options(log="error"))
    x = torch.randn(shape, dtype=torch.complex64)
    for model in (module, wrapped):
        model(x).abs().sum().backward()
    for theirs, ours in zip(module.parameters(), wrapped.parameters(), strict=True):
        torch.testing.assert_close(ours.grad, theirs.grad)


def test_no_tape_is_left_of_a_convolution_net() -> None:
    torch.manual_seed(0)
    model = rekindle.Module(InPlace(), rekindle.Options(fallback="error", log="error"))
    x = torch.randn(2, 3, 8, 8)
    model(x).sum().backward()
    account = rekindle.memory(model, x)
    assert account.uncounted == ()
    assert account.growth is not None
    assert account.activations == account.arena > 0  # nothing lies beside it: operators write into it


def test_a_batch_norm_in_evaluation_has_gradients() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)).eval()
    check_same(module, torch.randn(2, 3, 6, 6))


def test_an_empty_batch_of_a_convolution() -> None:
    module = nn.Conv2d(3, 4, 3)
    wrapped = rekindle.Module(copy.deepcopy(module), rekindle.Options(log="error"))
    x = torch.randn(0, 3, 6, 6)
    for model in (module, wrapped):
        F.relu(model(x)).sum().backward()
    for theirs, ours in zip(module.parameters(), wrapped.parameters(), strict=True):
        assert torch.equal(ours.grad, theirs.grad)
