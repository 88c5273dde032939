"""Measures how far a result is from eager's, as a whole and for the elements of each magnitude, and tells how far is near."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from rekindle import _native

# Of the whole, and of elements beside others of their magnitude: what two ways to compute the same usually differ by.
_NEAR = {
    torch.float64: (1e-14, 2e-12),
    torch.float32: (5e-6, 1e-3),
    torch.bfloat16: (2e-2, 0.25),
    torch.float16: (2e-3, 0.1),
}
# Differences of elements that numbers near the smallest ones cause: these are 0 to some kernels, and may be multiplied then.
_UNDERFLOW = {torch.float64: 1e-290, torch.float32: 1e-31, torch.bfloat16: 1e-31, torch.float16: 2e-7}
_NATIVE = (*_NEAR, torch.complex64, torch.complex128)
# Of elements that are 0 by chance, where numbers near 0 are: their share, and their difference beside what numbers usually are.
_ROUNDED_TO_ZERO, _MOST_ROUNDED = 64, 1e-3  # rounding errors; at most
_NEXT_OCTAVES = (0.25, 0.5, 1.0, 2.0, 4.0)  # where they begin, beside the one in the middle
_MANY = 256  # elements of an octave: of fewer, _FEW says how much farther one may be
_FEW = 3.0  # how much farther than a sample, relatively, one of a few elements may be; that of n is as 1/sqrt(n) of it


@dataclass
class Distance:
    """Measures how far a tensor is from another. An octave that starts at 0 holds the zeros."""

    norm: float  # 2-norm of the difference
    scale: float  # 2-norm of the other
    is_like: bool  # whether they have the same elements that are not finite
    octaves: list[tuple[float, int, float]]  # of the other's magnitudes, smallest first: (lower end, count, largest difference)
    dtype: torch.dtype  # of the other's numbers
    zeros_lost: int = 0  # elements that are 0 in the other only

    @classmethod
    def between(cls, ours: torch.Tensor, theirs: torch.Tensor) -> Distance:
        """Measures two tensors of one shape and inexact dtype."""
        if theirs.dtype not in _NATIVE:
            ours, theirs = ours.float(), theirs.float()
        ours, theirs = ours.detach(), theirs.detach()
        found = _native.difference(ours, theirs)
        dtype = theirs.real.dtype if theirs.is_complex() else theirs.dtype
        return cls(*found, dtype, _zeros_lost(ours, theirs) if _differ_at_zeros(found[3]) else 0)

    @property
    def count(self) -> int:
        """Counts the elements that are finite."""
        return sum(count for _, count, _ in self.octaves)

    @property
    def relative(self) -> float:
        """Returns the norm, relative to the scale."""
        return self.norm and (self.norm / self.scale if self.scale else math.inf)

    @property
    def worst(self) -> float:
        """Returns the largest difference of an element, relative to its size: see _sized."""
        seen = ((largest, size) for _, _, largest, size in self._sized() if largest > self._least)
        return max((largest / size if size else math.inf for largest, size in seen), default=0.0)

    @property
    def _least(self) -> float:
        return _UNDERFLOW.get(self.dtype, 0.0)

    @property
    def is_near(self) -> bool:
        """Tells whether it is so near that rounding needs no proof."""
        whole, element = near(self.dtype)
        return self.relative <= whole and self.worst <= element

    def is_within(self, samples: Sequence[Distance], times: float, floors: tuple[float, float]) -> bool:
        """Tells whether it is as far as some of the samples, as a whole and at every magnitude.

        samples: distances from the same tensor
        times: how many times as far as the samples it may be; more for the largest of few elements
        floors: relative differences, of the whole and of an element, that need no sample
        """
        whole, element = floors
        norm = max((sample.norm for sample in samples), default=0.0)
        if self.norm > max(times * _slack(self.count) * norm, whole * self.scale):
            return False
        sampled: dict[float, float] = {}
        for sample in samples:
            for above, _, largest in sample.octaves:
                sampled[above] = max(sampled.get(above, 0.0), largest)
        return all(
            largest <= max(times * _slack(count) * _around(above, count, sampled), element * size, self._least)
            for above, count, largest, size in self._sized()
        )

    def _sized(self) -> Iterator[tuple[float, int, float, float]]:
        """Yields the octaves with what rounding has to be measured by.

        That is the magnitude or, for elements that are as rare as they are small, more. Of numbers that spread evenly around
        zero, n times smaller ones than most are n times rarer: these are small by chance, and rounding is that of the others.
        Zeros, as of the rows of a table that a call does not read, say nothing of how numbers spread.
        """
        smaller, total = 0, sum(count for above, count, _ in self.octaves if above)
        for above, count, largest in self.octaves:
            smaller += count if above else 0
            yield above, count, largest, 2 * above * total / smaller if above else self._size_of_zeros(total)

    def _size_of_zeros(self, others: int) -> float:
        """Returns what rounding of zeros has to be measured by: 0, if more differ than rounding makes differ."""
        rounding, element = min(_ROUNDED_TO_ZERO * torch.finfo(self.dtype).eps, _MOST_ROUNDED), near(self.dtype)[1]
        if others == 0 or element == 0 or self.zeros_lost > rounding * others:
            return 0.0
        return rounding / element * self.scale / math.sqrt(others)


def _differ_at_zeros(octaves: Sequence[tuple[float, int, float]]) -> bool:
    return bool(octaves) and octaves[0][0] == 0 and octaves[0][2] > 0


def _zeros_lost(ours: torch.Tensor, theirs: torch.Tensor) -> int:
    return int(((theirs == 0) & (ours != 0)).sum())


def near(dtype: torch.dtype) -> tuple[float, float]:
    """Returns the relative differences, of a whole and of an element, that two right ways to compute the same usually keep to."""
    return _NEAR.get(dtype, (0.0, 0.0))


def _around(above: float, count: int, sampled: dict[float, float]) -> float:
    """Returns the largest difference of an octave with `count` elements and, if these are many, of the two on either side.

    Rows of a matrix may round a thousand times as much as others. A few elements of theirs, small by chance, are then the largest
    differences of an octave which others fill; in one sample they may be in the next octave.
    """
    octaves = _NEXT_OCTAVES if count >= _MANY else (1.0,)
    return max(sampled.get(above * factor, 0.0) for factor in octaves)


def _slack(count: int) -> float:
    return 1 + _FEW / math.sqrt(max(count, 1))
