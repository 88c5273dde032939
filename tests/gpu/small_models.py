"""Six small models that return a loss, for what is counted, trained and weighed on a GPU."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn import functional as F


@dataclass(frozen=True)
class SmallModel:
    """make: the module. inputs: tensors on the CPU for a batch of this size."""

    name: str
    make: Callable[[], nn.Module]
    inputs: Callable[[int], list[torch.Tensor]]


class WithLoss(nn.Module):
    """A network and the mean square of what it returns, less the targets."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        """The loss."""
        return (self.net(x) - target).square().mean()


class Block(nn.Module):
    """A transformer block, causal."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads, self.first, self.second = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Batch, length, width."""
        batch, length, width = x.shape
        q, k, v = self.mixed(self.first(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return x + self.wide(self.second(x))


class Language(nn.Module):
    """Tokens in, the loss of the next ones out."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.blocks, self.head = nn.Embedding(64, 32), nn.Sequential(Block(32, 4), Block(32, 4)), nn.Linear(32, 64)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        """The mean cross entropy."""
        scores = self.head(self.blocks(self.tokens(tokens[:, :-1])))
        return F.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten())


def _convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 4, 3), nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
    )  # fmt: skip


MODELS = (
    SmallModel(
        "perceptron",
        lambda: WithLoss(nn.Sequential(nn.Linear(16, 64), nn.GELU(), nn.Linear(64, 4))),
        lambda n: [torch.randn(n, 16), torch.randn(n, 4)],
    ),
    SmallModel("convolutions", lambda: WithLoss(_convolutional()), lambda n: [torch.randn(n, 3, 12, 12), torch.randn(n, 4)]),
    SmallModel(
        "dropout",
        lambda: WithLoss(nn.Sequential(nn.Linear(16, 64), nn.Dropout(0.3), nn.Tanh(), nn.Linear(64, 4))),
        lambda n: [torch.randn(n, 16), torch.randn(n, 4)],
    ),
    SmallModel("language", Language, lambda n: [torch.randint(64, (n, 17))]),
    SmallModel(
        "norms",
        lambda: WithLoss(nn.Sequential(nn.Linear(16, 32), nn.GroupNorm(4, 32), nn.SiLU(), nn.LayerNorm(32), nn.Linear(32, 4))),
        lambda n: [torch.randn(n, 16), torch.randn(n, 4)],
    ),
    SmallModel(
        "embeddings",
        lambda: WithLoss(nn.Sequential(nn.EmbeddingBag(100, 16, mode="sum"), nn.Linear(16, 4))),
        lambda n: [torch.randint(100, (n, 5)), torch.randn(n, 4)],
    ),
)
