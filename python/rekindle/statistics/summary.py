"""Computes the statistics of one tensor, in double precision whatever its dtype is.

An example: `Summary(torch.tensor([1.0, -2.0, float("nan")]), 1 << 20).statistics()` has min -2, max 1, mean -0.5, norm 2.236, one
NaN, and the histogram [[0, 0, 1], [1, 1, 0]]: one positive value in [1, 2), and one negative one in (-4, -2].

What is computed on a device stays there until `statistics` is asked for, so that the thread that trains waits for nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from rekindle import _native

# Powers of two that the histogram has; what is smaller or larger counts in the first or the last.
LOWEST, HIGHEST = -64, 63
_BINS = HIGHEST - LOWEST + 1
_SAMPLES = 128
_NUMBERS = 9  # of a bucket, before its histogram
_TINY = 2.0**-1000
_ON_CPU, _ON_DEVICE = 1 << 18, 1 << 22  # elements at a time: what caches hold; what is worth a kernel
_OF_KERNEL = (torch.float32, torch.bfloat16, torch.float16)
_CAN_OVERFLOW = (torch.float64, torch.complex128)


@dataclass(frozen=True)
class Statistics:
    """Holds the statistics of one tensor. All but the counts are of its finite elements; None where there are none.

    count: how many elements the tensor has; a complex one counts as two
    nans, infs: how many are NaN or infinite
    zeros: the share of elements that are zero; 0 of an empty tensor
    std: the deviation from the mean, of the population
    norm: the square root of the sum of squares; 0 without finite elements
    histogram: (power, negative, positive): how many elements x have 2**power <= |x| < 2**(power + 1)
    """

    count: int
    nans: int
    infs: int
    zeros: float
    min: float | None
    max: float | None
    mean: float | None
    std: float | None
    norm: float
    histogram: list[tuple[int, int, int]]


class Summary:
    """Holds what was computed of a tensor, on its device.

    tensor: of any dtype, size and layout; it may be changed or freed once this is made
    bucket_size: how many elements are taken at a time, which bounds the memory; None: what suits the device. On the CPU, float32,
        bfloat16 and float16 are read as they lie.
    with_samples: whether the first elements are kept
    """

    def __init__(self, tensor: torch.Tensor, bucket_size: int | None, with_samples: bool = False) -> None:
        with torch.no_grad():
            self.shape, self.dtype = tuple(tensor.shape), str(tensor.dtype).removeprefix("torch.")
            flat = _flat(tensor.detach())
            bucket_size = bucket_size or (_ON_CPU if flat.device.type == "cpu" else _ON_DEVICE)
            scale = _scale(flat) if tensor.dtype in _CAN_OVERFLOW else None
            self._found = _native.summary(flat.contiguous()) if _has_kernel(flat) else None
            parts = flat.split(bucket_size) if self._found is None and flat.numel() else ()
            self._buckets = [_bucket(part, scale) for part in parts]
            self._scale = scale
            self._samples = flat[:_SAMPLES].to(torch.float64, copy=True) if with_samples else None
            self._count = flat.numel()
            self._event = torch.cuda.current_stream(flat.device).record_event() if flat.is_cuda else None

    def _wait(self) -> None:
        if self._event is not None:
            self._event.synchronize()

    def samples(self) -> list[float]:
        """Returns the first elements, 128 at most; none unless they were kept."""
        self._wait()
        return [] if self._samples is None else self._samples.tolist()

    def statistics(self) -> Statistics:
        """Waits for the device, and returns the statistics."""
        if self._found is not None:
            return _of_kernel(self._count, self._found)
        self._wait()
        return _joined(
            self._count, [bucket.tolist() for bucket in self._buckets], 1.0 if self._scale is None else float(self._scale)
        )


def _has_kernel(flat: torch.Tensor) -> bool:
    """Tells whether kernels/summary.h takes the tensor, which it reads once."""
    return flat.device.type == "cpu" and flat.dtype in _OF_KERNEL


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    """Returns all elements in one dimension; those of a distributed tensor that this process has."""
    local = getattr(tensor, "to_local", None)
    tensor = tensor if local is None else local()
    if tensor.is_quantized:
        tensor = tensor.dequantize()
    if tensor.layout is not torch.strided:
        tensor = tensor.to_dense()
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    return tensor.reshape(-1)


def _scale(flat: torch.Tensor) -> torch.Tensor | None:
    """Returns a number on the device by which the elements are divided, so that their squares do not overflow."""
    if not flat.numel():
        return None
    largest = torch.where(torch.isfinite(flat), flat, 0).abs().max()
    return torch.where((largest > 1e100) | ((largest > 0) & (largest < 1e-100)), largest, 1.0).to(torch.float64)


def _bucket(part: torch.Tensor, scale: torch.Tensor | None) -> torch.Tensor:
    """Returns count, NaNs, infinities, zeros, min, max, mean, squared deviations, squares; then the histogram."""
    x = part.to(torch.float64)
    low, high = torch.aminmax(x)
    if _answers_at_once(x) and math.isfinite(low) and math.isfinite(high):
        y = x if scale is None else x / scale
        mean = y.mean()
        off = y - mean
        numbers = [float(x.numel()), 0.0, 0.0, float(x.numel() - torch.count_nonzero(x)), low, high]
    else:
        is_finite = torch.isfinite(x)
        y = torch.where(is_finite, x, 0.0)
        y = y if scale is None else y / scale
        count = is_finite.sum()
        mean = y.sum() / count.clamp(min=1)
        off = torch.where(is_finite, y - mean, 0.0)
        low, high = torch.where(is_finite, x, torch.inf).min(), torch.where(is_finite, x, -torch.inf).max()
        numbers = [count, torch.isnan(x).sum(), torch.isinf(x).sum(), (x == 0).sum(), low, high]
    made = [torch.as_tensor(n, dtype=torch.float64, device=x.device) for n in (*numbers, mean, off.dot(off), y.dot(y))]
    return torch.cat([torch.stack(made), _histogram(x if part.dtype is not torch.float64 else _normal(x))])


def _answers_at_once(x: torch.Tensor) -> bool:
    """Tells whether a question about values, or an operator that asks one, waits for nothing."""
    return x.device.type == "cpu"


def _normal(x: torch.Tensor) -> torch.Tensor:
    """Returns numbers with the same powers of two, of which those that double precision has no full precision for are larger."""
    return torch.where((x.abs() < _TINY) & (x != 0), torch.copysign(torch.full_like(x, _TINY), x), x)


def _histogram(x: torch.Tensor) -> torch.Tensor:
    """Returns how many elements have each power of two: of the negative ones, then of the positive ones.

    A number of double precision has its sign and its power, more than 0 and below 2047, in the upper 12 bits.
    """
    powers = (x.view(torch.int64) >> 52).bitwise_and_(0xFFF)
    if _answers_at_once(x):
        counts = torch.bincount(powers, minlength=1 << 12)
    else:
        counts = torch.zeros(1 << 12, dtype=torch.int64, device=x.device).index_add_(0, powers, torch.ones_like(powers))
    positive, negative = counts.to(torch.float64).view(2, -1)[:, 1:2047]
    first, last = LOWEST + 1022, HIGHEST + 1022
    rows = [(row[: first + 1].sum(), row[first + 1 : last], row[last:].sum()) for row in (negative, positive)]
    return torch.cat([part.view(-1) for row in rows for part in row])


def _of_kernel(count: int, found: tuple[Any, ...]) -> Statistics:
    """Returns what _native.summary found in a tensor of `count` elements."""
    finite, nans, infs, zeros, low, high, mean, deviations, squares, histogram = found
    some = finite > 0
    return Statistics(
        count=count,
        nans=nans,
        infs=infs,
        zeros=zeros / count if count else 0.0,
        min=low if some else None,
        max=high if some else None,
        mean=mean if some else None,
        std=math.sqrt(deviations / finite) if some else None,
        norm=math.sqrt(squares),
        histogram=histogram,
    )


def _joined(count: int, buckets: list[list[float]], scale: float) -> Statistics:
    finite, mean, deviations = 0.0, 0.0, 0.0
    for number, _, _, _, _, _, other, squares, _, *_ in buckets:
        if number:
            total = finite + number
            deviations += squares + (other - mean) ** 2 * finite * number / total
            mean += (other - mean) * number / total
            finite = total
    sums = [math.fsum(column) for column in zip(*buckets, strict=True)] if buckets else [0.0] * (_NUMBERS + 2 * _BINS)
    counts = [int(number) for number in sums[_NUMBERS:]]
    some = finite > 0
    return Statistics(
        count=count,
        nans=int(sums[1]),
        infs=int(sums[2]),
        zeros=sums[3] / count if count else 0.0,
        min=min(bucket[4] for bucket in buckets) if some else None,
        max=max(bucket[5] for bucket in buckets) if some else None,
        mean=mean * scale if some else None,
        std=math.sqrt(deviations / finite) * scale if some else None,
        norm=math.sqrt(sums[8]) * scale,
        histogram=[
            (LOWEST + i, negative, positive)
            for i, (negative, positive) in enumerate(zip(counts[:_BINS], counts[_BINS:], strict=True))
            if negative or positive
        ],
    )


def record_of(statistics: Statistics) -> dict[str, Any]:
    """Returns the statistics as a record of a file has them; a number that JSON cannot hold, the norm's overflow, is None."""
    fields = {name: getattr(statistics, name) for name in Statistics.__dataclass_fields__}
    return {name: None if isinstance(value, float) and not math.isfinite(value) else value for name, value in fields.items()}
