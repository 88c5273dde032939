"""Modules that keep what the training loop reads after a call: losses of routers, divergences of weights, maps of attention."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import nn
from torch.nn import functional as F

Wrap = Callable[[nn.Module], nn.Module]


class _Experts(nn.Module):
    """Sends each token to two of its experts, as Mixtral does, and keeps the loss that balances them."""

    def __init__(self, width: int, experts: int) -> None:
        super().__init__()
        self.router = nn.Linear(width, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width)) for _ in range(experts)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        tokens = x.reshape(-1, x.shape[-1])
        shares = self.router(tokens).softmax(dim=-1)
        weights, chosen = shares.topk(2, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        result = torch.zeros_like(tokens)
        for i, expert in enumerate(self.experts):
            rows, place = torch.where(chosen == i)
            result = result.index_add(0, rows, expert(tokens[rows]) * weights[rows, place, None])
        load = F.one_hot(chosen[:, 0], len(self.experts)).float().mean(0)
        self.aux_loss = len(self.experts) * (load * shares.mean(0)).sum()
        return result.view_as(x)


class _Mixture(nn.Module):
    def __init__(self, words: int, width: int) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(words, width), nn.Linear(width, words)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.layers = nn.ModuleList(_Experts(width, 4) for _ in range(2))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embedding(tokens)
        y, weights = self.attention(x, x, x)
        self.attention_map = weights.detach()
        x = x + y
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)


def mixture_of_experts(wrap: Wrap) -> Iterator[float]:
    """A language model with experts, whose loop adds the losses that the layers keep."""
    model = _Mixture(97, 32)
    layers, called = list(model.layers), wrap(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    while True:
        tokens = torch.randint(97, (8, 17))
        logits = called(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss = loss + 0.01 * sum(layer.aux_loss for layer in layers)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item() + 1e-3 * model.attention_map.amax().item()


class _BayesianLinear(nn.Module):
    """Draws its weights at each call, and keeps how far their distribution is from the prior."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.mean = nn.Parameter(torch.randn(outputs, inputs) / math.sqrt(inputs))
        self.spread = nn.Parameter(torch.full((outputs, inputs), -4.0))
        self.kl: torch.Tensor | float = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        deviation = F.softplus(self.spread)
        self.kl = (deviation.square() + self.mean.square() - 1).mul(0.5).sub(deviation.log()).sum()
        return F.linear(x, self.mean + deviation * torch.randn_like(self.mean))


def bayes_by_backprop(wrap: Wrap) -> Iterator[float]:
    """Bayes by Backprop: the likelihood, and the divergences that the layers keep, of whatever layers there are."""
    model = wrap(nn.Sequential(_BayesianLinear(8, 32), nn.ReLU(), _BayesianLinear(32, 1)))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    while True:
        x = torch.randn(64, 8)
        loss = F.mse_loss(model(x), x[:, :1] * x[:, 1:2]) + 1e-4 * sum(m.kl for m in model.modules() if hasattr(m, "kl"))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.item()
