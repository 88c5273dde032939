"""Plain tensors in shared memory, while a helper makes the graph of a forward that writes or reads them."""

from __future__ import annotations

import time

import pytest
import torch
from background_support import no_helper_is_left, wrap  # noqa: F401  (a fixture for each test)
from module_support import rows
from rekindle.lookup.background import Background
from torch import nn

SHARED = torch.zeros(2).share_memory_()


class Writes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        SHARED.add_(1)
        return self.linear(x)


class WritesItsOwn(Writes):
    def __init__(self) -> None:
        super().__init__()
        self.seen = [SHARED]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen[0].add_(1)
        return self.linear(x)


class Reads(Writes):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * (1 + SHARED.sum())


@pytest.mark.parametrize(("kind", "counted"), [(Writes, 1), (WritesItsOwn, 1), (Reads, 0)])
def test_no_write_of_the_training_process_is_lost(kind: type[Writes], counted: int) -> None:
    SHARED.zero_()
    wrap(kind())(rows())
    working = Background._at_work
    assert working is not None
    written = counted
    while working.check():
        SHARED.add_(1)
        written += 1
        assert SHARED.tolist() == [written, written]
        time.sleep(0.001)
    assert SHARED.tolist() == [written, written]
