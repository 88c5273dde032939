"""A forward that sets an attribute to what it reads there already changes nothing, and runs from a graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from module_support import Twins
from torch import nn


class Window(nn.Module):
    """Clamps its window to the image, as a Swin Transformer does."""

    def __init__(self, window: int) -> None:
        super().__init__()
        self.layer, self.window = nn.Conv2d(2, 2, 3, padding=1), window

    def forward(self, x: torch.Tensor) -> torch.Tensor:  # float32[batch, 2, height, width]
        if min(x.shape[-2:]) <= self.window:
            self.window = min(x.shape[-2:])
        return self.layer(x) * self.window


def test_a_size_that_an_attribute_has_already_is_a_question_about_sizes() -> None:
    twins = Twins(Window(6))
    sizes = [(6, 6), (6, 9), (7, 8), (6, 6), (4, 5), (4, 4), (9, 9)]
    for height, width in sizes:
        x = torch.randn(3, 2, height, width)
        theirs, ours = twins.both(lambda model: model(x))  # noqa: B023
        torch.testing.assert_close(ours, theirs)
        assert twins.module.window == twins.eager.window and type(twins.module.window) is int
    assert twins.status.eager_calls == 1  # that of (4, 5), which changes it


class Sets(nn.Module):
    def __init__(self, value: Any) -> None:
        super().__init__()
        self.layer, self.held = nn.Linear(4, 4), value

    def forward(self, x: torch.Tensor, value: Any) -> torch.Tensor:
        y = self.layer(x) * 2 if self.held == value else self.layer(x)
        self.held = type(value)(value)
        return y


@pytest.mark.parametrize(("value", "other"), [(1000, 1001), (0.3, 0.1 + 0.2), ("".join(["a", "b"]), "c"), (0.0, -0.0)])
def test_equal_plain_values_are_no_change_and_others_are(value: Any, other: Any) -> None:
    twins = Twins(Sets(value))
    for given, changes in [(value, False), (value, False), (other, True), (other, False), (value, True)]:
        before = twins.status.eager_calls
        x = torch.randn(3, 4)
        equal = type(given)(f"{given}")  # another object
        theirs, ours = twins.both(lambda model: model(x, equal))  # noqa: B023
        torch.testing.assert_close(ours, theirs)
        assert repr(twins.module.held) == repr(twins.eager.held)
        assert (twins.status.eager_calls > before) == changes
