"""Forwards of pointwise operators that follow from each other, for tests of fused kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from device_twins import Made
from torch import Tensor
from torch.nn import functional as F


def gelu_by_formula(self: Made, x: Tensor) -> Tensor:
    """Gelu's approximation by tanh, as transformers write it."""
    y = self.a(x)
    return 0.5 * y * (1 + torch.tanh(0.7978845608 * (y + 0.044715 * y.pow(3))))


CHAINS: dict[str, Callable[[Any, Tensor], Any]] = {
    "gelu": gelu_by_formula,
    "swish": lambda self, x: F.silu(self.a(x)) * self.a(x),
    "broadcast": lambda self, x: (self.a(x) * self.scale + self.a.bias).sigmoid() * self.a(x)[:, :1],
    "rows": lambda self, x: (self.a(x) - self.a(x).mean(-1, keepdim=True)).abs().add(1).log().neg(),
    "two results": lambda self, x: ((y := (self.a(x) * 2).tanh() + 1), (y * y * 0.25).exp()),
    "what others read": lambda self, x: self.a(y := self.a(x).cos() * 0.5 + 1) * y.sin().sqrt(),
    "comparisons": lambda self, x: torch.where((y := self.a(x) * 2) > 0.1, y * 3, -y).clamp(-1, 1.5),
    "masks": lambda self, x: self.a(x).mul(2).masked_fill((x > 0) & (x < 1) | (x != x), 0.25) + 1,
    "largest": lambda self, x: torch.maximum(self.a(x) * 2, -x).minimum(x.exp()) / 3 + 1 / (x * x + 1),
    "transposed": lambda self, x: (self.a(x).t() * 2 + 1).tanh() * self.a(x).t(),
    "reshaped": lambda self, x: (self.a(x) * 2).reshape(-1).add(1).tanh().view(x.shape[0], 2, -1).mul(3),
    "strided": lambda self, x: (self.a(x)[:, ::2] * 2 + self.a(x)[:, 1::2]).tanh() * x[:, 1::2],
    "expanded": lambda self, x: (self.a(x)[:, None] * 2 + self.a(x)[None]).tanh() + 1,
    "casts": lambda self, x: ((self.a(x) * 2).half().float() + 1).double().mul(0.3).bfloat16().float() * x,
    "integers": lambda self, x: ((x * 4).long() * 3 - 1).float() * self.a(x) + (x > 0).float() * 2,
    "one number": lambda self, x: (self.a(x).sum() * 2 + 1).tanh() * 3,
    "gradients": lambda self, x: F.gelu(self.a(x) * 2).relu().sigmoid() + F.gelu(x * 2, approximate="tanh").tanh(),
    "written": lambda self, x: self.a(x).mul(2).add_(1).mul_(3).tanh() + x,
}
