"""Gradients of addends, which are sums: where these cancel, rounding of what is summed is no error."""

from __future__ import annotations

import pytest
import torch
from rekindle.compare.contributions import Contributions
from rekindle.compare.distance import Distance

_ROWS, _HALF = 10_000, 64
_ROUNDING = torch.finfo(torch.float32).eps * _ROWS**0.5  # of the sum of that many numbers near 1


def _gradients() -> tuple[Contributions, torch.Tensor]:
    """Returns the gradient of a bias, of which one half is zero but for rounding and the other is the number of rows."""
    generator = torch.Generator().manual_seed(3)
    x, bias = torch.randn(_ROWS, 2 * _HALF, generator=generator), torch.zeros(2 * _HALF, requires_grad=True)
    factors = torch.ones(_ROWS, 2 * _HALF)
    factors[::2, :_HALF] = -1
    factors += 1e-4 * torch.rand(1, 2 * _HALF, generator=generator) / _ROWS**0.5
    result = x + bias
    noted = Contributions([bias])
    with noted.noted([result]):
        result.backward(factors)
    assert bias.grad is not None
    return noted, bias.grad


@pytest.mark.parametrize("cancelled", [0, 10])
@pytest.mark.parametrize("relative", [0, 4e-6])
def test_a_part_that_cancels_is_explained_beside_one_that_is_near(cancelled: int, relative: float) -> None:
    noted, theirs = _gradients()
    ours = theirs.clone()
    ours[:_HALF] += cancelled * _ROUNDING
    ours[_HALF:] *= 1 + relative
    assert noted.explain(0, ours, theirs)
    assert cancelled == 0 or not Distance.between(ours, theirs).is_near


@pytest.mark.parametrize(("place", "error"), [(3, 2_000 * _ROUNDING), (_HALF + 3, 2e-3 * _ROWS)])
def test_an_error_of_one_element_is_not_explained(place: int, error: float) -> None:
    noted, theirs = _gradients()
    ours = theirs.clone()
    ours[place] += error
    assert not noted.explain(0, ours, theirs)


def test_an_error_of_the_part_that_does_not_cancel_is_not_explained() -> None:
    noted, theirs = _gradients()
    ours = theirs.clone()
    ours[_HALF:] *= 1 + 1e-5
    assert not noted.explain(0, ours, theirs)
