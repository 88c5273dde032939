"""Modules and calls whose shape matters more than their ops: sharing, outputs, stopped gradients, convolutions."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from op_cases import Case, given, model, op, plain, real, whole
from torch import nn


class Tied(nn.Module):
    """An embedding whose table is the head's weight too."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(5, 4)
        self.head = nn.Linear(4, 5, bias=False)
        self.head.weight = self.table.weight

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.table(ids))


class Unused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = nn.Linear(3, 2), nn.Linear(3, 2)
        self.register_buffer("scale", torch.full((2,), 0.5))

    def forward(self, x: torch.Tensor, never: torch.Tensor) -> torch.Tensor:
        return self.used(x) * self.scale


class Frozen(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(4, 2)
        self.first.requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(self.first(x).relu())


class PartlyStopped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.teacher, self.student = nn.Linear(3, 2), nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            goal = self.teacher(x).softmax(-1)
        return F.mse_loss(self.student(x), goal)


class Result(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, x: torch.Tensor, *, twice: bool = False) -> dict[str, Any]:
        hidden = self.linear(x)
        return {"hidden": hidden, "loss": hidden.square().mean(), "rest": [None, 3, (hidden, "text")]}


def _no_grad(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        scale = x.norm() * 2
    return x / scale


def _enable_inside(x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        y = x * 2
        with torch.enable_grad():
            z = y * x
    return z + x


class OneUsed(nn.Module):
    """Two outputs of which the caller's backward reaches one."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(3, 2), nn.Linear(3, 2)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.a(x), self.b(x).detach()


GRADIENTS = [
    op("detach", lambda x: x.detach() * x, real(3)),
    op("detach of a result", lambda x: (x * 2).detach() * x, real(3)),
    op("detach as output", lambda x: (x * 2, (x * 3).detach()), real(3)),
    op("detach_", lambda x: (x * 2).detach_() * x, real(3)),
    op("data", lambda x: x.data * x, real(3)),
    op("data of a result", lambda x: (x * 2).data * x, real(3)),
    op("no_grad region", _no_grad, real(3)),
    op("no_grad, then enable_grad", _enable_inside, real(3)),
    op("straight through", lambda x: x + (x.round() - x).detach(), real(5)),
    op("straight through, argmax", lambda x: (F.one_hot(x.argmax(-1), 4).to(x.dtype) - x).detach() + x, real(2, 4)),
    op("gradient in one input only", lambda x, y: x * y, real(3), real(3, grad=False)),
    op("no gradient at all", lambda x: x * 2, real(3, grad=False)),
    op("unused input", lambda x, y: x * 2, real(3), real(3)),
    op("only the shape is used", lambda x, y: x + torch.zeros_like(y), real(3), real(3)),
    op("zero gradient", lambda x, y: x * 0 + y, real(3), real(3)),
    op("used many times", lambda x: x * x + x.sin() + x.sum() * x, real(3)),
    model("PartlyStopped", PartlyStopped, real(4, 3)),
    model("Frozen", Frozen, real(4, 3)),
    model("OneUsed", OneUsed, real(4, 3)),
    model("Unused", Unused, real(4, 3), real(2)),
    model("Tied", Tied, whole(2, 3)),
    model("the same layer twice", lambda: Twice(), real(2, 3)),
]


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.again = self.layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.again(self.layer(x).tanh())


OUTPUTS = [
    op("the same output twice", lambda x: (lambda y: (y, y))(x * 2), real(3)),
    op("equal outputs", lambda x: (x * 2, x * 2), real(3)),
    op("an input as output", lambda x: (x, x * 2), real(3)),
    op("a number as output", lambda x: (x * 2, 3, None, "text"), real(3)),
    op("dict", lambda x: {"a": x * 2, "b": [x.sum(), x.detach() + 1]}, real(3)),
    op("one output feeds another", lambda x: (lambda y: (y, y.exp(), y.sum()))(x * 2), real(3)),
    op("a constant as output", lambda x: (x * 2, torch.ones(2)), real(3)),
    op("a view of an input", lambda x: x.view(-1), real(2, 3), expect="unsupported_output"),
    op("a view of another output", lambda x: (lambda y: (y, y.t()))(x * 2), real(2, 3)),
    op("a Python number as argument", lambda x, a: x * a, real(3), plain(0.3)),
    op("a string as argument", lambda x, a: x.relu() if a == "relu" else x, real(3), plain("relu")),
    op(
        "a list as argument",
        lambda xs: xs[0] * xs[1]["y"],
        lambda d, g: [real(3, grad=False)(d, g), {"y": real(3, grad=False)(d, g)}],
    ),
    op("None as argument", lambda x, mask: x * 2 if mask is None else x * mask, real(3), plain(None)),
    model("Result", Result, real(4, 3)),
    op("a branch on a value", lambda x: x * 2 if x.sum() > 0 else x * 3, real(3), expect="value_specialized"),
    op("item", lambda x: x * x.sum().item(), real(3), expect="value_specialized"),
    op("writes its input", lambda x: x.add_(1) * 2, real(3, grad=False)),
    op("complex", lambda x: torch.view_as_real(torch.view_as_complex(x) * 2), real(3, 2)),
    op("fft", lambda x: torch.fft.rfft(x).abs(), real(4)),
    op("inverse", lambda x: torch.linalg.inv(x), given([[2.0, 1.0], [0.5, 3.0]], grad=True)),
]

LAYERS = [
    model("Linear", lambda: nn.Linear(3, 4), real(2, 3)),
    model("Linear without bias", lambda: nn.Linear(3, 4, bias=False), real(2, 5, 3)),
    model("Embedding", lambda: nn.Embedding(5, 4), whole(2, 3)),
    model("Embedding padding_idx", lambda: nn.Embedding(5, 4, padding_idx=0), whole(2, 3)),
    model("Embedding max_norm", lambda: nn.Embedding(5, 4, max_norm=1.0), whole(2, 3), expect="state_mutated"),
    model("Embedding sparse", lambda: nn.Embedding(5, 4, sparse=True), whole(2, 3), expect="unsupported_op"),
    model("PReLU", lambda: nn.PReLU(), real(2, 3)),
    model("PReLU of channels", lambda: nn.PReLU(3), real(2, 3, 4)),
    model("Bilinear", lambda: nn.Bilinear(3, 4, 2), real(5, 3), real(5, 4)),
    model(
        "MultiheadAttention", lambda: nn.MultiheadAttention(8, 2, batch_first=True), real(2, 4, 8), real(2, 6, 8), real(2, 6, 8)
    ),
    model("TransformerEncoderLayer", lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), real(2, 4, 8)),
    model("TransformerEncoderLayer with dropout", lambda: nn.TransformerEncoderLayer(8, 2, 16, 0.3), real(4, 2, 8), random=True),
    model("LSTM", lambda: nn.LSTM(3, 4), real(5, 2, 3)),
    model("GRU", lambda: nn.GRU(3, 4), real(5, 2, 3)),
    model("RNNCell", lambda: nn.RNNCell(3, 4), real(2, 3), real(2, 4)),
]

CONVOLUTIONS: list[Case] = [
    model("Conv1d", lambda: nn.Conv1d(3, 4, 3), real(2, 3, 8)),
    model("Conv2d", lambda: nn.Conv2d(3, 4, 3, padding=1), real(2, 3, 6, 6)),
    model("ConvTranspose2d", lambda: nn.ConvTranspose2d(3, 4, 3), real(2, 3, 4, 4)),
    op("max_pool2d", lambda x: F.max_pool2d(x, 2), real(2, 3, 6, 6)),
    op("avg_pool2d", lambda x: F.avg_pool2d(x, 2), real(2, 3, 6, 6)),
    op("adaptive_avg_pool2d", lambda x: F.adaptive_avg_pool2d(x, 1), real(2, 3, 6, 6)),
    op("interpolate", lambda x: F.interpolate(x, scale_factor=2), real(2, 3, 4, 4)),
]

CASES = [*GRADIENTS, *OUTPUTS, *LAYERS, *CONVOLUTIONS]
