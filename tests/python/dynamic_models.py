"""Models whose sizes change from call to call, by what they do with a size."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F
from seeded import seeded
from torch import nn

Call = tuple[torch.Tensor, ...]


class Model(nn.Module):
    """A forward over one linear layer and a square matrix."""

    def __init__(self, forward: Callable[..., object]) -> None:
        super().__init__()
        self.linear = nn.Linear(6, 8)
        self.matrix = nn.Parameter(torch.randn(6, 6) / 3)
        self.register_buffer("positions", torch.randn(40, 6))
        self.forward = forward.__get__(self)  # type: ignore[method-assign]


class Encoder(nn.Module):
    """A transformer layer with learnt positions and a causal mask."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(20, 16), nn.Embedding(32, 16)
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.1, batch_first=True)

    def forward(self, ids: torch.Tensor, kept: torch.Tensor) -> torch.Tensor:
        length = ids.size(1)
        mask = torch.triu(torch.full((length, length), float("-inf")), 1)
        padding = torch.zeros(kept.shape).masked_fill(~kept, -1e9)
        x = self.tokens(ids) + self.places(torch.arange(length))
        return self.layer(x, src_mask=mask, src_key_padding_mask=padding)


class Attention(nn.Module):
    """Causal attention, with dropout, over heads cut out of one projection."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(8, 24)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        batch, length, width = x.shape
        heads = (part.view(batch, length, 2, width // 2).transpose(1, 2) for part in self.project(x).split(width, dim=2))
        mixed = F.scaled_dot_product_attention(*heads, is_causal=True, dropout_p=0.1 if self.training else 0.0)
        return mixed.transpose(1, 2).reshape(batch, length, width)


def images() -> nn.Module:
    """A convolutional net for images of any size."""
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 3, stride=2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3),
    )  # fmt: skip


def view(self, x):
    batch, length, _ = x.shape
    return self.linear(x).view(batch, -1).reshape(batch, length, 2, 4).transpose(1, 2)


def arange(self, x):
    return self.linear(x) + torch.arange(x.size(1))[None, :, None]


def made_of_sizes(self, x):
    return self.linear(x).sum(1) + torch.zeros(x.size(0), 8) + x.new_ones(x.size(0), 8) + torch.full((x.shape[0], 8), x.shape[1])


def expand(self, x):
    return self.linear(torch.cat([self.matrix[:1].expand(x.size(0), 1, -1), x], 1))


def scale(self, x):
    return self.linear(x).sum(1) / x.size(1) * math.sqrt(x.size(-1)) + torch.tensor([x.size(0), 1]).sum()


def halves(self, x):
    middle = x.size(1) // 2
    return self.linear(torch.cat([x[:, middle:], x[:, :middle] * (x.numel() % 7)], 1))


def positions(self, x):
    return self.linear(x + self.positions[: x.size(1)])


def noise(self, x):
    return self.linear(x) + torch.randn(x.size(0), 1, 8)


def assigned(self, x):
    y = self.linear(x).clone()
    y[:, : x.size(1) // 2] = 0
    return y


def resized(self, x):
    return F.interpolate(self.linear(x).transpose(1, 2), size=2 * x.size(1))


def branch(self, x):
    return self.linear(x) if x.shape[0] > 4 else 2 * self.linear(x)


def hidden_branch(self, x):
    y = self.linear(x)[:, 1:]
    return y * 2 if y.shape[1] == 3 else y


def loop(self, x):
    state = torch.zeros(x.size(0), 6)
    for step in range(x.size(1)):
        state = torch.tanh(state @ self.matrix + x[:, step])
    return state


def root(self, x):
    return self.linear(x).sum(1) / math.sqrt(x.size(1))


def unbind(self, x):
    return sum(self.linear(part) for part in x.unbind(1))


def cached_by_size(self, x):
    return self.linear(x) * {3: 2.0, 5: 3.0}.get(x.size(1), 1.0)


def named_by_size(self, x):
    return self.linear(x) * (2.0 if f"{x.size(1)}" == "5" else 1.0)


def contiguous(self, x):
    return self.linear(x) * (2.0 if x[:, : x.size(1) // 2].is_contiguous() else 1.0)


def strides(self, x):
    return self.linear(x) * (x.stride(0) % 5)


def squeeze(self, x):
    return self.linear(x[:, : x.size(1) - 1]).squeeze(1)


def length(self, x):
    return self.linear(x) * len(x)


def squares(self, x):
    return x @ x.t() + x.t().tril() + self.linear.bias.sum()


def compared_sides(self, x):
    y = self.linear(x)
    return y.transpose(0, 1) + y if x.size(0) == x.size(1) else y


def mixed(self, x, pairs):
    return pairs.softmax(-1) @ self.linear(x)


def counted(self, x):
    return self.linear(x) + torch.arange(len(x))[:, None, None] / len(x) + len("name")


def enumerated(self, x):
    y = self.linear(x)
    return sum(y[i] * i for i in range(len(y)))


def attention(self, x):
    q, k, v = self.linear(x)[..., :6].reshape(x.shape[0], x.shape[1], 3, 1, 2).permute(2, 0, 3, 1, 4).unbind(0)
    return torch.nn.functional.scaled_dot_product_attention(q, k, v)


def iterated(self, x):
    first, second = x
    for row in x:
        second = second + row.sin()
    return self.linear(first) * second.sum()


def own_weight(self, x):
    return self.linear(x) * self.linear.bias.float()  # float() gives the parameter itself


def returned(self, x):
    return self.linear(x), x.size(0), x.shape


def sums(self, x, y):
    return self.linear(x).sum(0) + self.linear(y).sum(0)


def x(*sizes: int) -> Call:
    """One call."""
    generator = seeded(sum(sizes))
    return (torch.randn(*sizes, generator=generator),)


def ids(batch: int, length: int) -> Call:
    """Tokens, and which of them count."""
    generator = seeded(batch * length)
    kept = torch.ones(batch, length, dtype=torch.bool)
    kept[:, -1] = False
    return torch.randint(0, 20, (batch, length), generator=generator), kept


_THREE = [x(4, 5, 6), x(7, 3, 6), x(2, 9, 6)]
# What is done with a size -> the model, its calls, how many exports they take.
CASES: dict[str, tuple[Callable[[], nn.Module], list[Call], int]] = {
    **{forward.__name__: ((lambda forward=forward: Model(forward)), _THREE, 1) for forward in (
        view, arange, made_of_sizes, expand, scale, halves, positions, noise, assigned, resized)},
    "linear layers": (lambda: nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 2)),
        [x(4, 6), x(7, 6), x(2, 6), x(33, 6)], 1),
    "batches of 0 and 1": (lambda: nn.Linear(6, 8), [x(4, 6), x(0, 6), x(1, 6), x(2, 6), x(7, 6), x(0, 6)], 3),
    "encoder": (Encoder, [ids(4, 6), ids(3, 9), ids(2, 2)], 1),
    "attention": (Attention, [x(4, 6, 8), x(3, 9, 8)], 1),
    "images": (images, [x(4, 3, 12, 16), x(2, 3, 20, 14), x(8, 3, 17, 9)], 1),
    "lstm": (lambda: nn.LSTM(6, 4, batch_first=True), _THREE, 1),
    "branch": (lambda: Model(branch), [x(3, 6), x(7, 6), x(2, 6), x(9, 6)], 2),
    "branch on what is computed": (lambda: Model(hidden_branch), [x(3, 5, 6), x(3, 4, 6), x(3, 7, 6), x(2, 4, 6)], 2),
    "loop": (lambda: Model(loop), [x(4, 5, 6), x(7, 5, 6), x(7, 3, 6)], 2),
    "root": (lambda: Model(root), [x(4, 5, 6), x(7, 5, 6), x(7, 3, 6)], 2),
    "length": (lambda: Model(length), [x(4, 5, 6), x(4, 3, 6), x(7, 3, 6)], 1),
    "unbind": (lambda: Model(unbind), [x(4, 5, 6), x(7, 5, 6), x(7, 3, 6)], 2),
    "dict": (lambda: Model(cached_by_size), [x(4, 5, 6), x(7, 5, 6), x(7, 3, 6)], 2),
    "text": (lambda: Model(named_by_size), [x(4, 3, 6), x(7, 3, 6), x(7, 5, 6)], 2),
    "contiguous": (lambda: Model(contiguous), [x(2, 4, 6), x(3, 2, 6)], 2),
    "strides": (lambda: Model(strides), [x(2, 4, 6), x(2, 5, 6)], 2),
    "squeeze": (lambda: Model(squeeze), [x(4, 5, 6), x(3, 7, 6), x(3, 2, 6)], 2),
    "attention over what is unbound": (lambda: Model(attention), [x(4, 5, 6), x(7, 3, 6)], 1),
    "iterated": (lambda: Model(iterated), [(torch.randn(2, 4, 6),), (torch.randn(2, 5, 6),)], 1),
    "own weight": (lambda: Model(own_weight), [x(4, 5, 6), x(7, 5, 6)], 1),
    "returned": (lambda: Model(returned), [x(4, 5, 6), x(7, 5, 6)], 1),
    "images of equal sides": (images, [x(4, 3, 12, 12), x(3, 3, 20, 14), x(5, 3, 9, 17)], 1),
    "as many rows as features": (lambda: Model(scale), [x(6, 6, 6), x(9, 4, 6), x(3, 6, 6)], 1),
    "squares": (lambda: Model(squares), [x(5, 5), x(8, 8), x(3, 3)], 1),
    "sides that are compared": (lambda: Model(compared_sides), [x(6, 6, 6), x(4, 4, 6), x(5, 7, 6), x(8, 3, 6)], 2),
    "a mask of pairs": (lambda: Model(mixed), [(*x(5, 6), *x(5, 5)), (*x(7, 6), *x(7, 7)), (*x(3, 6), *x(3, 3))], 1),
    "length as a number": (lambda: Model(counted), [x(4, 5, 6), x(7, 3, 6), x(3, 4, 6)], 1),
    "length in a loop": (lambda: Model(enumerated), [x(4, 5, 6), x(4, 3, 6), x(7, 3, 6)], 2),
    "equal sizes": (lambda: Model(sums),
        [(*x(4, 6), *x(4, 6)), (*x(5, 6), *x(5, 6)), (*x(4, 6), *x(7, 6)), (*x(3, 6), *x(2, 6))], 2),
    "other dtype and rank": (lambda: Model(lambda self, x: x.float() @ self.matrix),
        [x(4, 6), (x(4, 6)[0].double(),), x(2, 4, 6), x(3, 6)], 3),
}  # fmt: skip
