"""Makes random models over padded tokens: what leaves rows out, and what needs them all, in any order.

An example: `program(7)` embeds tokens, runs an attention with a mask, a cumulative sum over the length and a perceptron, and
returns a loss that ignores some labels. `batch(7, 2)` is a batch for it, with padding of any shape.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

WIDTH, HEADS, CLASSES = 16, 2, 11
Mask = torch.Tensor  # [B, L], true where there is padding


class Attention(nn.Module):
    """Attention [B, L, E] -> [B, L, E] in one of the ways in which models write it; `how` names the way."""

    HOWS = (
        "kept", "minus_inf", "lowest", "added", "weak", "causal", "causal_kept", "open", "filled", "filled_lowest", "one_head",
        "biased", "einsum", "added_early",
    )  # fmt: skip

    def __init__(self, how: str, dropout: float) -> None:
        super().__init__()
        self.how, self.dropout = how, dropout
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.bias = nn.Parameter(torch.zeros(1, HEADS, 1, 1)) if how == "biased" else None

    def forward(self, x: torch.Tensor, padding: Mask) -> torch.Tensor:
        b, n, _ = x.shape
        if self.how == "one_head":
            q, k, v = self.qkv(x).chunk(3, -1)
            scores = torch.bmm(q, k.transpose(1, 2)) / math.sqrt(WIDTH)
            scores = scores.masked_fill(padding[:, None, :], -math.inf)
            return x + self.out(torch.bmm(F.dropout(scores.softmax(-1), self.dropout), v))
        q, k, v = self.qkv(x).view(b, n, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        y = self.weighed(q, k, v, padding)
        return x + self.out(y.transpose(1, 2).reshape(b, n, WIDTH))

    def weighed(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, padding: Mask) -> torch.Tensor:
        keep = ~padding[:, None, None, :]
        low = torch.finfo(q.dtype).min
        if self.how in ("kept", "causal", "causal_kept", "open", "minus_inf", "lowest"):
            mask: torch.Tensor | None = keep
            if self.how == "causal_kept":
                mask = keep & torch.ones(q.shape[2], q.shape[2], dtype=torch.bool).tril()
            elif self.how == "minus_inf":
                mask = torch.zeros(keep.shape).masked_fill(~keep, -math.inf)
            elif self.how == "lowest":
                mask = (1 - keep.float()) * low
            elif self.how != "kept":
                mask = None
            return F.scaled_dot_product_attention(q, k, v, mask, dropout_p=self.dropout, is_causal=self.how == "causal")
        scores = torch.einsum("bhld,bhsd->bhls", q, k) if self.how == "einsum" else q @ k.transpose(-1, -2)
        scores = scores / math.sqrt(q.shape[-1])
        if self.bias is not None:
            distance = torch.arange(q.shape[2])[:, None] - torch.arange(q.shape[2])[None, :]
            scores = scores + self.bias * distance
        if self.how == "added_early":
            scores = scores + ((1 - (~padding).float()) * low)[:, None, None, :]
        elif self.how in ("added", "biased", "weak"):  # weak: hides nothing
            scores = scores + (1 - keep.float()) * (-3.0 if self.how == "weak" else low)
        else:
            scores = scores.masked_fill(~keep, low if self.how == "filled_lowest" else -math.inf)
        probabilities = F.dropout(scores.softmax(-1), self.dropout)
        return probabilities.nan_to_num(0.0) @ v if self.how == "filled" else probabilities @ v


class Perceptron(nn.Module):
    def __init__(self, how: str, dropout: float) -> None:
        super().__init__()
        self.how = how
        self.norm = nn.LayerNorm(WIDTH)
        self.layers = nn.Sequential(nn.Linear(WIDTH, 24), nn.GELU(), nn.Linear(24, WIDTH), nn.Dropout(dropout))

    def forward(self, x: torch.Tensor, padding: Mask) -> torch.Tensor:
        if self.how == "flat":
            return x + self.layers(self.norm(x).reshape(-1, WIDTH)).view_as(x)
        if self.how == "length_first":
            return x + self.layers(self.norm(x.transpose(0, 1))).transpose(0, 1)
        return self.norm(x + self.layers(x)) if self.how == "post" else x + self.layers(self.norm(x))


# What most of these need are all rows; the others need some.
FOREIGN: dict[str, Callable[[torch.Tensor, Mask], torch.Tensor]] = {
    "cumsum": lambda x, p: x + x.cumsum(1) * 0.1,
    "mean": lambda x, p: x - x.mean(1, keepdim=True),
    "max": lambda x, p: x + x.amax(1, keepdim=True),
    "roll": lambda x, p: x + x.roll(1, 1),
    "flip": lambda x, p: x + x.flip(1),
    "softmax": lambda x, p: x + x.softmax(1),
    "batch_softmax": lambda x, p: x + x.softmax(0),
    "first": lambda x, p: x + x[:, :1],
    "token": lambda x, p: x + x[:, 0][:, None],
    "shifted": lambda x, p: x + F.pad(x, (0, 0, 1, 0))[:, :-1],
    "norm": lambda x, p: x / x.norm(),
    "sorted": lambda x, p: x + x.sort(1).values,
    "masked": lambda x, p: x.masked_fill(p[..., None], 0.0),
    "masked_sum": lambda x, p: x + (x * (~p)[..., None]).sum(1, keepdim=True) / 10,
    "wide": lambda x, p: torch.cat((x, x.tanh()), -1)[..., :WIDTH] * 0.5,
    "halves": lambda x, p: torch.cat(x.chunk(2, -1)[::-1], -1),
    "doubled": lambda x, p: torch.cat((x, x), 1)[:, : x.shape[1]],
    "square": lambda x, p: x + (x.transpose(1, 2) @ x).mean(1, keepdim=True) * 0.01,
    "positions": lambda x, p: x + torch.arange(x.shape[1])[None, :, None] * 0.01,
    "of_batch": lambda x, p: x + torch.arange(x.shape[0])[:, None, None] * 0.01,
    "projected": lambda x, p: x + (x @ x.mean(1)[:, :, None]) * 0.1,
    "outer": lambda x, p: x + (x[..., :1] * x[..., 0][:, None, :]).mean(-1, keepdim=True),
    "moved_sum": lambda x, p: x + (x * (~p)[..., None].float() + 0.1).sum(1, keepdim=True) / 20,
    "gated": lambda x, p: x * x.mean(-1, keepdim=True).sigmoid(),
}


class Head(nn.Module):
    """A loss of x [B, L, E] and labels [B, L]; `how` names which rows it reads."""

    HOWS = (
        "labels", "labels", "labels", "smoothed", "weighed", "transposed", "none", "first", "last", "mean", "masked_mean",
        "filled_mean", "moved_mean", "regression", "sum",
    )  # fmt: skip

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how
        self.out = nn.Linear(WIDTH, CLASSES)
        self.register_buffer("weights", torch.linspace(0.5, 1.5, CLASSES))

    def forward(self, x: torch.Tensor, padding: Mask, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        counts = (labels != -100)[..., None]
        if self.how in ("first", "last", "mean", "masked_mean", "filled_mean", "moved_mean"):
            logits = self.out(self.pooled(x, padding))
            return F.cross_entropy(logits, labels.clamp(min=0).amax(1)), logits
        logits = self.out(x)
        if self.how == "regression":
            return ((logits - 1).pow(2) * counts).sum() / counts.sum().clamp(min=1), logits
        flat, targets = logits.view(-1, CLASSES), labels.reshape(-1)
        if self.how == "transposed":
            return F.cross_entropy(logits.transpose(1, 2), labels), logits
        if self.how == "none":
            each = F.cross_entropy(flat, targets, reduction="none")
            return (each * counts.view(-1)).sum() / counts.sum().clamp(min=1), logits
        return self.loss(flat, targets), logits

    def loss(self, flat: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        smoothing = 0.1 if self.how == "smoothed" else 0.0
        weight = self.weights if self.how == "weighed" else None
        reduction = "sum" if self.how == "sum" else "mean"
        return F.cross_entropy(flat, targets, weight, label_smoothing=smoothing, reduction=reduction)

    def pooled(self, x: torch.Tensor, padding: Mask) -> torch.Tensor:
        if self.how in ("first", "last"):
            return x[:, 0 if self.how == "first" else -1]
        if self.how == "mean":
            return x.mean(1)
        counts = (~padding).sum(1, keepdim=True).clamp(min=1)
        kept = x.masked_fill(padding[..., None], 0.0) if self.how == "filled_mean" else x * (~padding)[..., None].float()
        return (kept + 0.1 if self.how == "moved_mean" else kept).sum(1) / counts


class Program(nn.Module):
    """Embeds, runs the blocks, and returns loss and, as `results` says, logits or hidden states."""

    def __init__(self, blocks: list[nn.Module | str], heads: list[tuple[int, str]], results: str) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, WIDTH)
        self.blocks = nn.ModuleList(block for block in blocks if isinstance(block, nn.Module))
        self.order = [block if isinstance(block, str) else "" for block in blocks]
        self.heads, self.after = nn.ModuleList(Head(how) for _, how in heads), [after for after, _ in heads]
        self.results = results

    def forward(self, tokens: torch.Tensor, padding: Mask, labels: torch.Tensor) -> Any:
        x, modules, total, logits = self.embedding(tokens), iter(self.blocks), torch.zeros(()), None
        for i, name in enumerate([*self.order, ""]):
            for after, head in zip(self.after, self.heads, strict=True):
                if after == i:
                    loss, logits = head(x, padding, labels)
                    total = total + loss
            if i < len(self.order):
                x = FOREIGN[name](x, padding) if name else next(modules)(x, padding)
        return {"loss": (total,), "logits": (total, logits), "hidden": (total, x)}[self.results]

    def extra_repr(self) -> str:
        return f"order={self.order}, heads={list(zip(self.after, (head.how for head in self.heads), strict=True))}"


def program(seed: int) -> Program:
    """Returns the program of this number, in training."""
    draw = random.Random(seed)
    torch.manual_seed(seed)
    dropout = draw.choice((0.0, 0.0, 0.2))
    blocks: list[nn.Module | str] = []
    for _ in range(draw.randint(1, 5)):
        kind = draw.random()
        if kind < 0.4:
            blocks.append(Attention(draw.choice(Attention.HOWS), dropout))
        elif kind < 0.75:
            blocks.append(Perceptron(draw.choice(("pre", "post", "flat", "length_first")), dropout))
        else:
            blocks.append(draw.choice(list(FOREIGN)))
    heads = [(len(blocks), draw.choice(Head.HOWS))]
    if draw.random() < 0.25:
        heads.insert(0, (draw.randint(0, len(blocks)), draw.choice(Head.HOWS)))
    return Program(blocks, heads, draw.choice(("loss", "logits", "logits", "hidden"))).train()


def batch(seed: int, number: int) -> tuple[torch.Tensor, Mask, torch.Tensor]:
    """Returns tokens, padding and labels [B, L]: padding on the right, on the left, anywhere, or none."""
    draw = random.Random(f"{seed}/{number}")
    generator = torch.Generator().manual_seed(draw.randrange(2**31))
    b, n = draw.randint(5, 8), draw.randint(14, 22)
    tokens = torch.randint(0, 50, (b, n), generator=generator)
    least, most = (0 if draw.random() < 0.3 else 1), (n + 1 if draw.random() < 0.2 else n // 2)
    lengths = torch.randint(least, most, (b, 1), generator=generator)
    where = draw.choice(("right", "right", "right", "left", "anywhere", "nowhere"))
    padding = torch.arange(n)[None] >= lengths
    if where == "left":
        padding = padding.flip(1)
    elif where != "right":
        padding = torch.rand(b, n, generator=generator) < (0.5 if where == "anywhere" else 0.0)
    share = draw.choice((0.1, 0.5, 1.0))
    labels = torch.where(torch.rand(b, n, generator=generator) < share, tokens % CLASSES, -100)
    if draw.random() < 0.8:
        labels = labels.masked_fill(padding, -100)
    labels[0, draw.randrange(n)] = 3  # a mean of no loss is not a number
    return tokens, padding, labels
