"""Forwards on an accelerator: those that one graph serves, and those that are eager's because they are on two devices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

Forward = Callable[[Any, torch.Tensor], Any]


def _data_sized(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.a(x)[x[:, 0] > 0]


def _written(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.a(x)
    y[:, 0] = 0
    return y + torch.ones(4, device=x.device)


def _heads(x: torch.Tensor) -> torch.Tensor:
    """[length, 4] as [1, 2 heads, length, 2]."""
    return x.view(1, -1, 2, 2).transpose(1, 2)


def _shared_heads(self: Any, x: torch.Tensor) -> torch.Tensor:
    return F.scaled_dot_product_attention(_heads(self.a(x)), _heads(x)[:, :1], _heads(x)[:, :1], enable_gqa=True)


def _counted(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.calls.add_(1)
    return self.a(x) * self.calls


SERVED: dict[str, Forward] = {
    "linear": lambda self, x: self.a(x),
    "noise": lambda self, x: self.a(x) + torch.randn(x.shape, device=x.device),
    "dropout": lambda self, x: F.dropout(self.a(x), 0.5),
    "bernoulli": lambda self, x: self.a(x) * torch.bernoulli(torch.full_like(x, 0.5)),
    "numbers made on the host": lambda self, x: self.a(x) * torch.arange(4).to(x.device),
    "a detour over the host": lambda self, x: self.a(x.cpu().sin().to(x.device)),
    "a constant": lambda self, x: self.a(x) * torch.tensor([1.0, 2.0, 3.0, 4.0], device=x.device),
    "a scalar of the host": lambda self, x: self.a(x) * torch.tensor(2.0),
    "attention": lambda self, x: F.scaled_dot_product_attention(self.a(x)[None], x[None], x[None]),
    "attention with dropout": lambda self, x: F.scaled_dot_product_attention(_heads(self.a(x)), _heads(x), _heads(x), None, 0.3),
    "causal attention": lambda self, x: F.scaled_dot_product_attention(_heads(self.a(x)), _heads(x), _heads(x), is_causal=True),
    "attention of shared heads": _shared_heads,
    "sizes that depend on data": _data_sized,
    "a write to a part": _written,
    "a plain tensor": lambda self, x: self.a(x) * self.scale,
    "a plain tensor in a list": lambda self, x: self.a(x) * self.parts[0]["scale"],
    "a plain tensor that is written": _counted,
    "a plain tensor as a result": lambda self, x: (self.a(x), self.scale, self.scale[1:]),
    "its device": lambda self, x: (self.a(x), x.device),
}
REFUSED: dict[str, Forward] = {
    "noise of the host": lambda self, x: self.a(x) + torch.randn(x.shape).to(x.device),
    "a result on the host": lambda self, x: self.a(x).cpu(),
}
