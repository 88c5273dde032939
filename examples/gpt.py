"""A small GPT in plain PyTorch: the module that the demo trains and that Rekindle wraps unchanged."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn


@dataclass
class GPTConfig:
    """Sizes of the model; the defaults train in a fraction of a second per step on two CPU cores."""

    vocab: int = 256  # one token per byte
    context: int = 128  # longest sequence, in tokens
    layers: int = 4
    heads: int = 4
    width: int = 256
    dropout: float = 0.1  # on the embeddings and on what each block adds to the residual stream
    attention_dropout: float = 0.0  # on the attention probabilities


class Attention(nn.Module):
    """Causal multi-head self-attention."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        if config.width % config.heads != 0:
            raise ValueError(f"width {config.width} is not a multiple of heads {config.heads}: change either one")
        self.heads = config.heads
        self.attention_dropout = config.attention_dropout
        self.query_key_value = nn.Linear(config.width, 3 * config.width)
        self.project = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        """Mixes x [batch, length, width] along its length; no position sees a later one."""
        batch, length, width = x.shape
        query, key, value = (
            part.view(batch, length, self.heads, width // self.heads).transpose(1, 2)
            for part in self.query_key_value(x).split(width, dim=2)
        )
        dropout = self.attention_dropout if self.training else 0.0
        y = F.scaled_dot_product_attention(query, key, value, dropout_p=dropout, is_causal=True)
        return self.project(y.transpose(1, 2).reshape(batch, length, width))


class Block(nn.Module):
    """One pre-LayerNorm transformer block: attention, then a GELU perceptron, each added to its input."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(config.width)
        self.attention = Attention(config)
        self.mlp_norm = nn.LayerNorm(config.width)
        self.mlp = nn.Sequential(nn.Linear(config.width, 4 * config.width), nn.GELU(), nn.Linear(4 * config.width, config.width))
        self.dropout = nn.Dropout(config.dropout)

    def forward(self, x: Tensor) -> Tensor:
        """Returns a tensor of x's shape, [batch, length, width]."""
        x = x + self.dropout(self.attention(self.attention_norm(x)))
        return x + self.dropout(self.mlp(self.mlp_norm(x)))


class GPT(nn.Module):
    """A decoder-only language model whose output head shares its weight with the token embedding."""

    def __init__(self, config: GPTConfig) -> None:
        super().__init__()
        self.config = config
        self.token = nn.Embedding(config.vocab, config.width)
        self.position = nn.Embedding(config.context, config.width)
        self.dropout = nn.Dropout(config.dropout)
        self.blocks = nn.ModuleList(Block(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(config.width)
        self.head = nn.Linear(config.width, config.vocab, bias=False)
        self.head.weight = self.token.weight
        self.apply(self._initialize)

    def _initialize(self, module: nn.Module) -> None:
        if isinstance(module, (nn.Linear, nn.Embedding)):
            nn.init.normal_(module.weight, std=0.02)
        if isinstance(module, nn.Linear) and module.bias is not None:
            nn.init.zeros_(module.bias)
        if isinstance(module, Block):  # what 2 * layers additions sum up to keeps the variance of one
            for last in (module.attention.project, module.mlp[-1]):
                nn.init.normal_(last.weight, std=0.02 / math.sqrt(2 * self.config.layers))

    def forward(self, tokens: Tensor, targets: Tensor | None = None) -> Tensor:
        """Returns logits [batch, length, vocab], or with targets the mean cross entropy.

        Training never sees the logits, so they need not outlive the call.
        """
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.dropout(self.token(tokens) + self.position(positions))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        if targets is None:
            return logits
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())
