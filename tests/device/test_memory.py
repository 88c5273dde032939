"""A device without memory: whatever allocation fails, a call is eager's, leaves nothing behind, and says nothing of the next."""

from __future__ import annotations

import gc

import pytest
import rekindle
import torch
from device_twins import Made, Twins
from rekindle.process.random_states import random_states, set_random_states
from torch.nn import functional as F

own = torch.ops.test_device


def _forward(self: Made, x: torch.Tensor) -> torch.Tensor:
    return F.dropout(torch.tanh(self.a(x)) * 2 + self.a(x), 0.25)


@pytest.mark.parametrize("nth", [1, 2, 3, 5, 8, 13, 21, 34, 55, 89, 144])
def test_an_export_without_memory_is_tried_again(nth: int) -> None:
    twins = Twins(Made(_forward))
    x = torch.randn(3, 4, device="test:0")
    with torch.no_grad():
        own.fail_allocation(nth)
        try:
            twins.wrapped(x)
        except torch.OutOfMemoryError:  # eager's own
            pass
        finally:
            own.fail_allocation(0)
    assert set(twins.reasons()) <= {"out_of_memory"}
    for _ in range(2):
        twins.call(x)
    assert twins.status.source in ("export", "memory") and twins.status.verify_failures == 0


@pytest.mark.parametrize("nth", range(1, 8))
def test_a_run_without_memory_is_tried_again(nth: int) -> None:
    """With the memory of idle arenas: the one that it gave back itself, at least."""
    twins = Twins(Made(_forward))
    x = torch.randn(3, 4, device="test:0")
    twins.call(x)
    for _ in range(10):
        before = random_states()
        expected = twins.eager(x)
        set_random_states(before)
        own.fail_allocation(nth)
        try:
            found = twins.wrapped(x)
        finally:
            own.fail_allocation(0)
        torch.testing.assert_close(found, expected)
        del found  # which keeps its arena
    twins.call(x)
    assert twins.status.eager_calls == 0, twins.status.bypass


def test_nothing_but_the_model_is_alive_after_steps() -> None:
    def steps() -> None:
        twins = Twins(Made(_forward))
        for rows in (3, 5, 3):
            twins.call(torch.randn(rows, 4, device="test:0"))

    steps()
    rekindle.lookup.store.flush()
    gc.collect()
    rekindle._native.release_idle_arenas()
    before = own.live_bytes()
    steps()
    rekindle.lookup.store.flush()
    gc.collect()
    rekindle._native.release_idle_arenas()
    assert own.live_bytes() == before


def test_plans_of_many_sizes_share_one_arena() -> None:
    twins = Twins(Made(_forward), dynamic="static")
    for rows in range(1, 12):
        twins.call(0.1 * torch.randn(rows * 64, 4, device="test:0"))
    assert twins.status.eager_calls == 0, twins.status.bypass
    assert rekindle._native.release_idle_arenas() <= 2 * twins.status.arena_bytes
