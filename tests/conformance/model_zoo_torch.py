"""Architectures written out in plain PyTorch: recurrent taggers, U-Nets, autoencoders, networks on graphs."""

from __future__ import annotations

# ruff: noqa: D102  (forwards)
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F


class Tagger(nn.Module):
    """Embedding, bidirectional LSTM, projection, loss. tokens, tags: [batch, length]."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.lstm = nn.LSTM(16, 12, 2, batch_first=True, bidirectional=True, dropout=dropout)
        self.out = nn.Linear(24, 7)

    def forward(self, tokens: torch.Tensor, tags: torch.Tensor) -> torch.Tensor:
        scores = self.out(self.lstm(self.embed(tokens))[0])
        return F.cross_entropy(scores.flatten(0, 1), tags.flatten())


class PackedTagger(Tagger):
    """The same over rows of several lengths. lengths: [batch], on the CPU."""

    def forward(self, tokens: torch.Tensor, tags: torch.Tensor, lengths: torch.Tensor) -> torch.Tensor:
        packed = nn.utils.rnn.pack_padded_sequence(self.embed(tokens), lengths, batch_first=True, enforce_sorted=False)
        hidden, _ = nn.utils.rnn.pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=tokens.shape[1])
        return F.cross_entropy(self.out(hidden).flatten(0, 1), tags.flatten())


class Seq2Seq(nn.Module):
    """Two GRUs, the second with attention over the first's states. source, target: [batch, length]."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.embed = nn.Embedding(50, 16)
        self.encoder, self.decoder = nn.GRU(16, 16, batch_first=True), nn.GRUCell(32, 16)
        self.out, self.dropout = nn.Linear(16, 50), nn.Dropout(dropout)

    def forward(self, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        memory, last = self.encoder(self.dropout(self.embed(source)))
        state, steps = last[0], []
        for token in target[:, :-1].unbind(1):
            weights = (memory @ state.unsqueeze(-1) / math.sqrt(16)).softmax(1)
            state = self.decoder(torch.cat([self.embed(token), (weights * memory).sum(1)], -1), state)
            steps.append(self.out(self.dropout(state)))
        return F.cross_entropy(torch.stack(steps, 1).flatten(0, 1), target[:, 1:].flatten())


class _Block(nn.Module):
    def __init__(self, inputs: int, outputs: int, dropout: float) -> None:
        super().__init__()
        self.first, self.second = (
            nn.Conv2d(inputs, outputs, 3, padding=1),
            nn.Conv2d(outputs, outputs, 3, padding=1),
        )
        self.norm, self.time, self.dropout = (
            nn.GroupNorm(2, outputs),
            nn.Linear(16, outputs),
            nn.Dropout(dropout),
        )

    def forward(self, x: torch.Tensor, time: torch.Tensor | None = None) -> torch.Tensor:
        x = F.silu(self.norm(self.first(x)))
        if time is not None:
            x = x + self.time(time)[:, :, None, None]
        return F.silu(self.second(self.dropout(x)))


class UNet(nn.Module):
    """Down by pooling, up by transposed convolutions, with skips. x: [batch, 3, *sizes], labels: [batch, *sizes]."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.down1, self.down2, self.middle = (
            _Block(3, 8, dropout),
            _Block(8, 16, dropout),
            _Block(16, 16, dropout),
        )
        self.raise2, self.raise1 = (
            nn.ConvTranspose2d(16, 16, 2, stride=2),
            nn.ConvTranspose2d(16, 8, 2, stride=2),
        )
        self.up2, self.up1, self.out = _Block(32, 16, dropout), _Block(16, 8, dropout), nn.Conv2d(8, 4, 1)

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> dict[str, torch.Tensor]:
        first = self.down1(x)
        second = self.down2(F.max_pool2d(first, 2))
        middle = self.middle(F.max_pool2d(second, 2))
        second = self.up2(torch.cat([self._like(self.raise2(middle), second), second], 1))
        first = self.up1(torch.cat([self._like(self.raise1(second), first), first], 1))
        scores = self.out(first)
        return {"loss": F.cross_entropy(scores, labels), "scores": scores}

    @staticmethod
    def _like(x: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        rows, columns = other.shape[-2] - x.shape[-2], other.shape[-1] - x.shape[-1]
        return F.pad(x, [columns // 2, columns - columns // 2, rows // 2, rows - rows // 2])


class DiffusionUNet(nn.Module):
    """Predicts the noise in x: [batch, 3, size, size], from embeddings of steps: [batch]; attention in the middle."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.embed = nn.Sequential(nn.Linear(16, 16), nn.SiLU(), nn.Linear(16, 16))
        self.enter, self.down, self.middle = (
            nn.Conv2d(3, 8, 3, padding=1),
            _Block(8, 16, dropout),
            _Block(16, 16, dropout),
        )
        self.shrink, self.attention = (
            nn.Conv2d(16, 16, 3, 2, 1),
            nn.MultiheadAttention(16, 2, dropout, batch_first=True),
        )
        self.up, self.out = _Block(32, 8, dropout), nn.Conv2d(8, 3, 3, padding=1)
        self.register_buffer("kept", torch.linspace(0.999, 0.01, 100))

    def forward(self, x: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        noise, kept = torch.randn_like(x), self.kept[steps][:, None, None, None]
        found = self.denoise(kept.sqrt() * x + (1 - kept).sqrt() * noise, steps)
        return F.mse_loss(found, noise)

    def denoise(self, x: torch.Tensor, steps: torch.Tensor) -> torch.Tensor:
        frequencies = torch.exp(-math.log(10000) * torch.arange(8, dtype=torch.float32, device=x.device) / 8)
        angles = steps[:, None].float() * frequencies[None]
        time = self.embed(torch.cat([angles.sin(), angles.cos()], -1))
        down = self.down(self.enter(x), time)
        middle = self.middle(self.shrink(down), time)
        batch, channels, height, width = middle.shape
        flat = middle.view(batch, channels, height * width).transpose(1, 2)
        middle = (flat + self.attention(flat, flat, flat, need_weights=False)[0]).transpose(1, 2).reshape(middle.shape)
        raised = F.interpolate(middle, size=down.shape[-2:], mode="nearest")
        return self.out(self.up(torch.cat([raised, down], 1), time))


class Autoencoder(nn.Module):
    """Variational, over x: [batch, 3, size, size]. Returns the reconstruction, too."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.encoder = nn.Sequential(nn.Conv2d(3, 8, 4, 2, 1), nn.ReLU(), nn.Dropout(dropout), nn.Conv2d(8, 8, 4, 2, 1))
        self.decoder = nn.Sequential(nn.ConvTranspose2d(4, 8, 4, 2, 1), nn.ReLU(inplace=True), nn.ConvTranspose2d(8, 3, 4, 2, 1))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        mean, log_variance = self.encoder(x).chunk(2, 1)
        latent = mean + torch.randn_like(mean) * (0.5 * log_variance).exp()
        again = self.decoder(latent)
        divergence = -0.5 * (1 + log_variance - mean.square() - log_variance.exp()).mean()
        return F.mse_loss(again, x) + divergence, again


class Graph(nn.Module):
    """A graph convolution, then graph attention. x: [nodes, 8], edges: [2, edges]."""

    def __init__(self, dropout: float) -> None:
        super().__init__()
        self.first, self.second, self.out = nn.Linear(8, 16), nn.Linear(16, 16), nn.Linear(16, 4)
        self.score, self.dropout = nn.Linear(32, 1), nn.Dropout(dropout)

    def forward(self, x: torch.Tensor, edges: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        source, target = edges
        nodes = x.size(0)
        degree = torch.zeros(nodes).scatter_add_(0, target, torch.ones(edges.size(1))).clamp(min=1)
        weight = (degree[source] * degree[target]).rsqrt()
        x = F.relu(torch.zeros(nodes, 16).index_add_(0, target, self.first(x)[source] * weight[:, None]))
        x = self.attend(self.second(self.dropout(x)), source, target)
        return F.cross_entropy(self.out(x), labels)

    def attend(self, x: torch.Tensor, source: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        scores = F.leaky_relu(self.score(torch.cat([x[source], x[target]], -1)), 0.2).squeeze(-1)
        highest = torch.full((x.size(0),), -torch.inf).scatter_reduce(0, target, scores, "amax")
        weights = (scores - highest[target]).exp()
        total = torch.zeros(x.size(0)).scatter_add(0, target, weights)
        weights = self.dropout(weights / total[target])
        return F.elu(torch.zeros_like(x).index_add(0, target, x[source] * weights[:, None]))


def _tagged(batch: int, length: int) -> dict[str, Any]:
    return {"tokens": torch.randint(1, 50, (batch, length)), "tags": torch.randint(0, 7, (batch, length))}


def _packed(batch: int, length: int) -> dict[str, Any]:
    lengths = torch.randint(1, length + 1, (batch,))
    return {**_tagged(batch, length), "lengths": lengths}


def _translated(batch: int, source: int, target: int) -> dict[str, Any]:
    return {"source": torch.randint(1, 50, (batch, source)), "target": torch.randint(1, 50, (batch, target))}


def _segmented(batch: int, height: int, width: int) -> dict[str, Any]:
    return {"x": torch.randn(batch, 3, height, width), "labels": torch.randint(0, 4, (batch, height, width))}


def _noised(batch: int, size: int) -> dict[str, Any]:
    return {"x": torch.randn(batch, 3, size, size), "steps": torch.randint(0, 100, (batch,))}


def _graph(nodes: int, edges: int) -> dict[str, Any]:
    return {
        "x": torch.randn(nodes, 8),
        "edges": torch.randint(0, nodes, (2, edges)),
        "labels": torch.randint(0, 4, (nodes,)),
    }


_Make = Callable[[float], nn.Module]
# How to make each, its inputs, and the sizes of three calls.
TORCH_MODELS: dict[str, tuple[_Make, Callable[..., dict[str, Any]], list[tuple[int, ...]]]] = {
    "lstm_tagger": (Tagger, _tagged, [(2, 10), (3, 7), (4, 16)]),
    "packed_tagger": (PackedTagger, _packed, [(2, 10), (3, 7), (4, 16)]),
    "gru_seq2seq": (Seq2Seq, _translated, [(2, 10, 6), (3, 7, 6), (4, 16, 6)]),
    "unet": (UNet, _segmented, [(2, 32, 32), (3, 40, 48), (4, 33, 35)]),
    "diffusion_unet": (DiffusionUNet, _noised, [(2, 16), (3, 24), (4, 20)]),
    "autoencoder": (
        Autoencoder,
        lambda batch, size: {"x": torch.randn(batch, 3, size, size)},
        [(2, 16), (3, 24), (4, 32)],
    ),
    "graph_network": (Graph, _graph, [(12, 40), (9, 30), (20, 64)]),
}
