"""How far a result may be from eager's without a proof that rounding explains it."""

from __future__ import annotations

import torch
from rekindle.compare.distance import Distance, near


def _numbers(*sizes: int) -> torch.Tensor:
    return torch.randn(sizes, generator=torch.Generator().manual_seed(3))


def _table(rows: int) -> torch.Tensor:
    """Returns the gradient of a table of which a call reads the first rows only."""
    return torch.cat([_numbers(rows, 64), torch.zeros(10_000 - rows, 64)])


def test_rows_that_nothing_reads_do_not_make_others_doubtful() -> None:
    theirs = _table(100)
    ours = theirs + 1e-6 * (theirs != 0) * _numbers(10_000, 64).flip(1)
    assert Distance.between(ours, theirs).is_near


def test_a_row_that_nothing_reads_stays_zero() -> None:
    theirs = _table(100)
    ours = theirs.clone()
    ours[500, :8] = 1e-7
    assert not Distance.between(ours, theirs).is_near


def test_an_element_that_is_zero_by_chance_may_be_off_by_rounding() -> None:
    theirs = _numbers(1000, 1000)
    theirs[3, 4] = 0
    theirs[:, 0] = 0  # and these are not by chance, and are zeros in both
    ours = theirs.clone()
    ours[3, 4] = 3e-7
    assert Distance.between(ours, theirs).is_near
    ours[3, 4] = 1e-4
    assert not Distance.between(ours, theirs).is_near


def test_zeros_of_a_few_numbers_are_zeros() -> None:
    theirs = _numbers(8, 8)
    theirs[0, 0] = 0
    ours = theirs.clone()
    ours[0, 0] = 1e-7
    assert not Distance.between(ours, theirs).is_near
    assert not Distance.between(torch.full((4,), 1e-7), torch.zeros(4)).is_near
    assert Distance.between(torch.zeros(4), torch.zeros(4)).is_near


def test_small_rows_beside_unread_ones_are_measured_by_themselves() -> None:
    theirs = _table(100)
    theirs[:10] *= 1e-6
    ours = theirs.clone()
    ours[:10] *= 1.1
    assert not Distance.between(ours, theirs).is_near


def _rounded(numbers: torch.Tensor, seed: int) -> Distance:
    """Rounds a matrix whose first row is a sum of numbers a thousand times as large as the others' are."""
    noise = 1e-9 * torch.randn(numbers.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    noise[0] *= 1000
    return Distance.between((numbers.double() + noise).float(), numbers)


def test_small_elements_of_a_row_that_rounds_more_are_within_its_rounding() -> None:
    """Few as they are, they lie in one octave here and in the next there, beside many elements of other rows."""
    numbers = 3e-4 * _numbers(197, 768)
    numbers[0] *= 300
    allowed = near(torch.float32)
    for seed in range(40):
        assert _rounded(numbers, seed).is_within([_rounded(numbers, 100 + seed)], 4.0, allowed)


def test_small_elements_of_rows_that_round_less_are_not() -> None:
    numbers = 3e-4 * _numbers(197, 768)
    numbers[0] *= 300
    ours = numbers.clone()
    ours[7, :] += 1e-5 * _numbers(768)  # ten times as much as the first row rounds
    assert not Distance.between(ours, numbers).is_within([_rounded(numbers, 1)], 4.0, (1e-9, 1e-9))
