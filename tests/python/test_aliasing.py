"""Tensors that are one object, or see one memory, under several names: buffers, parameters, arguments, what else holds them."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import rekindle
import torch
from seeded import seeded
from torch import nn

Step = Callable[[nn.Module, int], Any]


def rows(step: int = 0) -> torch.Tensor:
    return torch.randn(3, 4, generator=seeded(step))


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)


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


class Held(Base):
    """A buffer that something else holds as well; holder: makes it of the buffer, get: takes the buffer out."""

    def __init__(self, holder: Callable[[Held], Any], get: Callable[[Any], torch.Tensor]) -> None:
        super().__init__()
        self.register_buffer("mean", torch.ones(4))
        self.holder = holder(self)
        self.get = get

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.get(self.holder)


class WritesHeld(Held):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.get(self.holder).add_(1)
        return self.linear(x) * self.mean


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


class Box:
    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def method(self) -> torch.Tensor:
        return self.tensor


def closure_of(tensor: torch.Tensor) -> Callable[[], torch.Tensor]:
    def inner() -> torch.Tensor:
        return tensor

    return inner


HOLDERS: dict[str, tuple[Any, Any]] = {
    "list": (lambda self: [self.mean], lambda held: held[0]),
    "dict": (lambda self: {"mean": self.mean}, lambda held: held["mean"]),
    "tuple in a list": (lambda self: [(self.mean, 1)], lambda held: held[0][0]),
    "object": (lambda self: Box(self.mean), lambda held: held.tensor),
    "bound method": (lambda self: Box(self.mean).method, lambda held: held()),
    "closure": (lambda self: closure_of(self.mean), lambda held: held()),
    "partial": (lambda self: functools.partial(torch.clone, self.mean), lambda held: held()),
    "partial of a closure": (lambda self: functools.partial(closure_of(self.mean)), lambda held: held()),
    "namespace": (lambda self: types.SimpleNamespace(mean=self.mean), lambda held: held.mean),
    "attribute": (lambda self: self.__dict__.update(same=self.mean) or self.__dict__["same"], lambda held: held),
    "builtin method": (lambda self: self.mean.clone, lambda held: held()),
    "module": (lambda self: [self], lambda held: held[0].mean),
}  # fmt: skip
WRITABLE = [name for name in HOLDERS if name not in ("partial", "builtin method")]


def call(model: nn.Module, step: int) -> torch.Tensor:
    return model(rows(step))


def fill(model: nn.Module, step: int) -> None:
    with torch.no_grad():
        model.mean.fill_(step + 3.0)


def load(model: nn.Module, step: int) -> None:
    state = {name: value.clone() for name, value in model.state_dict().items()}
    state["mean"] = torch.full((4,), step + 7.0)
    model.load_state_dict(state)


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


def run(make: Callable[[], nn.Module], steps: list[Step], **options: Any) -> rekindle.Module:
    """The wrapped model, after it did the same as its twin in eager at each step."""
    made = []
    for _ in range(2):
        torch.manual_seed(0)
        made.append(make())
    eager, wrapped = made[0], rekindle.Module(made[1], rekindle.Options(**options)) if options else rekindle.Module(made[1])
    for i, step in enumerate(steps):
        theirs, ours = step(eager, i), step(wrapped, i)
        torch.testing.assert_close(ours, theirs, msg=lambda text, i=i: f"step {i}: {text}")
        if isinstance(theirs, torch.Tensor) and theirs.requires_grad:
            for model, result in ((eager, theirs), (wrapped, ours)):
                model.zero_grad()
                result.sum().backward()
        for (name, mine), (_, other) in zip(wrapped.state_dict().items(), eager.state_dict().items(), strict=True):
            torch.testing.assert_close(mine, other, msg=lambda text, name=name, i=i: f"step {i}, {name}: {text}")
        for mine, other in zip(wrapped.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, other.grad)
    return wrapped


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


@pytest.mark.parametrize("name", HOLDERS)
def test_whoever_holds_a_buffer_holds_the_graphs_input(name: str) -> None:
    holder, get = HOLDERS[name]
    model = run(lambda: Held(holder, get), [call, fill, call, load, call, call])
    assert rekindle.status(model).source == "export"
    assert rekindle.status(model).exports == 1
    other = run(lambda: Held(holder, get), [fill, load, call, fill, call])
    assert rekindle.status(other).exports <= 1  # functions made in a test keep other processes and models from hits, not wrong


@pytest.mark.parametrize("name", WRITABLE)
def test_a_write_through_whoever_holds_a_buffer_is_one_to_the_buffer(name: str) -> None:
    holder, get = HOLDERS[name]
    model = run(lambda: WritesHeld(holder, get), [call, call, fill, call, load, call])
    assert rekindle.status(model).source == "export"


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


GLOBAL: dict[str, torch.Tensor] = {}


def test_a_global_that_holds_a_buffer() -> None:
    class Reads(Base):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("mean", torch.ones(4))
            GLOBAL["mean"] = self.mean

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.linear(x) * GLOBAL["mean"] + self.mean

    class Writes(Reads):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.mean.add_(1)
            return self.linear(x) * GLOBAL["mean"]

    class WritesIt(Reads):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            GLOBAL["mean"].add_(1)
            return self.linear(x) * self.mean

    for make in (Reads, Writes, WritesIt):
        # One after the other, for there is one global.
        results = []
        for wrap in (lambda model: model, rekindle.Module):
            torch.manual_seed(0)
            model = wrap(make())
            steps = [call, call, fill, call, load, call, call]
            results.append([value.detach().clone() for i, step in enumerate(steps) if (value := step(model, i)) is not None])
            results[-1].append(model.mean.clone())
        torch.testing.assert_close(results[1], results[0], msg=lambda text, make=make: f"{make.__name__}: {text}")
