"""What forwards do: layers, control flow, random numbers, writes in place.

Each case runs in eager, with a cold and with a warm cache.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from semantics_support import backward, case, made_of, rows
from torch import nn


@case(made_of(lambda self, x: self.a(x).split(2, -1)[0] + self.b(x).chunk(2, -1)[1]))
def split(model: nn.Module) -> Any:
    return backward(model(rows()))


@case(made_of(lambda self, x: torch.unbind(self.a(x), 0)[2]))
def unbind(model: nn.Module) -> Any:
    return backward(model(rows()))


@case(lambda: nn.MultiheadAttention(8, 2, batch_first=True))
def mha(model: nn.Module) -> Any:
    x = rows(0, 2, 5, 8)
    return backward(model(x, x, x))


@case(lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True))
def tel(model: nn.Module) -> Any:
    results = [backward(model(rows(0, 2, 5, 8)))]
    model.eval()
    return [*results, model(rows(1, 2, 5, 8)).detach()]


@case(lambda: nn.Transformer(8, 2, 1, 1, 16, batch_first=True))
def tr(model: nn.Module) -> Any:
    return backward(model(rows(0, 2, 5, 8), rows(1, 2, 3, 8)))


@case(made_of(lambda self, x: self.a(x).tile(2, 2) + torch.index_copy(self.b(x), 0, torch.tensor([0, 2]), x[:2]).tile(2, 2)))
def tile(model: nn.Module) -> Any:
    return backward(model(rows()))


@case(lambda: nn.Sequential(nn.Conv1d(3, 4, 3), nn.MaxPool1d(2), nn.ReLU()))
def pool(model: nn.Module) -> Any:
    return backward(model(rows(0, 2, 3, 9)))


@case(lambda: nn.EmbeddingBag(10, 4))
def bag(model: nn.Module) -> Any:
    return backward(model(torch.tensor([[1, 2], [3, 4]])))


@case(
    made_of(
        lambda self, x: (
            torch.zeros(6, 4)
            .scatter_add(0, torch.tensor([[0, 1, 2, 0]] * 5), self.a(x))
            .index_add(0, torch.tensor([0, 5]), self.b(x)[:2])
        )
    )
)
def scatter(model: nn.Module) -> Any:
    return backward(model(rows()))


@case(lambda: nn.LSTM(4, 5, batch_first=True, bidirectional=True))
def recurrent_lstm(model: nn.Module) -> Any:
    return [backward(model(rows(0, 2, n, 4))) for n in (3, 5, 3)]


@case(lambda: nn.GRU(4, 5, 2, dropout=0.2))
def recurrent_gru(model: nn.Module) -> Any:
    return backward(model(rows(0, 6, 2, 4)))


def _forward_recurrent_loop(self, x):
    h = torch.zeros(x.shape[0], 4)
    for t in range(x.shape[1]):
        h = torch.tanh(self.a(x[:, t]) + self.b(h))
    return h


@case(made_of(_forward_recurrent_loop))
def recurrent_loop(model: nn.Module) -> Any:
    return [backward(model(rows(0, 2, n, 4))) for n in (3, 5, 3, 1)]


def _forward_control_value(self, x):
    y = self.a(x)
    if y.sum() > 0:
        return y
    return self.b(x)


@case(made_of(_forward_control_value))
def control_value(model: nn.Module) -> Any:
    return [backward(model(rows(i))) for i in range(6)]


def _forward_control_item(self, x):
    return self.a(x) * x.abs().max().item()


@case(made_of(_forward_control_item))
def control_item(model: nn.Module) -> Any:
    return [backward(model(rows(i))) for i in range(3)]


def _forward_control_while(self, x):
    n = 0
    while x.norm() > 1 and n < 20:
        x = self.a(x) * 0.5
        n += 1
    return (x, n)


@case(made_of(_forward_control_while))
def control_while(model: nn.Module) -> Any:
    return [backward(model(rows(i))) for i in range(3)]


@case(made_of(lambda self, x: self.a(x)[x.sum(-1) > 0]))
def control_mask(model: nn.Module) -> Any:
    return [backward(model(rows(i))) for i in range(3)]


@case(made_of(lambda self, x: torch.nonzero(self.a(x) > 0).float().sum() + self.a(x).sum()))
def control_nonzero(model: nn.Module) -> Any:
    return [backward(model(rows(i))) for i in range(3)]


@case(made_of(lambda self, x: self.a(x) + torch.randn(4)))
def random_noise(model: nn.Module) -> Any:
    return [backward(model(rows(i))) for i in range(3)]


@case(made_of(lambda self, x: self.a(x) + torch.rand_like(x) * torch.randint(0, 3, (4,))))
def random_noise2(model: nn.Module) -> Any:
    return [backward(model(rows(i))) for i in range(3)]


@case(made_of(lambda self, x: self.a(x).bernoulli(0.5) if False else torch.bernoulli(torch.sigmoid(self.a(x))) + self.b(x)))
def random_bern(model: nn.Module) -> Any:
    return [backward(model(rows(i))) for i in range(3)]


@case(made_of(lambda self, x: torch.distributions.Normal(self.a(x), self.b(x).exp()).rsample()))
def random_rsample(model: nn.Module) -> Any:
    return [backward(model(rows(i))) for i in range(3)]


def _forward_random_policy(self, x):
    d = torch.distributions.Categorical(logits=self.a(x))
    act = d.sample()
    return (act, d.log_prob(act), d.entropy())


@case(made_of(_forward_random_policy))
def random_policy(model: nn.Module) -> Any:
    return [backward(model(rows(i))) for i in range(3)]


@case(made_of(lambda self, x: self.a(x) * random.random()))
def random_python(model: nn.Module) -> Any:
    random.seed(0)
    return [backward(model(rows(i))) for i in range(3)]


@case(made_of(lambda self, x: self.a(x) * float(np.random.rand())))
def random_numpy(model: nn.Module) -> Any:
    np.random.seed(0)
    return [backward(model(rows(i))) for i in range(3)]


def _forward_in_place_ops(self, x):
    y = self.a(x)
    y.sub_(1)
    y[:, 0] = 0
    y += 1
    y[1].mul_(2)
    return y


@case(made_of(_forward_in_place_ops))
def in_place_ops(model: nn.Module) -> Any:
    return [backward(model(rows(i))) for i in range(2)]


def _forward_in_place_views(self, x):
    y = torch.zeros(5, 4)
    y[::2] = self.a(x)[::2]
    y[:, 1:3] += self.b(x)[:, 1:3]
    return y


@case(made_of(_forward_in_place_views))
def in_place_views(model: nn.Module) -> Any:
    return [backward(model(rows(i))) for i in range(2)]


@case(
    lambda: nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.BatchNorm2d(4),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 2),
    )
)
def image_net(model: nn.Module) -> Any:
    return [backward(model(rows(i, 2, 3, 6, 6))) for i in range(3)]


@case(
    lambda: nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.GroupNorm(2, 4),
        nn.GELU(),
        nn.Upsample(scale_factor=2),
        nn.ConvTranspose2d(4, 2, 2, 2),
    )
)
def image_gn(model: nn.Module) -> Any:
    return backward(model(rows(0, 2, 3, 6, 6)))
