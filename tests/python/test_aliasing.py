"""Tensors that are one object, or see one memory, under several names: buffers, parameters, arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import rekindle
import torch
from aliasing_support import Base, Step, call, fill, load, rows, run
from seeded import seeded
from torch import nn


class PartOfAnother(Base):
    """A buffer that is a part of another one, which the forward writes before it reads the part."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("flat", torch.arange(8.0))
        self.register_buffer("head", self.flat[:4])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.flat.add_(1)
        return self.linear(x) * self.head


class WritesThePart(PartOfAnother):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.head.mul_(0.5)
        return self.linear(x) * self.flat[2:6]


class OfAParameter(Base):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("ema", self.linear.weight.data)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.ema.mul_(0.9)
        return self.linear(x)


class Returned(Base):
    """Gives a buffer, which is then an argument."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("h", torch.zeros(3, 4))

    def forward(self, h: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(self.linear(rows()) + h)
        self.h.copy_(y.detach())
        return y + h


class Statistics(Base):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
        return self.norm(self.linear(x)) + mean


class Two(Base):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.zeros(4))
        self.register_buffer("b", torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.a.add_(1)
        return self.linear(x) * self.b


class WritesFirst(Base):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return self.linear(y) + x


def share(model: nn.Module, step: int) -> None:
    model.b.data = model.a.data


def hand_back(model: nn.Module, step: int) -> torch.Tensor:
    return model(model.h)


def with_its_mean(model: nn.Module, step: int) -> torch.Tensor:
    return model(rows(step), model.norm.running_mean)


def with_a_mean(model: nn.Module, step: int) -> torch.Tensor:
    return model(rows(step), torch.ones(4))


def overlapping_arrays(model: nn.Module, step: int) -> tuple[Any, ...]:
    memory = np.arange(16, dtype=np.float32)
    x, y = torch.from_numpy(memory[:12]).view(3, 4), torch.from_numpy(memory[4:]).view(3, 4)
    return model(x, y), x


def apart(model: nn.Module, step: int) -> tuple[Any, ...]:
    x, y = rows(step), rows(step + 1)
    return model(x, y), x


@pytest.mark.parametrize("make", [PartOfAnother, WritesThePart, OfAParameter], ids=lambda make: make.__name__)
def test_written_memory_that_several_names_see_is_what_eager_makes_of_it(make: Callable[[], nn.Module]) -> None:
    model = run(make, [call] * 4)
    assert rekindle.status(model).source == "eager"
    assert "share" in rekindle.status(model).bypass[0][1] or "parameter in place" in rekindle.status(model).bypass[0][1]


@pytest.mark.parametrize("steps", [[call] * 3, [call, fill, call, load, call, call]], ids=["calls", "changes"])
def test_a_part_that_nobody_writes_stays_in_a_graph(steps: list[Step]) -> None:
    class Reads(PartOfAnother):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", self.flat[4:])

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x) * self.head + self.mean * self.flat[:4]

    model = run(Reads, steps)
    assert rekindle.status(model).source == "export"
    assert rekindle.status(model).exports == 1


def test_a_buffer_that_is_an_argument() -> None:
    run(Returned, [hand_back] * 4)
    run(Returned, [lambda model, step: model(rows(step)), hand_back, hand_back, lambda model, step: model(rows(step))])


def test_statistics_that_are_an_argument() -> None:
    run(Statistics, [with_its_mean] * 3)
    model = run(Statistics, [with_a_mean, with_a_mean, with_its_mean, with_its_mean, with_a_mean])
    assert rekindle.status(model).exports == 1


def test_buffers_that_come_to_share_memory_after_a_call() -> None:
    run(Two, [call, call, share, call, call])


def test_arrays_that_overlap() -> None:
    run(WritesFirst, [overlapping_arrays] * 3)
    run(WritesFirst, [apart, apart, overlapping_arrays, apart, overlapping_arrays])


def test_a_part_of_a_tensor_of_which_another_part_is_written() -> None:
    """A write counts as one to all that is a part of the same tensor, and a backward would not read these any more."""

    def parts(model: nn.Module, step: int) -> torch.Tensor:
        batch = torch.randn(6, 4, generator=seeded(step))
        return model(batch[:3], batch[3:])

    model = run(WritesFirst, [lambda model, step: model(rows(step), rows(step + 1)), parts, parts])
    assert "shares memory" in rekindle.status(model).bypass[0][1]

    def separate(model: nn.Module, step: int) -> None:
        model.a, model.b = torch.arange(8.0).split(4)

    run(Two, [call, separate, call, call])


def test_slices_of_one_batch_run_from_one_graph() -> None:
    class Next(Base):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return (self.linear(x) - y).square().mean()

    def sliced(model: nn.Module, step: int) -> torch.Tensor:
        batch = torch.randn(5 + step, 4, generator=seeded(step))
        return model(batch[:-1], batch[1:])

    model = run(Next, [sliced] * 3)
    assert rekindle.status(model).exports == 1
    assert rekindle.status(model).source != "eager"
