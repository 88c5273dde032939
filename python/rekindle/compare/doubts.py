"""Measures one result beside eager's: it is near, wrong whatever rounding does, or in doubt.

An example, with theirs float32 [1., 2.]: `compared("output 0", 0, ours, theirs)` is [] for ours 1e-7 off, a Doubt for ours 1 off,
which eager's rounding does not explain; it raises Bypass for another dtype.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

import torch

from rekindle.compare.distance import Distance, near
from rekindle.reasons import Bypass, Reason

# Relative error in the 2-norm up to which eager with other rounding errors is proof enough of a difference: what is discrete may
# have changed in it, too.
_TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-3, torch.bfloat16: 5e-2, torch.float16: 2e-2}
_FLOOR = 1e-3  # of the largest gradient, or output, that such an error is relative to at least


@dataclass
class Doubt:
    """Holds a result that is farther from eager's than rounding usually makes it."""

    position: int  # among outputs, then gradients
    what: str  # names it, for a message
    ours: torch.Tensor
    theirs: torch.Tensor
    distance: Distance
    bound: float = 0.0  # a distance, in the 2-norm, that is no proof of a wrong graph by itself
    samples: list[Distance] = field(default_factory=list)  # distances of eager with other rounding errors from eager

    def failed(self) -> Bypass:
        """Returns the error that says so."""
        allowed = near(self.distance.dtype)[0] * self.distance.scale
        return failed(
            f"{self.what} is off by {self.distance.norm:.3g} in the 2-norm, more than {allowed:.3g}, or in small elements"
        )


def compared(what: str, position: int, ours: torch.Tensor, theirs: torch.Tensor) -> list[Doubt]:
    """Returns a doubt about a difference that may be a matter of rounding, and raises Bypass for one that is not."""
    distance = measured(what, ours, theirs)
    return [] if distance is None or distance.is_near else [Doubt(position, what, ours, theirs, distance)]


def measured(what: str, ours: torch.Tensor, theirs: torch.Tensor) -> Distance | None:
    """Returns how far a result is from eager's, None for equal integers; raises Bypass for what cannot be it."""
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        raise failed(f"{what} is {ours.dtype}{tuple(ours.shape)}, in eager {theirs.dtype}{tuple(theirs.shape)}")
    if not theirs.is_floating_point() and not theirs.is_complex():
        if not torch.equal(ours, theirs):
            raise failed(f"{what} differs")
        return None
    distance = Distance.between(ours, theirs)
    if not distance.is_like:
        raise failed(f"{what} is finite elsewhere than in eager, or infinite with another sign")
    return distance


def tolerance(dtypes: Iterable[torch.dtype]) -> float:
    """Returns the relative error that proves no graph wrong which computes in these dtypes, by itself."""
    return max((_TOLERANCE.get(dtype, 0.0) for dtype in dtypes), default=0.0)


def set_bounds(doubts: list[Doubt], largest: float, least: float) -> None:
    """Sets the bounds of doubts about some of eager's outputs, or gradients; the largest norm of all of these is `largest`."""
    scale = max([largest, *(doubt.distance.scale for doubt in doubts)])
    for doubt in doubts:
        doubt.bound = max(tolerance([doubt.distance.dtype]), least) * (doubt.distance.scale + _FLOOR * scale)


def failed(message: str) -> Bypass:
    """Returns the error of a graph that is not what eager computes."""
    return Bypass(Reason.VERIFICATION_FAILED, message)
