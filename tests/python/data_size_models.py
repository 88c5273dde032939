"""Modules that make tensors whose sizes depend on data. See test_data_sizes.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from seeded import seeded
from semantics_support import made_of
from torch import nn
from torch.autograd import Function
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

# By name: how to make the module. What they keep of x are the rows whose first number is positive.
CASES: dict[str, Callable[[], nn.Module]] = {}


def case(forward: Callable[..., Any]) -> Callable[..., Any]:
    """Register a module with this forward, under its name."""
    CASES[forward.__name__] = made_of(forward)
    return forward


def kept(x: torch.Tensor) -> torch.Tensor:
    return x[:, 0] > 0


def batch(rows: int, count: int, seed: int = 0) -> torch.Tensor:
    """[rows, 4], of which `count` are kept."""
    x = torch.randn(rows, 4, generator=seeded(seed))
    x[:, 0] = x[:, 0].abs() + 0.1
    x[count:, 0] *= -1
    return x[torch.randperm(rows, generator=seeded(seed))].requires_grad_()


@case
def masked_rows(self, x):
    return self.b(self.a(x)[kept(x)]).relu()


@case
def masked_numbers(self, x):
    h = self.a(x) * kept(x)[:, None]
    return torch.masked_select(h, x > 0).tanh().sum() + h[x > 1].exp().sum()


@case
def places(self, x):
    rows = kept(x).nonzero()[:, 0]
    first, second = torch.where(x > 0.5)
    return self.b(self.a(x)[rows]).sum(0) + self.a(x)[first, second].sum()


@case
def assigned_by_mask(self, x):
    result = torch.zeros_like(x)
    result[kept(x)] = self.b(self.a(x)[kept(x)])
    return result + self.a(x)


@case
def distinct(self, x):
    values, inverse, counts = torch.unique(x[:, 0].round(), return_inverse=True, return_counts=True)
    return (values.detach()[inverse] * self.a(x)[:, 1]).sum() + (values.detach() * counts).sum() + self.b(x).sum()


@case
def repeated(self, x):
    return torch.repeat_interleave(self.a(x), kept(x).long() + 1, dim=0).sin()


@case
def split_by_data(self, x):
    first, second = torch.tensor_split(self.a(x), kept(x).sum().reshape(1))
    return torch.cat([second, first * 2])


@case
def sizes_as_numbers(self, x):
    y = self.a(x)[kept(x)]
    wider = torch.cat([y, y.new_ones(y.shape[0], 2)], 1).reshape(y.shape[0] * 6)
    return wider.sum() / (y.shape[0] + 1) + (y * torch.arange(y.size(0))[:, None]).sum() + y.view(-1, 2, 2).transpose(1, 2).sum()


@case
def normalized_and_attended(self, x):
    y = F.layer_norm(self.a(x)[kept(x)], (4,))
    weights = F.softmax(y @ y.t(), -1)
    attended = F.scaled_dot_product_attention(y[None, None], y[None, None], y[None, None])
    target = torch.zeros(y.shape[0], dtype=torch.long)
    return (weights @ y).square().sum() / 10 + attended.sum() / 10 + F.cross_entropy(F.gelu(y), target, reduction="sum") / 10


@case
def dropped(self, x):
    y = F.dropout(self.a(x)[kept(x)], 0.5)
    return F.dropout(self.b(y), 0.25).sum(0) + F.dropout(x, 0.5).mean()


@case
def written_in_place(self, x):
    y = self.a(x)[kept(x)] * 2
    y += 1
    y[:, 0] = 0
    return y.mul_(3).sum() + (y * y).sum()


@case
def without_gradient(self, x):
    with torch.no_grad():
        rows = kept(x).nonzero().squeeze(-1)
    y = self.a(x)[rows]
    return (y.detach() * y).sum() + self.b(x).sum()


@case
def returned_twice(self, x):
    y = self.a(x)[kept(x)]
    return torch.cat([y.t().reshape(-1), y.flatten()])


@case
def experts(self, x):
    """A mixture of experts, each of which sees the rows that are sent to it."""
    weights, chosen = self.a(x).softmax(-1).topk(2)
    result = torch.zeros_like(x)
    sent = F.one_hot(chosen, 4).permute(2, 1, 0)
    for expert in range(4):
        place, row = torch.where(sent[expert])
        result.index_add_(0, row, self.b(x[None, row].reshape(-1, 4)) * (expert + weights[row, place, None]))
    return result


@case
def known_to_be_wide(self, x):
    """It asks for sizes that have the same answer for all data."""
    y = self.a(x)[kept(x)]
    return self.b(y).sum() if y.dim() == 2 and y.shape[-1] == 4 else y.sum()


@case
def grouped(self, x):
    """Rows sorted by what they are sent to, as grouped products want them."""
    to = (self.a(x)[:, :2] * 2).argmax(-1)
    order, counts = to.argsort(), torch.bincount(to, minlength=2)
    groups = torch.tensor_split(self.a(x)[order], counts.cumsum(0)[:-1])
    return torch.cat([self.b(group) * (i + 1) for i, group in enumerate(groups)])[order.argsort()]


@case
def checkpointed(self, x):
    return sum(
        checkpoint(lambda y: self.b(y[kept(x)]).relu(), self.a(x), use_reentrant=reentrant).sum() for reentrant in (True, False)
    )


class Doubled(Function):
    """Writes in place."""

    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


class AllButFirst(Function):
    """Returns a view, as it says."""

    inplace_map = {0: 0}

    @staticmethod
    def forward(ctx, x):
        return x[1:]

    @staticmethod
    def backward(ctx, gradient):
        return F.pad(gradient, (0, 0, 1, 0))


class OfTheSecond(Function):
    """Its first gradient is absent, and the second for an odd number of rows."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.rows = y.shape[0] if y.dim() else 0
        return x * 2 + y

    @staticmethod
    def backward(ctx, gradient):
        return None, None if ctx.rows % 2 else gradient


@case
def written_by_a_function(self, x):
    y = self.a(x)[kept(x)]
    return (Doubled.apply(y) * 3).sum() + y.sum()


@case
def viewed_by_a_function(self, x):
    y = torch.cat([self.a(x)[kept(x)], x[:1]])
    return self.b(AllButFirst.apply(y)).sum() + (y * y).sum()


@case
def without_some_gradients(self, x):
    y, z = self.a(x)[kept(x)].tanh(), self.b(x)[kept(x)].exp()
    return OfTheSecond.apply(y, z).sum() + (OfTheSecond.apply(z, y.relu()) * y).sum()


@case
def without_the_gradient_of_a_part(self, x):
    first, rest = self.a(x)[kept(x)].split([2, 2], 1)  # whose gradient is their concatenation
    return OfTheSecond.apply(first.exp(), x.sum()).sum() + rest.sin().sum()


class Rows(Function):
    """Returns as many rows as data says, and a number."""

    @staticmethod
    def forward(ctx, x, positive):
        ctx.save_for_backward(positive)
        return x[positive], "rows"

    @staticmethod
    def backward(ctx, gradient, _):
        (positive,) = ctx.saved_tensors
        result = torch.zeros(len(positive), gradient.shape[1])
        result[positive] = 2 * gradient
        return result, None


def after_functions(self, x):
    y, word = Rows.apply(self.a(x), kept(x))
    z, _ = Rows.apply(self.b(y), kept(y))
    return F.dropout(z, 0.5).sum() + y.square().sum() + len(word)


def counts_rows(self, x):
    """Nothing but an int comes out of __len__."""
    y = self.a(x)[kept(x)]
    return torch.cat([y, torch.ones(y.__len__(), 1)], 1).sum()


def branches(self, x):
    y = self.a(x)[kept(x)]
    if y.shape[0] > 3:
        return y.sum() * 2
    return self.b(y).sum()


class Still(Function):
    """Multiplies by the sum of a weight that gets no gradient from it."""

    @staticmethod
    def forward(ctx, x, weight):
        return x * weight.sum()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 3, None


@case
def a_weight_without_one_of_its_gradients(self, x):
    h = self.a(x)
    return torch.cat([Still.apply(h, self.a.weight), h[kept(x)]])


@case
def a_table_without_one_of_its_gradients(self, x):
    rows = F.embedding(kept(x).nonzero()[:, 0] % 4, self.a.weight)
    return torch.cat([Still.apply(self.b(x), self.a.weight), rows])


@case
def a_weight_without_any_gradient(self, x):
    h = Still.apply(self.b(x), self.a.weight)
    return torch.cat([h, Still.apply(h[kept(x)], self.a.weight)])
