"""Losses, normalizations, attention and dropout."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from op_cases import Case, flags, given, model, op, real, whole
from seeded import seeded
from torch import nn

SOME = given([0, -100, 2, 1], torch.int64)
ALL_IGNORED = given([-100, -100, -100, -100], torch.int64)


def _cross_entropy(name: str, target: Any, sizes: tuple[int, ...] = (4, 5), **options: Any) -> Case:
    return op(f"cross_entropy {name}", lambda x, t: F.cross_entropy(x, t, **options) * 2, real(*sizes), target)


LOSSES = [
    _cross_entropy("mean", whole(4)),
    _cross_entropy("sum", whole(4), reduction="sum"),
    _cross_entropy("none", whole(4), reduction="none"),
    _cross_entropy("ignoring", SOME),
    _cross_entropy("ignoring, sum", SOME, reduction="sum"),
    _cross_entropy("ignoring, none", SOME, reduction="none"),
    _cross_entropy("ignoring class 1", whole(4), ignore_index=1),
    _cross_entropy("ignoring all", ALL_IGNORED),
    _cross_entropy("ignoring all, sum", ALL_IGNORED, reduction="sum"),
    _cross_entropy("smoothed", whole(4), label_smoothing=0.1),
    _cross_entropy("smoothed, sum", whole(4), label_smoothing=0.1, reduction="sum"),
    _cross_entropy("smoothed, none", whole(4), label_smoothing=0.1, reduction="none"),
    _cross_entropy("smoothed, ignoring", SOME, label_smoothing=0.1),
    _cross_entropy("of sequences", whole(4, 3), (4, 5, 3)),
    _cross_entropy("of sequences, none", whole(4, 3), (4, 5, 3), reduction="none"),
    _cross_entropy("of sequences, smoothed", whole(4, 3), (4, 5, 3), label_smoothing=0.2, ignore_index=2),
    _cross_entropy("of images", whole(2, 3, 4), (2, 5, 3, 4)),
    _cross_entropy("of one", whole(), (5,)),
    _cross_entropy("of none, sum", whole(0), (0, 5), reduction="sum"),
    _cross_entropy("of one class", whole(4, high=1), (4, 1)),
    op("cross_entropy weighted", lambda x, t, w: F.cross_entropy(x, t, w), real(4, 5), whole(4), real(5, low=0.1, grad=False)),
    op(
        "cross_entropy weighted, sum",
        lambda x, t, w: F.cross_entropy(x, t, w, reduction="sum"),
        real(4, 5),
        SOME,
        real(5, low=0.1, grad=False),
    ),
    op(
        "cross_entropy weighted, smoothed",
        lambda x, t, w: F.cross_entropy(x, t, w, label_smoothing=0.1),
        real(4, 5),
        SOME,
        real(5, low=0.1, grad=False),
    ),
    op("cross_entropy of probabilities", lambda x, p: F.cross_entropy(x, p.softmax(-1)), real(4, 5), real(4, 5)),
    op(
        "cross_entropy shifted",
        lambda x, t: F.cross_entropy(x[:, :-1].reshape(-1, 5), t[:, 1:].reshape(-1)),
        real(2, 4, 5),
        whole(2, 4),
    ),
    op("cross_entropy of far scores", lambda x, t: F.cross_entropy(x * 1000, t), real(4, 5), whole(4)),
    op("cross_entropy, not contiguous", lambda x, t: F.cross_entropy(x.transpose(1, 2), t), real(4, 3, 5), whole(4, 3)),
    op("cross_entropy and its scores", lambda x, t: (F.cross_entropy(x * 2, t), x * 2), real(4, 5), whole(4)),
    op("nll_loss", lambda x, t: F.nll_loss(x.log_softmax(-1), t), real(4, 5), whole(4)),
    op("nll_loss ignoring", lambda x, t: F.nll_loss(x.log_softmax(-1), t), real(4, 5), SOME),
    op("nll_loss sum", lambda x, t: F.nll_loss(x.log_softmax(-1), t, reduction="sum"), real(4, 5), SOME),
    op("nll_loss none", lambda x, t: F.nll_loss(x.log_softmax(-1), t, reduction="none"), real(4, 5), SOME),
    op("mse_loss", F.mse_loss, real(4, 5), real(4, 5)),
    op("mse_loss sum", lambda x, y: F.mse_loss(x, y, reduction="sum"), real(4, 5), real(4, 5)),
    op("mse_loss none", lambda x, y: F.mse_loss(x, y, reduction="none"), real(4, 5), real(4, 5, grad=False)),
    op("l1_loss", F.l1_loss, real(4, 5), real(4, 5)),
    op("smooth_l1_loss", F.smooth_l1_loss, real(4, 5), real(4, 5)),
    op("smooth_l1_loss beta", lambda x, y: F.smooth_l1_loss(x, y, beta=0.3, reduction="sum"), real(4, 5), real(4, 5)),
    op("huber_loss", lambda x, y: F.huber_loss(x, y, delta=0.5), real(4, 5), real(4, 5)),
    op("bce_with_logits", F.binary_cross_entropy_with_logits, real(4, 5), real(4, 5, grad=False)),
    op(
        "bce_with_logits weights",
        lambda x, y, w: F.binary_cross_entropy_with_logits(x, y, pos_weight=w),
        real(4, 5),
        real(4, 5, grad=False),
        real(5, low=0.1, grad=False),
    ),
    op("bce", lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid()), real(4, 5), real(4, 5, grad=False)),
    op("kl_div", lambda x, y: F.kl_div(x.log_softmax(-1), y.softmax(-1), reduction="batchmean"), real(4, 5), real(4, 5)),
    op("hinge by hand", lambda x, y: (1 - x * y).clamp(min=0).mean(), real(4), real(4)),
]


class RootMeanSquareNorm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.weight * (x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class LowPrecisionNorm(RootMeanSquareNorm):
    """As language models do it: statistics in float32, back to the input's dtype."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        wide = x.to(torch.float32)
        return self.weight * (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)).to(x.dtype)


def _randomized(module: nn.Module) -> nn.Module:
    """The same module with parameters and statistics that are not all ones and zeros."""
    generator = seeded(3)
    for tensor in [*module.parameters(), *module.buffers()]:
        if tensor.is_floating_point():
            tensor.data.copy_(torch.rand(tensor.shape, generator=generator) + 0.5)
    return module


NORMS = [
    model("LayerNorm", lambda: _randomized(nn.LayerNorm(5)), real(4, 3, 5)),
    model("LayerNorm of two dimensions", lambda: _randomized(nn.LayerNorm((3, 5))), real(4, 3, 5)),
    model("LayerNorm of all", lambda: _randomized(nn.LayerNorm((3, 5))), real(3, 5)),
    model("LayerNorm without bias", lambda: _randomized(nn.LayerNorm(5, bias=False)), real(4, 5)),
    model("LayerNorm without affine", lambda: nn.LayerNorm(5, elementwise_affine=False), real(4, 5)),
    model("LayerNorm eps", lambda: _randomized(nn.LayerNorm(5, eps=0.1)), real(4, 5)),
    model("LayerNorm of width 1", lambda: _randomized(nn.LayerNorm(1)), real(4, 1)),
    model("LayerNorm far from zero", lambda: nn.Sequential(Shift(), _randomized(nn.LayerNorm(5))), real(4, 5)),
    model("LayerNorm of nothing", lambda: _randomized(nn.LayerNorm(5)), real(0, 5)),
    op("layer_norm of inputs", lambda x, w, b: F.layer_norm(x, (5,), w, b), real(4, 5), real(5), real(5)),
    op("layer_norm, frozen weight", lambda x, w: F.layer_norm(x, (5,), w), real(4, 5), real(5, grad=False)),
    op("layer_norm of strided", lambda x: F.layer_norm(x.t(), (4,)), real(4, 5)),
    model("RMS norm by hand", lambda: RootMeanSquareNorm(5), real(4, 3, 5)),
    # Only in float32: a float64 result of float32 arithmetic is not comparable to float64's last places.
    model("RMS norm in float32", lambda: LowPrecisionNorm(5), real(4, 3, 5), dtypes=(torch.float32,)),
    model("RMSNorm", lambda: _randomized(nn.RMSNorm(5)), real(4, 3, 5)),
    model("GroupNorm", lambda: _randomized(nn.GroupNorm(2, 4)), real(3, 4, 5)),
    model("GroupNorm of images", lambda: _randomized(nn.GroupNorm(2, 4)), real(3, 4, 2, 2)),
    model("GroupNorm without affine", lambda: nn.GroupNorm(2, 4, affine=False), real(3, 4, 5)),
    model("BatchNorm1d, eval", lambda: _randomized(nn.BatchNorm1d(5)), real(4, 5), train=False),
    model("BatchNorm1d of sequences, eval", lambda: _randomized(nn.BatchNorm1d(5)), real(4, 5, 3), train=False),
    model("BatchNorm2d, eval", lambda: _randomized(nn.BatchNorm2d(3)), real(2, 3, 4, 4), train=False),
    model("BatchNorm without affine, eval", lambda: nn.BatchNorm1d(5, affine=False), real(4, 5), train=False),
    model("BatchNorm1d, train", lambda: _randomized(nn.BatchNorm1d(5)), real(4, 5)),
    model("InstanceNorm1d", lambda: nn.InstanceNorm1d(5), real(4, 5, 3)),
]


class Shift(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 100


QUERY, KEY = real(2, 3, 4, 8), real(2, 3, 6, 8)


def _attention(
    name: str, *more: Any, key: Any = KEY, query: Any = QUERY, value: Any = None, random: bool = False, **options: Any
) -> Case:
    def attend(q: Any, k: Any, v: Any, mask: Any = None) -> Any:
        return F.scaled_dot_product_attention(q, k, v, mask, **options)

    return op(f"attention {name}", attend, query, key, value or key, *more, random=random)


ATTENTION = [
    _attention("plain"),
    _attention("causal", key=QUERY, is_causal=True),
    _attention("causal, other length", is_causal=True),
    _attention("bool mask", given([[True, False, True, True, True, True]] * 4, torch.bool)),
    _attention("bool mask, 4-D", flags(2, 1, 4, 6), key=KEY),
    _attention("nothing seen", given([[True] * 6, [False] * 6, [True] * 6, [True] * 6], torch.bool)),
    _attention(
        "nothing seen, dropout", given([[True] * 6, [False] * 6, [True] * 6, [True] * 6], torch.bool), random=True, dropout_p=0.4
    ),
    _attention(
        "nothing seen, other value width",
        given([[True] * 6, [False] * 6, [True] * 6, [True] * 6], torch.bool),
        value=real(2, 3, 6, 5),
    ),
    _attention("float mask", real(4, 6, grad=False)),
    _attention("float mask, 4-D", real(2, 3, 4, 6, grad=False)),
    _attention("learned mask", real(3, 4, 6)),
    _attention("scale", scale=0.3),
    _attention("dropout", random=True, dropout_p=0.4),
    _attention("dropout and causal", random=True, dropout_p=0.4, key=QUERY, is_causal=True),
    _attention("3-D", query=real(2, 4, 8), key=real(2, 6, 8)),
    _attention("2-D", query=real(4, 8), key=real(6, 8)),
    _attention("other value width", value=real(2, 3, 6, 5)),
    _attention("one query", query=real(2, 3, 1, 8)),
    _attention("broadcast heads", key=real(2, 1, 6, 8)),
    _attention("no batch", query=real(0, 3, 4, 8), key=real(0, 3, 6, 8)),
    op(
        "attention of split heads",
        lambda x: (
            F.scaled_dot_product_attention(*(part.view(2, 4, 2, 3).transpose(1, 2) for part in x.chunk(3, -1)), is_causal=True)
            .transpose(1, 2)
            .reshape(2, 4, 6)
        ),
        real(2, 4, 18),
    ),
    op("attention by hand", lambda q, k, v: (q @ k.mT / 8**0.5).softmax(-1) @ v, QUERY, KEY, KEY),
    op(
        "attention by hand, causal",
        lambda q, k: (q @ k.mT).masked_fill(torch.ones(4, 4).triu(1).bool(), float("-inf")).softmax(-1) @ k,
        QUERY,
        QUERY,
    ),
    op(
        "attention of three dimensions",
        lambda x: F.scaled_dot_product_attention(x, x.sin(), x, is_causal=True).transpose(0, -1) * 2,
        real(2, 4, 3),
    ),
    op(
        "attention of rows that are not dense",
        lambda q, k, v: F.scaled_dot_product_attention(q.mT.sin().mT, k.mT.sin().mT, torch.cat([v, v], -1)[..., ::2]).mT * q.mT,
        QUERY,
        KEY,
        KEY,
    ),
    op("attention shares its input", lambda x: F.scaled_dot_product_attention(x, x, x), QUERY),
    op(
        "attention grouped",
        lambda q, k: F.scaled_dot_product_attention(q, k, k, enable_gqa=True),
        real(2, 4, 4, 8),
        real(2, 2, 6, 8),
    ),
]

DROPOUT = [
    op("dropout", lambda x: F.dropout(x, 0.3) * 2, real(4, 5), random=True),
    op("dropout of zero", lambda x: F.dropout(x, 0.0) * 2, real(4, 5)),
    op("dropout of all", lambda x: F.dropout(x, 1.0) * 2, real(4, 5), random=True),
    op("dropout off", lambda x: F.dropout(x, 0.3, training=False) * 2, real(4, 5)),
    op("dropout of strided", lambda x: F.dropout(x.t(), 0.3), real(4, 5), random=True),
    op("dropout in place of strided", lambda x: F.dropout((x * 2).t(), 0.3, inplace=True) * 3, real(4, 5), random=True),
    op("alpha dropout of strided", lambda x: F.alpha_dropout((x > 0).to(x).t(), 0.3, True) * x.t(), real(4, 5), random=True),
    op("bernoulli of strided", lambda x: torch.bernoulli(x.detach().t().sigmoid()) * x.t(), real(4, 5), random=True),
    op("two dropouts", lambda x: F.dropout(x, 0.3) + F.dropout(x, 0.3), real(4, 5), random=True),
    op("dropout whose result is not used", lambda x: (F.dropout(x, 0.3), x * 2)[1], real(4, 5), random=True),
    op("dropout of no elements", lambda x: F.dropout(x, 0.3) * 2, real(0, 5), random=True),
    model("Dropout, train", lambda: nn.Dropout(0.5), real(4, 5), random=True),
    model("Dropout, eval", lambda: nn.Dropout(0.5), real(4, 5), train=False, expect="unsupported_output"),
    op("dropout1d", lambda x: F.dropout1d(x, 0.5), real(2, 4, 5), random=True),
    op("alpha_dropout", lambda x: F.alpha_dropout(x, 0.5, training=True), real(4, 5), random=True),
    op("noise", lambda x: x + torch.randn_like(x), real(4, 5), random=True),
    op("rand", lambda x: x * torch.rand(4, 5, dtype=x.dtype), real(4, 5), random=True),
    op("bernoulli", lambda x: x * torch.bernoulli(torch.full_like(x, 0.5)), real(4, 5), random=True),
]

CASES = [*LOSSES, *NORMS, *ATTENTION, *DROPOUT]
