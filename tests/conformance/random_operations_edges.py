"""Operations of random programs that nothing keeps from the edges of a dtype: logarithms of what is near 0, quotients by it,
norms and losses as they come, masks that may hide all of a row, integers that wrap.

`scripts/soundness values` draws from them: its later calls have numbers at the edges. `scripts/conformance programs` does not.
"""

# One operation after the other reads best.
# ruff: noqa: E501

from __future__ import annotations

import math
import random
from typing import Any

import torch
from random_operations import Operation, _broadcasts, _constant, _dim, _flag, _number, _one, _pair, _pick, _seed, _unary, _with
from random_operations_more import _image, _same
from torch.nn import functional as F

Tensor = torch.Tensor


def _of_whole(function: Any, *draws: Any) -> Operation:
    """Returns an operation of integers of any dtype."""
    suits = _one(lambda x: not x.is_floating_point() and not x.is_complex() and x.dtype is not torch.bool, *draws)
    return Operation(suits, lambda tensors, arguments: function(tensors[0], *arguments))


def _beside(function: Any, suits: Any, *draws: Any, shape: Any = _broadcasts) -> Operation:
    """Returns an operation of a floating-point value and one of another kind: a mask, or indices."""

    def draw(rng: random.Random, values: list[Tensor]) -> tuple[list[int], tuple[Any, ...]] | None:
        j = _pick(rng, values, suits)
        if j is None:
            return None
        i = _pick(rng, values, lambda x: x.is_floating_point() and x.dim() > 0 and x.numel() > 0 and shape(x, values[j]))
        return None if i is None else ([i, j], tuple(each(rng, values[i]) for each in draws))

    return Operation(draw, lambda tensors, arguments: function(*tensors, *arguments))


def _fits(x: Tensor, mask: Tensor) -> bool:
    return mask.dim() <= x.dim() and all(m in (1, n) for n, m in zip(x.shape[::-1], mask.shape[::-1], strict=False))


def _masked(function: Any, *draws: Any) -> Operation:
    return _beside(function, lambda x: x.dtype is torch.bool and x.numel() > 0, *draws, shape=_fits)


def _indexed(function: Any, *draws: Any) -> Operation:
    return _beside(function, lambda x: x.dtype is torch.int64 and x.numel() > 0, *draws, shape=lambda x, y: x.shape[0] > 0)


def _numbered(function: Any) -> Operation:
    """Returns an operation of a floating-point value and an integer one of any dtype."""
    return _beside(function, lambda x: not x.is_floating_point() and not x.is_complex() and x.dtype is not torch.bool)


def _column(x: Tensor, w: Tensor) -> bool:
    return x.dim() > 0 and x.numel() > 0 and w.shape == x.shape[-1:] and w.dtype is x.dtype


def _attended(x: Tensor, mask: Tensor) -> Tensor:
    """Attention of rows to each other, where a row of the mask says which it may see."""
    q = _image(x)
    seen = mask.broadcast_to(x.shape).reshape(q.shape)[..., :1].mT.expand(-1, q.shape[1], -1)
    return F.scaled_dot_product_attention(q, q.cos(), q, attn_mask=seen)


def _attended_by_hand(x: Tensor, mask: Tensor) -> Tensor:
    q = _image(x)
    scores = (q @ q.mT / math.sqrt(q.shape[-1])).masked_fill(
        ~mask.broadcast_to(x.shape).reshape(q.shape)[..., 0].unsqueeze(1), -math.inf
    )
    return scores.softmax(-1) @ q


def _soft_by_hand(x: Tensor) -> Tensor:
    e = (x - x.amax(-1, True)).exp()
    return e / e.sum(-1, True)


def _labels(x: Tensor) -> Tensor:
    return torch.arange(x.shape[0]) % x.shape[1]


def _rows_of(x: Tensor) -> Tensor:
    return x.reshape(-1, x.shape[-1])


_UNARY: dict[str, Any] = {
    "raw exp": torch.exp, "raw log": torch.log, "raw sqrt": torch.sqrt, "raw rsqrt": lambda x: x.clamp(min=1e-4).rsqrt(), "raw reciprocal": torch.reciprocal, "one over": lambda x: 1 / x, "log2": torch.log2, "log10": torch.log10, "raw log1p": torch.log1p, "raw expm1": torch.expm1,
    "exp2": torch.exp2, "tan": torch.tan, "asinh": torch.asinh, "acosh": torch.acosh, "atanh": torch.atanh, "asin": torch.asin, "acos": torch.acos, "sinh": torch.sinh, "raw cosh": torch.cosh, "erfc": torch.erfc, "erfinv": torch.erfinv, "lgamma": torch.lgamma, "digamma": torch.digamma,
    "cube": lambda x: x**3, "inverse square": lambda x: x**-2, "root by pow": lambda x: x**0.5, "power of two": lambda x: 2.0**x, "odd root": lambda x: x.abs() ** (1 / 3), "square by pow": lambda x: x.pow(2), "itself to itself": lambda x: x**x, "square by product": lambda x: x * x, "deg2rad": torch.deg2rad,
    "softplus of beta": lambda x: F.softplus(x, 2.0, 1.0), "logit": lambda x: torch.logit(x, 1e-3), "raw logit": torch.logit, "celu": F.celu, "relu6": F.relu6, "hardsigmoid": F.hardsigmoid, "hardshrink": F.hardshrink, "softshrink": F.softshrink, "tanhshrink": F.tanhshrink, "elu of alpha": lambda x: F.elu(x, 0.5),
    "nan to number": lambda x: torch.nan_to_num(x, 0.5, 2.0, -2.0), "nan to zero": lambda x: torch.nan_to_num(x, 0.0), "clamp below": lambda x: x.clamp(min=0.1), "clamp above": lambda x: x.clamp(max=0.1), "clamp to infinity": lambda x: x.clamp(-math.inf, 1.0), "clamp_min of tensor": lambda x: torch.clamp(x, min=torch.tensor(0.2)),
    "is nan": torch.isnan, "is infinite": torch.isinf, "is finite": torch.isfinite, "signbit": torch.signbit, "not itself": lambda x: x != x, "is itself": lambda x: x == x, "is zero": lambda x: x == 0, "at least zero": lambda x: x >= 0, "where finite": lambda x: torch.where(x.isfinite(), x, 0.0), "zero where nan": lambda x: x.masked_fill(x.isnan(), 0.0),
    "floor": lambda x: x - x.floor(), "ceil": lambda x: x.ceil() * 0.5, "trunc": lambda x: x.trunc() + x, "fmod": lambda x: x.fmod(0.7), "remainder": lambda x: x % 0.7, "remainder of negative": lambda x: x.remainder(-0.7), "floor quotient": lambda x: x // 0.3, "log of square": lambda x: (x * x).log(), "abs by root": lambda x: (x * x).sqrt(),
    "safe log": lambda x: torch.where(x > 0, x.log(), 0.0), "safe root": lambda x: x.clamp(min=0).sqrt(), "safe quotient": lambda x: torch.where(x.abs() > 0.1, 1 / x, x), "silu by hand": lambda x: x * torch.sigmoid(x), "log of sigmoid": lambda x: torch.log(torch.sigmoid(x)), "log of exp": lambda x: torch.log(torch.exp(x)), "root of square and one": lambda x: torch.sqrt(x * x + 1),
    "tanh by hand": lambda x: (x.exp() - (-x).exp()) / (x.exp() + (-x).exp()), "softplus by hand": lambda x: torch.log(1 + torch.exp(x)), "bell": lambda x: torch.exp(-x * x), "gelu by hand": lambda x: 0.5 * x * (1 + torch.erf(x / math.sqrt(2))), "divided by itself": lambda x: x / x, "less itself": lambda x: x - x, "zero times": lambda x: x * 0, "plus zero": lambda x: 1 / (x + 0.0), "times one": lambda x: 1 / (x * 1.0),
    "negated twice": lambda x: 1 / x.neg().neg(), "there and back": lambda x: (x * 4) / 4, "far and back": lambda x: (x * 1e3) / 1e3, "halved twice": lambda x: x / 2 / 2, "product of three": lambda x: x * x.detach() * 0.25, "whole numbers": lambda x: x.nan_to_num(0, 9, -9).clamp(-9, 9).long(), "half and back": lambda x: x.half().to(x.dtype), "bfloat16 and back": lambda x: x.bfloat16().to(x.dtype),
    "single and back": lambda x: x.float().to(x.dtype), "sum less itself": lambda x: x.sum() - x, "quotient by sum": lambda x: x / x.sum(), "quotient by largest": lambda x: x / x.abs().amax(), "less largest": lambda x: x - x.amax(), "sign by quotient": lambda x: x / x.abs(), "sgn": torch.sgn, "positive": torch.positive, "heaviside": lambda x: torch.heaviside(x, torch.tensor(0.5, dtype=x.dtype)) + x,
    "largest of all": torch.max, "smallest of all": torch.min, "mean of all": torch.mean, "sum of all": torch.sum, "product of all": torch.prod, "norm of all": torch.norm, "std of all": lambda x: torch.std(x), "median of all": torch.median, "any infinite": lambda x: x.isinf().any(), "all finite": lambda x: x.isfinite().all(), "count nonzero": torch.count_nonzero,
}  # fmt: skip
_ALONG: dict[str, Any] = {
    "nansum": torch.nansum, "nanmean": torch.nanmean, "raw prod": torch.prod, "raw cumprod": torch.cumprod, "two norm": lambda x, dim: x.norm(dim=dim), "largest norm": lambda x, dim: x.norm(math.inf, dim), "count norm": lambda x, dim: torch.linalg.vector_norm(x, 0, dim), "three norm": lambda x, dim: x.norm(3, dim), "normalize": lambda x, dim: F.normalize(x, dim=dim), "normalize by one": lambda x, dim: F.normalize(x, 1.0, dim),
    "norm by hand": lambda x, dim: x.square().sum(dim).sqrt(), "by its norm": lambda x, dim: x / x.norm(dim=dim, keepdim=True), "raw std": lambda x, dim: x.std(dim), "raw var": lambda x, dim: x.var(dim), "standardized": lambda x, dim: (x - x.mean(dim, True)) / (x.std(dim, keepdim=True) + 1e-6), "softmax by hand": lambda x, dim: x.exp() / x.exp().sum(dim, True), "softmin": lambda x, dim: F.softmin(x, dim),
    "logsumexp by hand": lambda x, dim: x.exp().sum(dim).log(), "logsumexp kept": lambda x, dim: x - x.logsumexp(dim, True), "entropy": lambda x, dim: -(x.softmax(dim) * x.log_softmax(dim)).sum(dim), "entropy by hand": lambda x, dim: -(x.softmax(dim) * x.softmax(dim).log()).sum(dim), "temperature": lambda x, dim: (x / 0.1).softmax(dim), "amin kept": lambda x, dim: x - x.amin(dim, True),
    "nanmedian": lambda x, dim: x.nanmedian(dim).values, "min": lambda x, dim: x.min(dim).values, "mean square": lambda x, dim: x.square().mean(dim), "root mean square": lambda x, dim: x * torch.rsqrt(x.square().mean(dim, True) + 1e-6), "largest place": lambda x, dim: x.max(dim).indices, "all along": lambda x, dim: (x < 1).all(dim), "cumulated logs": lambda x, dim: torch.logcumsumexp(x * 2, dim), "spread": lambda x, dim: x.amax(dim) - x.amin(dim),
}  # fmt: skip
_NORMS: dict[str, Operation] = {
    "softmax of the last by hand": _with(_soft_by_hand, 1), "plain layer_norm": _with(lambda x: F.layer_norm(x, x.shape[-1:]), 1), "plain rms_norm": _with(lambda x: F.rms_norm(x, x.shape[-1:]), 1), "plain batch_norm": _with(lambda x: F.batch_norm(_image(x), None, None, training=True), 2), "plain group_norm": _with(lambda x: F.group_norm(_image(x), 1), 2), "plain instance_norm": _with(lambda x: F.instance_norm(_image(x)), 2),
    "layer_norm by value": _pair(lambda x, w: F.layer_norm(x, x.shape[-1:], w), _column), "rms_norm by value": _pair(lambda x, w: F.rms_norm(x, x.shape[-1:], w), _column), "layer_norm by hand": _pair(lambda x, w: w * (x - x.mean(-1, True)) / (x.var(-1, True, unbiased=False) + 1e-5).sqrt(), _column), "prelu": _pair(lambda x, w: F.prelu(_rows_of(x), w), _column), "linear by value": _pair(lambda x, w: F.linear(x, w[None], w[:1]), _column),
    "affine": _pair(lambda x, w: torch.addcmul(w, x, w), _column), "addmm": _with(lambda x: torch.addmm(_rows_of(x), _rows_of(x), torch.ones(x.shape[-1], x.shape[-1], dtype=x.dtype), beta=0.5, alpha=2.0), 1), "linear and relu": _with(lambda x, seed: F.relu(F.linear(x, _constant(x, seed, 4, x.shape[-1]), _constant(x, seed + 1, 4))), 1, _seed), "mlp": _with(lambda x, seed: F.linear(F.gelu(F.linear(x, _constant(x, seed, 6, x.shape[-1]))), _constant(x, seed + 1, x.shape[-1], 6)), 1, _seed),
    "max_pool2d": _with(lambda x: F.max_pool2d(_image(x), 2, 1, 1), 2), "avg_pool2d": _with(lambda x: F.avg_pool2d(_image(x), 2, 1, 1), 2), "lp_pool": _with(lambda x: F.lp_pool1d(_image(x), 2.0, 2, 1), 1), "adaptive max": _with(lambda x: F.adaptive_max_pool1d(_image(x), 1), 1), "linear interpolation": _with(lambda x: F.interpolate(_image(x), scale_factor=2, mode="linear"), 1), "bilinear": _with(lambda x: F.interpolate(_image(x)[None], scale_factor=2, mode="bilinear"), 1), "replicated pad": _with(lambda x: F.pad(_image(x), (1, 1), mode="replicate"), 1),
}  # fmt: skip
_PAIRS: dict[str, Operation] = {
    "raw div": _pair(torch.div), "raw pow": _pair(lambda x, y: x.pow(y)), "pow of abs": _pair(lambda x, y: (x.abs() + 0.1).pow(y)), "floor of quotient": _pair(lambda x, y: torch.div(x, y, rounding_mode="floor")), "trunc of quotient": _pair(lambda x, y: torch.div(x, y, rounding_mode="trunc")), "fmod of two": _pair(torch.fmod), "remainder of two": _pair(torch.remainder), "xlogy": _pair(torch.xlogy), "hypot": _pair(torch.hypot),
    "logaddexp": _pair(torch.logaddexp), "logaddexp2": _pair(torch.logaddexp2), "fmax": _pair(torch.fmax), "fmin": _pair(torch.fmin), "copysign": _pair(torch.copysign), "raw atan2": _pair(torch.atan2), "ldexp": _pair(lambda x, y: torch.ldexp(x, y.detach().nan_to_num(0, 3, -3).clamp(-3, 3).round())), "addcdiv": _pair(lambda x, y: torch.addcdiv(x, x, y.to(x.dtype), value=0.5)), "addcmul by two": _pair(lambda x, y: torch.addcmul(x, y.to(x.dtype), x, value=2.0)),
    "greater": _pair(torch.gt), "equal": _pair(torch.eq), "not equal": _pair(torch.ne), "at most": _pair(torch.le), "isclose": _pair(lambda x, y: torch.isclose(x, y.to(x.dtype), equal_nan=True)), "where greater": _pair(lambda x, y: torch.where(x > y, x, y)), "clamp by another": _pair(lambda x, y: torch.clamp(x, max=y.to(x.dtype))), "difference of squares": _pair(lambda x, y: x * x - y * y), "product with negated": _pair(lambda x, y: x * -y), "quotient of product": _pair(lambda x, y: x * y / y),
    "sum with alpha": _pair(lambda x, y: torch.add(x, y, alpha=3)), "difference with alpha": _pair(lambda x, y: torch.sub(x, y, alpha=0.5)), "lerp of weight": _pair(lambda x, y: torch.lerp(x, y.to(x.dtype), torch.full_like(x, 0.7))), "dot": _pair(lambda x, y: (x * y).sum(-1), _same), "mm of both": _pair(lambda x, y: _rows_of(x) @ _rows_of(y).mT, _same), "cdist": _pair(lambda x, y: torch.cdist(_image(x), _image(y)), _same), "pairwise distance": _pair(F.pairwise_distance, _same), "plain cosine": _pair(F.cosine_similarity, _same),
    "kron": _pair(lambda x, y: torch.kron(x, y.to(x.dtype)), lambda a, b: a.numel() * b.numel() < 256 and b.is_floating_point()), "gated": _pair(lambda x, y: x * torch.sigmoid(y)), "swiglu": _pair(lambda x, y: F.silu(x) * y), "attention of two": _pair(lambda x, y: F.scaled_dot_product_attention(_image(x), _image(y), _image(x)), _same), "baddbmm of two": _pair(lambda x, y: torch.baddbmm(_image(x), _image(x) @ _image(y).mT, _image(y), beta=0.5, alpha=0.25), _same),
}  # fmt: skip
_LOSSES: dict[str, Operation] = {
    "l1": _pair(F.l1_loss, _same), "huber": _pair(lambda x, y: F.huber_loss(x, y, delta=0.5), _same), "summed mse": _pair(lambda x, y: F.mse_loss(x, y, reduction="sum"), _same), "mse of each": _pair(lambda x, y: F.mse_loss(x, y, reduction="none"), _same), "smooth l1 of beta": _pair(lambda x, y: F.smooth_l1_loss(x, y, beta=0.3, reduction="none"), _same), "bce of probabilities": _pair(lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.detach().sigmoid()), _same), "poisson": _pair(lambda x, y: F.poisson_nll_loss(x, y.detach().abs()), _same),
    "bce of logits": _pair(lambda x, y: F.binary_cross_entropy_with_logits(x, (y > 0).to(x.dtype), reduction="none"), _same), "bce of positive weight": _pair(lambda x, y: F.binary_cross_entropy_with_logits(x, (y > 0).to(x.dtype), pos_weight=torch.full((x.shape[-1],), 2.0, dtype=x.dtype)), _same), "kl of logs": _pair(lambda x, y: F.kl_div(x.log_softmax(-1), y.log_softmax(-1), reduction="batchmean", log_target=True), _same), "raw kl": _pair(lambda x, y: F.kl_div(x, y.detach().abs(), reduction="sum"), _same),
    "gaussian": _pair(lambda x, y: F.gaussian_nll_loss(x, y.detach(), x.square() + 0.1), _same), "hinge": _pair(lambda x, y: F.hinge_embedding_loss(x, y.detach().sign() * 2 - 1), _same), "soft margin": _pair(lambda x, y: F.soft_margin_loss(x, (y > 0).to(x.dtype) * 2 - 1), _same), "triplet": _pair(lambda x, y: F.triplet_margin_loss(_rows_of(x), _rows_of(y), _rows_of(y).flip(-1)), _same), "cosine embedding": _pair(lambda x, y: F.cosine_embedding_loss(_rows_of(x), _rows_of(y), torch.ones(_rows_of(x).shape[0])), _same),
    "cross entropy": _with(lambda x: F.cross_entropy(_rows_of(x), _labels(_rows_of(x))), 1), "smooth cross entropy": _with(lambda x: F.cross_entropy(_rows_of(x), _labels(_rows_of(x)), label_smoothing=0.1), 1), "cross entropy of each": _with(lambda x: F.cross_entropy(_rows_of(x), _labels(_rows_of(x)), reduction="none"), 1), "cross entropy, some ignored": _with(lambda x: F.cross_entropy(_rows_of(x), _labels(_rows_of(x)), ignore_index=0, reduction="sum"), 1), "nll": _with(lambda x: F.nll_loss(_rows_of(x).log_softmax(-1), _labels(_rows_of(x))), 1),
    "weighted cross entropy": _with(lambda x, seed: F.cross_entropy(_rows_of(x), _labels(_rows_of(x)), _constant(x, seed, x.shape[-1]).abs() + 0.1), 1, _seed), "cross entropy with probabilities": _pair(lambda x, y: F.cross_entropy(_rows_of(x), _rows_of(y).softmax(-1)), _same), "multi margin": _with(lambda x: F.multi_margin_loss(_rows_of(x), _labels(_rows_of(x))), 1), "cross entropy after a layer": _with(lambda x, seed: F.cross_entropy(F.linear(_rows_of(x), _constant(x, seed, 5, x.shape[-1])), torch.arange(_rows_of(x).shape[0]) % 5), 1, _seed),
}  # fmt: skip
_MASKED: dict[str, Operation] = {
    "masked softmax": _masked(lambda x, m: x.masked_fill(m, -math.inf).softmax(-1)), "masked log_softmax": _masked(lambda x, m: x.masked_fill(m, -math.inf).log_softmax(-1)), "softmax masked by least": _masked(lambda x, m: x.masked_fill(m, torch.finfo(x.dtype).min).softmax(-1)), "masked mean": _masked(lambda x, m: (x * m).sum(-1) / m.broadcast_to(x.shape).sum(-1)), "masked sum": _masked(lambda x, m: (x * m).sum(-1)), "masked logsumexp": _masked(lambda x, m: x.masked_fill(m, -math.inf).logsumexp(-1)),
    "masked largest": _masked(lambda x, m: x.masked_fill(m, -math.inf).amax(-1)), "masked smallest": _masked(lambda x, m: x.masked_fill(m, math.inf).min(-1).values), "masked norm": _masked(lambda x, m: x.masked_fill(m, 0).norm(dim=-1)), "where masked": _masked(lambda x, m: torch.where(m, x, 1 / x)), "where masked log": _masked(lambda x, m: torch.where(m, x.abs().log(), x)), "plus a mask": _masked(lambda x, m: x + m), "less where masked": _masked(lambda x, m: x - m.to(x.dtype) * 1e4), "mask times": _masked(lambda x, m: m * x),
    "masked attention": _masked(_attended), "masked attention by hand": _masked(_attended_by_hand), "masked mean by clamp": _masked(lambda x, m: (x * m).sum(-1) / m.broadcast_to(x.shape).sum(-1).clamp(min=1)), "chosen by mask": _masked(lambda x, m: x[m.broadcast_to(x.shape)].sum()), "masked and compared": _masked(lambda x, m: m & (x > 0)), "masked max": _masked(lambda x, m: x.masked_fill(m, -math.inf).max(-1).values), "masked argmax": _masked(lambda x, m: x.masked_fill(m, -math.inf).argmax(-1)), "masked cumsum": _masked(lambda x, m: x.masked_fill(m, 0).cumsum(-1)),
}  # fmt: skip
_PLACES: dict[str, Operation] = {
    "rows by index": _indexed(lambda x, i: x[i % x.shape[0]]), "rows by index_select": _indexed(lambda x, i: x.index_select(0, i.flatten() % x.shape[0])), "embedding of value": _indexed(lambda x, i: F.embedding(i % _rows_of(x).shape[0], _rows_of(x))), "embedding with padding": _indexed(lambda x, i: F.embedding(i % _rows_of(x).shape[0], _rows_of(x), padding_idx=0)),
    "taken": _indexed(lambda x, i: torch.take(x, i % x.numel())), "added at": _indexed(lambda x, i: x.index_add(0, i.flatten() % x.shape[0], x.index_select(0, i.flatten() % x.shape[0]))), "put at": _indexed(lambda x, i, n: x.index_put((i.flatten() % x.shape[0],), torch.full((), n, dtype=x.dtype)), _number), "accumulated at": _indexed(lambda x, i: x.index_put((i.flatten() % x.shape[0],), x[i.flatten() % x.shape[0]], accumulate=True)), "bag": _indexed(lambda x, i: F.embedding_bag(i.flatten()[None] % _rows_of(x).shape[0], _rows_of(x), mode="mean")),
    "scaled by index": _indexed(lambda x, i: x * i.to(x.dtype).sum()), "rows by clamped index": _indexed(lambda x, i: x[i.clamp(0, x.shape[0] - 1)]),
}  # fmt: skip
_OF_DTYPES: dict[str, Operation] = {
    "half with alpha": _pair(lambda x, y: torch.add(x, y.half(), alpha=3)), "less half with alpha": _pair(lambda x, y: torch.sub(x, y.bfloat16(), alpha=0.3)), "half beneath alpha": _pair(lambda x, y: torch.rsub(x, y.half(), alpha=2)), "times half": _pair(lambda x, y: x * y.half()), "quotient by half": _pair(lambda x, y: x / y.half()), "half or itself": _pair(lambda x, y: torch.where(x > 0, x, y.half())), "largest with half": _pair(lambda x, y: torch.maximum(x, y.half())), "power by half": _pair(lambda x, y: (x.abs() + 1).pow(y.half())),
    "greater than half": _pair(lambda x, y: x > y.half()), "added in place to": _pair(lambda x, y: (x * 1.5).add_(y.half(), alpha=3), lambda a, b: b.is_floating_point() and _fits(a, b)), "atan2 of half": _pair(lambda x, y: torch.atan2(x, y.half())), "double added": _pair(lambda x, y: x + y.double()), "half and double": _pair(lambda x, y: x.half() * y.double()), "number of double": _unary(lambda x: x.half() * torch.tensor(1e5, dtype=torch.float64)), "large number of half": _unary(lambda x: x.half() * 1e5), "number beyond half": _unary(lambda x: x.half() + 7e4 - 7e4), "number in half": _unary(lambda x: x.half() / 3),
    "half sum in single": _with(lambda x, dim: x.half().sum(dim, dtype=torch.float32), 1, _dim), "half mean in single": _with(lambda x, dim: x.half().mean(dim, dtype=torch.float32), 1, _dim), "half prod in single": _with(lambda x, dim: x.half().prod(dim, dtype=torch.float32), 1, _dim), "half cumsum in single": _with(lambda x, dim: x.half().cumsum(dim, dtype=torch.float32), 1, _dim), "half norm in single": _with(lambda x, dim: torch.linalg.vector_norm(x.half(), 2, dim, dtype=torch.float32), 1, _dim), "half log_softmax in single": _with(lambda x, dim: x.half().log_softmax(dim, dtype=torch.float32), 1, _dim), "half mean": _with(lambda x, dim: x.half().mean(dim), 1, _dim),
    "half layer_norm": _with(lambda x: F.layer_norm(x.half(), x.shape[-1:]), 1), "half attention": _with(lambda x: F.scaled_dot_product_attention(_image(x).half(), _image(x).half(), _image(x).half()), 2), "half cross entropy": _with(lambda x: F.cross_entropy(_rows_of(x).half(), _labels(_rows_of(x))), 1), "half mse": _pair(lambda x, y: F.mse_loss(x.half(), y.half()), _same), "mse with half": _pair(lambda x, y: F.mse_loss(x, y.half()), _same), "half variance": _with(lambda x, dim: x.half().var(dim), 1, _dim), "sum in half": _with(lambda x, dim: x.sum(dim, dtype=torch.float16), 1, _dim), "cumsum in half": _with(lambda x, dim: x.cumsum(dim, dtype=torch.bfloat16), 1, _dim),
    "whole with alpha": _numbered(lambda x, i: torch.add(x, i, alpha=3)), "less whole with alpha": _numbered(lambda x, i: torch.sub(x, i, alpha=2)), "whole beneath alpha": _numbered(lambda x, i: torch.rsub(x, i, alpha=2)), "times whole": _numbered(lambda x, i: x * i), "quotient by whole": _numbered(lambda x, i: x / i), "whole over": _numbered(lambda x, i: i / x), "power by whole": _numbered(lambda x, i: x.pow(i)), "whole or itself": _numbered(lambda x, i: torch.where(x > 0, x, i)), "greater than whole": _numbered(lambda x, i: x > i), "equal to whole": _numbered(lambda x, i: i == x), "largest with whole": _numbered(lambda x, i: torch.maximum(x, i)),
    "remainder by whole": _numbered(lambda x, i: torch.remainder(x, i)), "whole wider sum": _of_whole(lambda x: torch.add(x.long(), x, alpha=4)), "whole by number": _of_whole(lambda x, n: x + n, _number), "whole with short": _of_whole(lambda x: x * torch.tensor([2], dtype=torch.int16)), "whole power": _of_whole(lambda x: 2**x), "whole scaled down": _of_whole(lambda x: (x * 0.5).round()), "whole mean in half": _of_whole(lambda x: x.half().mean()), "whole sum in single": _of_whole(lambda x: x.sum(dtype=torch.float32)), "whole norm": _of_whole(lambda x: x.float().norm()), "whole cumsum in int32": _of_whole(lambda x: x.flatten().cumsum(0, dtype=torch.int32)),
    "mask with alpha": _masked(lambda x, m: torch.add(x, m, alpha=2)), "mask over": _masked(lambda x, m: m / x), "mask summed": _masked(lambda x, m: x * m.sum(-1, keepdim=True)), "mask meant": _masked(lambda x, m: x + m.float().mean()), "less a mask": _masked(lambda x, m: x - m.half()), "mask cumulated": _masked(lambda x, m: x + m.cumsum(-1)),
}  # fmt: skip
_WHOLE: dict[str, Operation] = {
    "wrapping product": _of_whole(lambda x: x * x), "wrapping sum": _of_whole(lambda x: x + x), "wrapping difference": _of_whole(lambda x: 0 - x), "whole negative": _of_whole(lambda x: -x), "whole abs": _of_whole(torch.abs), "whole shift": _of_whole(lambda x: (x << 1) | (x >> 1)), "whole not": _of_whole(torch.bitwise_not), "whole times number": _of_whole(lambda x, n: x * n, _number), "whole quotient": _of_whole(lambda x: x / 3), "whole floor quotient": _of_whole(lambda x: x // 3), "whole remainder": _of_whole(lambda x: x % 3),
    "whole remainder of negative": _of_whole(lambda x: x % -3), "whole fmod": _of_whole(lambda x: torch.fmod(x, 3)), "trunc of whole quotient": _of_whole(lambda x: torch.div(x, -2, rounding_mode="trunc")), "whole square": _of_whole(lambda x: x**2), "whole sum": _of_whole(torch.sum), "whole sum in own dtype": _of_whole(lambda x: x.sum(dtype=x.dtype)), "whole cumsum": _of_whole(lambda x: x.cumsum(0) if x.dim() else x), "whole product": _of_whole(torch.prod), "whole mean": _of_whole(lambda x: x.float().mean()), "whole largest": _of_whole(torch.max),
    "whole clamp": _of_whole(lambda x: x.clamp(-2, 100)), "whole clamp by float": _of_whole(lambda x: x.clamp(0.5)), "whole compared": _of_whole(lambda x: x > 2), "whole compared to float": _of_whole(lambda x: x >= 0.5), "whole is itself plus": _of_whole(lambda x: x + 1 > x), "whole to single": _of_whole(lambda x: x.float()), "whole to half": _of_whole(lambda x: x.half()), "whole to double": _of_whole(lambda x: x.double()), "whole to bfloat16": _of_whole(lambda x: x.bfloat16()), "whole to int8": _of_whole(lambda x: x.to(torch.int8)), "whole to int32": _of_whole(lambda x: x.to(torch.int32)),
    "whole to uint8": _of_whole(lambda x: x.to(torch.uint8)), "whole to int64": _of_whole(lambda x: x.long()), "whole to bool": _of_whole(lambda x: x.bool()), "whole sign": _of_whole(torch.sign), "whole where": _of_whole(lambda x: torch.where(x > 0, x, 1.5)), "whole masked": _of_whole(lambda x: x.masked_fill(x < 0, 7)), "whole sorted": _of_whole(lambda x: x.flatten().sort().values), "whole argmax": _of_whole(lambda x: x.argmax()), "whole maximum": _of_whole(lambda x: torch.maximum(x, x // 2)), "whole root": _of_whole(lambda x: x.sqrt()), "whole exp": _of_whole(lambda x: x.exp()),
    "whole added": _of_whole(lambda x: torch.add(x, x, alpha=3)), "whole sigmoid": _of_whole(lambda x: x.sigmoid()), "whole reciprocal": _of_whole(lambda x: 1 / x), "whole flip": _of_whole(lambda x: x.flip(0) - x if x.dim() else x),
}  # fmt: skip

EDGES: dict[str, Operation] = {
    **{name: _unary(function) for name, function in _UNARY.items()},
    **{name: _with(function, 1, _dim) for name, function in _ALONG.items()},
    **{**_NORMS, **_PAIRS, **_LOSSES, **_MASKED, **_PLACES, **_OF_DTYPES, **_WHOLE},
    "sum of some, kept": _with(lambda x, dim, keep: x.sum(dim, keepdim=keep) * 0.5, 1, _dim, _flag),
    "argsort and gathered": _with(lambda x, dim: x.gather(dim, x.argsort(dim, stable=True)), 1, _dim),
}
