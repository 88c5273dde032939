"""Matrix products, ops that move elements, lookups and reductions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from op_cases import Case, flags, given, op, real, whole

PRODUCTS = [
    op(f"matmul {a} {b}", lambda x, y: x @ y, real(*a), real(*b))
    for a, b in [
        ((3,), (3,)),
        ((2, 3), (3,)),
        ((3,), (3, 4)),
        ((2, 3), (3, 4)),
        ((5, 2, 3), (3, 4)),
        ((2, 3), (5, 3, 4)),
        ((5, 2, 3), (5, 3, 4)),
        ((5, 2, 3), (1, 3, 4)),
        ((1, 2, 3), (5, 3, 4)),
        ((2, 1, 2, 3), (5, 3, 4)),
        ((2, 5, 2, 3), (2, 5, 3, 4)),
        ((5, 2, 3), (3,)),
        ((3,), (5, 3, 4)),
        ((2, 5, 2, 3), (3, 4)),
        ((0, 3), (3, 4)),
        ((2, 0), (0, 4)),
        ((5, 2, 0), (5, 0, 4)),
    ]
] + [
    op("mm transposed", lambda x, y: x.t() @ y.t(), real(3, 2), real(4, 3)),
    op("bmm", torch.bmm, real(5, 2, 3), real(5, 3, 4)),
    op("matmul by itself", lambda x: x @ x.mT, real(2, 3, 4)),
    op("addmm", lambda c, a, b: torch.addmm(c, a, b, beta=0.5, alpha=2), real(2, 4), real(2, 3), real(3, 4)),
    op("addmm row", lambda c, a, b: torch.addmm(c, a, b), real(4), real(2, 3), real(3, 4)),
    op("addmm third", lambda c, a, b: torch.addmm(c, a, b, beta=0.1, alpha=0.3), real(4), real(2, 3), real(3, 4)),
    op("baddbmm", lambda c, a, b: torch.baddbmm(c, a, b, beta=0.5, alpha=2), real(5, 2, 4), real(5, 2, 3), real(5, 3, 4)),
    op("mv dot outer", lambda a, x: (a.mv(x), x.dot(x), torch.outer(x, x)), real(2, 3), real(3)),
    op("einsum product", lambda a, b: torch.einsum("bij,bjk->bik", a, b), real(2, 3, 4), real(2, 4, 5)),
    op("einsum heads", lambda a, b: torch.einsum("bqhd,bkhd->bhqk", a, b), real(2, 3, 2, 4), real(2, 5, 2, 4)),
    op("einsum sum", lambda a: torch.einsum("ij->i", a), real(2, 3)),
    op("linear 1-D", F.linear, real(3), real(4, 3), real(4)),
    op("linear 1-D, no bias", F.linear, real(3), real(4, 3)),
    op("linear 2-D", F.linear, real(2, 3), real(4, 3), real(4)),
    op("linear 3-D", F.linear, real(5, 2, 3), real(4, 3), real(4)),
    op("linear 3-D, no bias", F.linear, real(5, 2, 3), real(4, 3)),
    op("linear 4-D", F.linear, real(2, 5, 2, 3), real(4, 3), real(4)),
    op("linear of nothing", F.linear, real(0, 3), real(4, 3), real(4)),
    op("linear of nothing, 3-D", F.linear, real(2, 0, 3), real(4, 3), real(4)),
    op("linear with vector weight", F.linear, real(2, 3), real(3)),
    op("bilinear by hand", lambda x, w, y: torch.einsum("bi,oij,bj->bo", x, w, y), real(2, 3), real(4, 3, 5), real(2, 5)),
]

MOVES = [
    op("view", lambda x: x.view(3, 2) * 2, real(2, 3)),
    op("view with -1", lambda x: x.view(-1, 2) * 2, real(2, 4)),
    op("view alone", lambda x: (x * 2).view(6), real(2, 3)),
    op("reshape after transpose", lambda x: x.t().reshape(-1) * 2, real(2, 3)),
    op("reshape to 0-dim", lambda x: x.reshape(()) * 2, real(1, 1)),
    op("reshape as 0-dim", lambda x: torch.special.bessel_j0(x.detach()).reshape_as(torch.tensor(0.0)) * x.sum(), real(1)),
    op("flatten", lambda x: x.flatten(1) * 2, real(2, 3, 4)),
    op("flatten middle", lambda x: x.flatten(1, 2) * 2, real(2, 3, 4, 5)),
    op("unflatten", lambda x: x.unflatten(-1, (2, 3)) * 2, real(2, 6)),
    op("transpose", lambda x: x.transpose(-1, 0) * 2, real(2, 3, 4)),
    op("permute", lambda x: x.permute(2, 0, 1) * 2, real(2, 3, 4)),
    op("permute of a result", lambda x: (x * 2).permute(2, 0, 1), real(2, 3, 4)),
    op("heads", lambda x: x.view(2, 3, 2, 4).transpose(1, 2).contiguous().view(2, -1) * 2, real(2, 3, 8)),
    op("squeeze", lambda x: x.squeeze() * 2, real(2, 1, 3, 1)),
    op("squeeze a dimension", lambda x: x.squeeze(1) * x.squeeze(0).sum(), real(2, 1, 3)),
    op("unsqueeze", lambda x: x.unsqueeze(0) + x.unsqueeze(-1), real(3)),
    op("indexing with None", lambda x: x[:, None] * x[None], real(3)),
    op("expand", lambda x: x.expand(4, 3) * 2, real(3)),
    op("expand with -1", lambda x: x.expand(-1, 4).sin(), real(3, 1)),
    op("expand as output", lambda x: (x * 2).expand(4, 3), real(3)),
    op("broadcast_to as output", lambda x: (x * 2).broadcast_to(4, 3), real(3)),
    op("meshgrid as output", lambda x, y: [*torch.meshgrid(x * 2, y.sin(), indexing="xy")], real(3), real(4)),
    op("transpose of no dimensions", lambda x: (x * 2).sum().transpose(-1, 0), real(3)),
    op("swapaxes of no dimensions", lambda x: (x * 2).sum().swapaxes(0, -1), real(3)),
    op("expand_as", lambda x, y: x.expand_as(y) * y, real(3), real(2, 3)),
    op("broadcast_to", lambda x: x.broadcast_to(2, 3).exp(), real(3)),
    op("cat", lambda x, y: torch.cat([x, y], 1), real(2, 3), real(2, 4)),
    op("cat of itself", lambda x: torch.cat([x, x * 2, x], -1), real(2, 3)),
    op("cat with nothing", lambda x, y: torch.cat([x, y]), real(2, 3), real(0, 3)),
    op("cat of dtypes", lambda x, i: torch.cat([x, i]), real(2), whole(3)),
    op("stack", lambda x, y: torch.stack([x, y], 1), real(2, 3), real(2, 3)),
    op("split", lambda x: [part * (i + 1) for i, part in enumerate(x.split(2, 1))], real(2, 5)),
    op("split sizes", lambda x: [part.sin() for part in x.split([1, 4], -1)], real(2, 5)),
    op("split, one part used", lambda x: x.split(2, 1)[1] * 2, real(2, 5)),
    op("chunk", lambda x: torch.cat([part.sin() for part in x.chunk(3)]), real(7, 2)),
    op("chunk into q, k, v", lambda x: (lambda q, k, v: q * k + v)(*x.chunk(3, -1)), real(2, 6)),
    op("unbind", lambda x: [part * (i + 1) for i, part in enumerate(x.unbind(1))], real(2, 3)),
    op("slice", lambda x: x[1:3] * 2, real(5, 2)),
    op("slice with steps", lambda x: x[1::2, ::3] * 2, real(5, 7)),
    op("slice from the end", lambda x: x[..., -3:-1] * 2, real(2, 5)),
    op("slice past the end", lambda x: x[2:100] * 2, real(5)),
    op("slice to nothing", lambda x: x[3:3] * 2, real(5)),
    op("slice in two dimensions", lambda x: x[1:, :-1] + x[:-1, 1:], real(3, 3)),
    op("slice alone", lambda x: (x * 2)[1:], real(3)),
    op("narrow", lambda x: x.narrow(1, 1, 2) * 2, real(2, 5)),
    op("select", lambda x: x[1] * x[-1], real(3, 2)),
    op("select middle", lambda x: x.select(1, -1) * 2, real(3, 2, 2)),
    op("last token", lambda x: x[:, -1, :] * 2, real(2, 3, 4)),
    op("tril", lambda x: x.tril(), real(3, 4)),
    op("tril below", lambda x: x.tril(-1), real(2, 3, 3)),
    op("triu", lambda x: x.triu(1), real(3, 4)),
    op("pad", lambda x: F.pad(x, (1, 2)), real(2, 3)),
    op("pad both with a number", lambda x: F.pad(x, (1, 0, 2, 1), value=0.1), real(2, 3)),
    op("pad negative", lambda x: F.pad(x, (-1, 1)) * 2, real(2, 3)),
    op("pad reflect", lambda x: F.pad(x, (1, 1), mode="reflect"), real(1, 2, 4)),
    op("repeat", lambda x: x.repeat(2, 3), real(2, 3)),
    op("repeat into more dimensions", lambda x: x.repeat(2, 1, 3), real(2, 3)),
    op("tile", lambda x: x.tile(2), real(2, 3)),
    op("repeat_interleave", lambda x: x.repeat_interleave(2, 1) * 2, real(2, 3)),
    op("roll", lambda x: x.roll(1, -1) * 2, real(2, 5)),
    op("roll back", lambda x: x.roll(-2, 0) * 2, real(5, 2)),
    op("flip", lambda x: x.flip(-1) * 2, real(2, 3)),
    op("flip two", lambda x: x.flip(0, 1) * 2, real(2, 3)),
    op("rot90 movedim", lambda x: x.movedim(0, -1) * 2, real(2, 3, 4)),
    op("fill_diagonal_", lambda x: (x * 2).fill_diagonal_(0.5) * x, real(3, 4)),
    op("fill_diagonal_ wrapped", lambda x: (x * 2).fill_diagonal_(0.5, wrap=True) * x, real(7, 3)),
    op("fill_diagonal_ of a cube", lambda x: (x * 2).fill_diagonal_(0.5) * x, real(3, 3, 3)),
    op("diagonal", lambda x: x.diagonal() * 2, real(3, 3)),
    op("clone contiguous", lambda x: x.t().contiguous().clone() * 2, real(2, 3)),
    op("rotate half", lambda x: torch.cat([-x[..., 2:], x[..., :2]], -1) * x, real(2, 4)),
    op("non-contiguous input", lambda x: x * 2 + x.sum(0), real(3, 2, view=lambda x: x.t())),
    op("non-contiguous view", lambda x: x.reshape(-1) * 2, real(3, 2, view=lambda x: x.t())),
    op("strided input", lambda x: x.exp(), real(6, 2, view=lambda x: x[::2])),
    op("non-contiguous product", lambda x, y: x @ y, real(3, 2, view=lambda x: x.t()), real(4, 3, view=lambda y: y.t())),
    op("non-contiguous linear", F.linear, real(3, 2, view=lambda x: x.t()), real(4, 3)),
    op("expanded input", lambda x: x * 2, real(1, 3, view=lambda x: x.expand(4, 3), grad=False)),
    op("channels last input", lambda x: x * 2, real(2, 3, 4, 5, view=lambda x: x.to(memory_format=torch.channels_last))),
    op("arange positions", lambda x: x + torch.arange(x.shape[1]), real(2, 3)),
    op(
        "ones zeros full",
        lambda x: x + torch.ones(3, dtype=x.dtype) + torch.zeros_like(x) + torch.full((3,), 0.1, dtype=x.dtype),
        real(2, 3),
    ),
    op("new_zeros", lambda x: torch.cat([x, x.new_zeros(1, 3)]), real(2, 3)),
    op("shape arithmetic", lambda x: x.view(x.size(0), -1) / x.shape[-1] ** 0.5, real(2, 3, 4)),
    op("assign to a slice", lambda x: _assigned(x), real(3, 2)),
    op("assign to an index", lambda x: _assigned_row(x), real(3, 2)),
]


def _assigned(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y[1:] = 0.5
    return y * x


def _assigned_row(x: torch.Tensor) -> torch.Tensor:
    y = x * 2
    y[0] = x[1]
    return y.sin()


def _written_to(name: str, index: Any, chosen: Callable[[torch.Tensor], torch.Tensor]) -> Case:
    """`y[index] = chosen(x)`, of fewer values than places."""

    def write(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        y[index] = chosen(x)
        return y * x

    return op(f"write to {name}", write, real(3, 4, 5))


PAIR = torch.tensor([0, 2])
WRITES = [
    _written_to("rows", PAIR, lambda x: x[0, 0]),
    _written_to("elements of two indices", (PAIR, torch.tensor([1, 1])), lambda x: x[1, 0]),
    _written_to("a matrix of indices", (PAIR[:, None], PAIR + 1), lambda x: x[0, :2]),
    _written_to("a slice and indices", (slice(1, 3), PAIR), lambda x: x[0, :2]),
    _written_to("a number and indices", (0, PAIR), lambda x: x[0, 0]),
    _written_to("indices and a slice", (slice(None), PAIR, slice(1, 3)), lambda x: x[:, :1, :2]),
    _written_to("the end", (..., PAIR), lambda x: x[..., :1]),
    _written_to("a mask at the end", (..., torch.tensor([True, False, True, False, True])), lambda x: x[0, 0, 0]),
]

LOOKUPS = [
    op("index by tensor", lambda x, i: x[i] * 2, real(5, 2), whole(3)),
    op("index by matrix", lambda x, i: x[i] * 2, real(5, 2), whole(3, 2)),
    op("index by repeated", lambda x, i: x[i] * 2, real(5, 2), given([1, 1, 4], torch.int64)),
    op("index by negative", lambda x, i: x[i] * 2, real(5, 2), given([-1, 0, -5], torch.int64)),
    op("index second dimension", lambda x, i: x[:, i] * 2, real(2, 5), whole(3)),
    op("index by two", lambda x, i, j: x[i, j] * 2, real(5, 5), whole(3), whole(3)),
    op("index by arange and tensor", lambda x, i: x[torch.arange(3), i] * 2, real(3, 5), whole(3)),
    op("index by list", lambda x: x[[0, 2]] * 2, real(5, 2)),
    op("index_select", lambda x, i: x.index_select(1, i) * 2, real(2, 5), whole(3)),
    op("gather", lambda x, i: x.gather(1, i) * 2, real(2, 5), whole(2, 3)),
    op("gather, smaller", lambda x, i: x.gather(0, i) * 2, real(5, 4), whole(2, 3)),
    op("take_along_dim", lambda x, i: x.take_along_dim(i, 1) * 2, real(2, 5), whole(2, 3)),
    op("scatter", lambda x, i, y: (x * 2).scatter(1, i, y), real(2, 5), given([[0, 2], [1, 4]], torch.int64), real(2, 2)),
    op("scatter number", lambda x, i: (x * 2).scatter(1, i, 0.5), real(2, 5), whole(2, 1)),
    op("scatter_add", lambda x, i, y: (x * 2).scatter_add(0, i, y), real(5, 3), whole(4, 3), real(4, 3)),
    op("scatter_add, smaller", lambda x, i, y: (x * 2).scatter_add(0, i, y), real(5, 3), whole(2, 3), real(2, 3)),
    op("index_add", lambda x, i, y: (x * 2).index_add(0, i, y), real(5, 3), whole(4), real(4, 3)),
    op("one_hot", lambda i, x: F.one_hot(i, 5).to(x.dtype) * x, whole(3), real(5)),
    op("index by bool", lambda x, b: x[b] * 2, real(4), given([True, False, True, True], torch.bool)),
    op("nonzero", lambda x: (x > 0).nonzero().sum() * x, real(4)),
    op("embedding", F.embedding, whole(2, 3), real(5, 4)),
    op("embedding int32", F.embedding, whole(2, 3, dtype=torch.int32), real(5, 4)),
    op("embedding padding_idx", lambda i, w: F.embedding(i, w, padding_idx=1), given([[0, 1], [1, 4]], torch.int64), real(5, 4)),
    op(
        "embedding padding_idx -1",
        lambda i, w: F.embedding(i, w, padding_idx=-1),
        given([[0, 4], [4, 3]], torch.int64),
        real(5, 4),
    ),
    op("embedding of one", F.embedding, whole(), real(5, 4)),
    op("embedding of none", F.embedding, whole(0), real(5, 4)),
    op("topk", lambda x: x.topk(2).values * 2, real(2, 5)),
    op("sort", lambda x: x.sort().values * 2, real(2, 5)),
]

REDUCTIONS = [
    op("sum", lambda x: x.sum(), real(2, 3)),
    op("sum of one dimension", lambda x: x.sum(1) * 2, real(2, 3, 4)),
    op("sum keepdim", lambda x: x * x.sum(-1, keepdim=True), real(2, 3)),
    op("sum of two dimensions", lambda x: x.sum((0, 2)) * 2, real(2, 3, 4)),
    op("sum of no dimension", lambda x: x.sum(()) * 2, real(2, 3)),
    op("sum to dtype", lambda x: x.sum(dtype=torch.float64) * 2, real(2, 3)),
    op("sum of nothing", lambda x: x.sum(0) * 2, real(0, 3)),
    op("sum of 0-dim", lambda x: x.sum() * 2, real()),
    op("mean", lambda x: x.mean() * 2, real(2, 3)),
    op("mean of a dimension", lambda x: x.mean(-1, keepdim=True) * x, real(2, 3)),
    op("mean of two dimensions", lambda x: x.mean((1, 2)) * 2, real(2, 3, 4)),
    op("mean of nothing", lambda x: x.mean(), real(0, 3)),
    op("prod", lambda x: x.prod(), real(4)),
    op("max", lambda x: x.max() * 2, real(2, 3)),
    op("max at ties", lambda x: x.max() * 2, given([1.0, 3.0, 3.0], grad=True)),
    op("max of a dimension", lambda x: x.max(1).values * 2, real(2, 3)),
    op("max of a dimension at ties", lambda x: x.max(1).values * 2, given([[1.0, 3.0, 3.0]], grad=True)),
    op("max with indices", lambda x: tuple(x.max(-1, keepdim=True)), real(2, 3)),
    op("min", lambda x: x.min() * 2, real(2, 3)),
    op("min of a dimension", lambda x: x.min(0).values * 2, real(2, 3)),
    op("amax amin", lambda x: x.amax((0, 1)) * x.amin(-1), real(2, 3)),
    op("amax at ties", lambda x: x.amax(-1) * 2, given([[1.0, 3.0, 3.0]], grad=True)),
    op("argmax", lambda x: (x.argmax(), x.argmax(-1), x.argmin(0, keepdim=True), x * 1), real(2, 3)),
    op("argmax at ties", lambda x: (x.argmax(), x.argmin(), x * 1), given([3.0, 1.0, 3.0, 1.0], grad=True)),
    op("cumsum", lambda x: x.cumsum(-1) * 2, real(2, 5)),
    op("cumsum of ints", lambda b, x: (b.cumsum(1), x * 1), flags(2, 5), real(1)),
    op("logsumexp", lambda x: x.logsumexp(-1) * 2, real(2, 3)),
    op("logsumexp keepdim, two", lambda x: x - x.logsumexp((0, 1), keepdim=True), real(2, 3)),
    op("logsumexp far", lambda x: (x * 1000).logsumexp(-1), real(2, 3)),
    op("var", lambda x: x.var() * 2, real(2, 5)),
    op("var of a dimension", lambda x: x.var(-1, keepdim=True) * x, real(2, 5)),
    op("var biased", lambda x: x.var(-1, unbiased=False) * 2, real(2, 5)),
    op("var correction", lambda x: x.var((0, 1), correction=2) * 2, real(2, 5)),
    op("var far from zero", lambda x: (x + 10).var(-1) * 2, real(2, 5)),
    op("std", lambda x: x.std(-1) * 2, real(2, 5)),
    op("var_mean", lambda x: torch.var_mean(x, -1), real(2, 5)),
    op("norm", lambda x: x.norm() * 2, real(2, 5)),
    op("norm of a dimension", lambda x: x.norm(dim=-1, keepdim=True) * x, real(2, 5)),
    op("norm at zero", lambda x: x.norm(), given([0.0, 0.0], grad=True)),
    op("norm 1", lambda x: x.norm(p=1, dim=-1), real(2, 5)),
    op("vector_norm", lambda x: torch.linalg.vector_norm(x, dim=-1), real(2, 5)),
    op("normalize", lambda x: F.normalize(x, dim=-1), real(2, 5)),
    op("cosine_similarity", lambda x, y: F.cosine_similarity(x, y, dim=-1), real(2, 5), real(2, 5)),
    op("softmax", lambda x: x.softmax(-1), real(2, 5)),
    op("softmax of a middle dimension", lambda x: x.softmax(1), real(2, 3, 4)),
    op("softmax to dtype", lambda x: x.softmax(-1, dtype=torch.float64), real(2, 5)),
    op("softmax of float32", lambda x: F.softmax(x, dim=-1, dtype=torch.float32).to(x.dtype) * x, real(2, 5)),
    op("softmax of 0-dim", lambda x: x.softmax(0) * x, real()),
    op("log_softmax", lambda x: x.log_softmax(-1), real(2, 5)),
    op("log_softmax first", lambda x: x.log_softmax(0), real(2, 5)),
    op("softmin", lambda x: F.softmin(x, dim=-1), real(2, 5)),
]

CASES = [*PRODUCTS, *MOVES, *WRITES, *LOOKUPS, *REDUCTIONS]
