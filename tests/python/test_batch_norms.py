"""Batch norms in training, in many positions: results, gradients and buffers are eager's over several steps."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import torch
from module_support import Twins
from seeded import seeded
from torch import nn
from torch.nn import functional as F


class Positions(nn.Module):
    """A relu after it, none, a sum before a relu, two in a row, one that is called twice, and one whose result is read twice."""

    def __init__(self, norm: Callable[[int], nn.Module], dims: int = 2) -> None:
        super().__init__()
        conv = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}[dims]
        self.convs = nn.ModuleList(conv(3 if i == 0 else 6, 6, 3, padding=1, bias=i % 2 == 0) for i in range(4))
        self.norms = nn.ModuleList(norm(6) for _ in range(5))
        self.relu = nn.ReLU(inplace=True)
        self.head = nn.Linear(6, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.relu(self.norms[0](self.convs[0](x)))
        second = F.relu(self.norms[1](self.convs[1](first)) + first)
        third = self.norms[2](self.norms[3](self.convs[2](second)))
        shared = torch.relu(self.norms[4](third)) + torch.relu(self.norms[4](self.convs[3](second)))
        twice = self.norms[0](shared)
        return self.head((torch.relu(twice) + 0.5 * twice).flatten(2).mean(2))


class First(nn.Module):
    """Normalizes its input, which may require a gradient, and returns that beside what follows."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm2d(3)
        self.conv = nn.Conv2d(3, 4, 3)
        self.last = nn.BatchNorm2d(4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        y = torch.relu(self.norm(x))
        z = self.conv(y)
        return y, z, torch.relu(self.last(z))


class Random(nn.Module):
    """Convolutions, batch norms of all kinds, relus, sums and pools in a random order; each reads a random earlier value."""

    def __init__(self, choose: random.Random, length: int = 12) -> None:
        super().__init__()
        self.steps: list[tuple[str, int, int]] = []
        self.layers = nn.ModuleList()
        for i in range(length):
            kind = choose.choice(("conv", "norm", "norm", "relu", "relu", "inplace", "sum", "tanh"))
            self.steps.append((kind, max(0, i - choose.choice((0, 0, 0, 1, 3))), choose.randint(0, i)))
            layer: nn.Module = nn.Identity()
            if kind == "conv":
                layer = nn.Conv2d(5, 5, 3, padding=1, groups=choose.choice((1, 5)), bias=choose.random() < 0.5)
            elif kind == "norm":
                layer = nn.BatchNorm2d(5, **choose.choice(list(VARIANTS.values())))
                layer.train(choose.random() < 0.9)
            for parameter in layer.parameters():
                parameter.requires_grad_(choose.random() < 0.8)
            self.layers.append(layer)
        self.first = nn.Conv2d(3, 5, 3)
        self.returned = choose.randint(0, length)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values = [self.first(x)]
        for (kind, source, other), layer in zip(self.steps, self.layers, strict=True):
            value = values[source]
            if kind == "relu":
                value = F.relu(value)
            elif kind == "inplace":
                value = F.relu(value * 1.5, inplace=True)
            elif kind == "sum":
                value = value + values[other]
            elif kind == "tanh":
                value = torch.tanh(value)
            else:
                value = layer(value)
            values.append(value)
        return values[-1].mean((2, 3)), values[self.returned] * 1


def data(step: int, *sizes: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*sizes, generator=seeded(step), dtype=dtype) * 2 + 0.5


def stepped(module: nn.Module, make: Callable[[int], torch.Tensor], steps: int = 3, **options: Any) -> Twins:
    """Trains both models; every result, gradient and buffer is compared."""
    twins = Twins(module, fallback="error", log="error", **options)
    optimizers = [
        torch.optim.SGD([p for p in each.parameters() if p.requires_grad], lr=0.01, momentum=0.9)
        for each in (twins.eager, twins.module)
    ]
    for step in range(steps):
        twins.call(make(step))
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        twins.compare()
    return twins


def measured(model: Any, module: nn.Module, dtype: torch.dtype) -> list[torch.Tensor]:
    """Returns results, gradients and buffers of three steps, in float64."""
    found: list[torch.Tensor] = []
    for step in range(3):
        x = data(step, 3, 3, 8, 7).to(dtype).requires_grad_()
        module.zero_grad()
        result, other = model(x)
        (
            (result * result.detach().cos()).sum() + (other * torch.linspace(-1, 1, 6 * 5, dtype=dtype).view(6, 5)).mean()
        ).backward()
        found += [result, other, x.grad, *(each.grad for each in module.parameters() if each.grad is not None), *module.buffers()]
        found = [each.detach().double().clone() for each in found]
    return found


VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    "momentum": {"momentum": 0.7, "eps": 1e-2},
    "average": {"momentum": None},
    "without-statistics": {"track_running_stats": False},
    "without-parameters": {"affine": False},
    "neither": {"affine": False, "track_running_stats": False},
}


@pytest.mark.parametrize("budget", (None, 0.5))
@pytest.mark.parametrize("variant", VARIANTS)
def test_images(variant: str, budget: float | None) -> None:
    torch.manual_seed(1)
    module = Positions(lambda channels: nn.BatchNorm2d(channels, **VARIANTS[variant]))
    stepped(module, lambda step: data(step, 4, 3, 9, 7), memory_budget=budget)


@pytest.mark.parametrize("dims", (1, 3))
def test_rows_and_volumes(dims: int) -> None:
    torch.manual_seed(1)
    norm = nn.BatchNorm1d if dims == 1 else nn.BatchNorm3d
    stepped(Positions(norm, dims), lambda step: data(step, 3, 3, *[6, 5, 4][:dims]))


def test_float64() -> None:
    torch.manual_seed(1)
    stepped(Positions(nn.BatchNorm2d).double(), lambda step: data(step, 2, 3, 5, 5, dtype=torch.float64))


@pytest.mark.parametrize("samples", (2, 16))
def test_features(samples: int) -> None:
    torch.manual_seed(1)
    layers = (nn.Linear(8, 40), nn.BatchNorm1d(40), nn.ReLU(), nn.Linear(40, 9), nn.BatchNorm1d(9), nn.ReLU(), nn.Linear(9, 3))
    stepped(nn.Sequential(*layers), lambda step: data(step, samples, 8))


def test_channels_last() -> None:
    torch.manual_seed(1)
    module = Positions(nn.BatchNorm2d).to(memory_format=torch.channels_last)
    stepped(module, lambda step: data(step, 4, 3, 8, 8).contiguous(memory_format=torch.channels_last))


def test_instance_norms() -> None:
    torch.manual_seed(1)
    module = Positions(lambda channels: nn.InstanceNorm2d(channels, affine=True, track_running_stats=True))
    stepped(module, lambda step: data(step, 4, 3, 9, 7))


@pytest.mark.parametrize("frozen", ("weight", "bias", "both", "convolutions", "all but one"))
def test_frozen_parameters(frozen: str) -> None:
    torch.manual_seed(1)
    module = Positions(nn.BatchNorm2d)
    for name, parameter in module.named_parameters():
        kind = name.rsplit(".", 1)[-1]
        in_norm = name.startswith("norms")
        keep = {
            "weight": not (in_norm and kind == "weight"),
            "bias": not (in_norm and kind == "bias"),
            "both": not in_norm,
            "convolutions": in_norm,
            "all but one": name == "norms.1.bias",
        }[frozen]
        parameter.requires_grad_(keep)
    stepped(module, lambda step: data(step, 4, 3, 8, 8))


def test_training_and_evaluation_in_turns() -> None:
    torch.manual_seed(1)
    twins = stepped(Positions(nn.BatchNorm2d), lambda step: data(step, 4, 3, 8, 8), steps=1)
    for step, training in enumerate((False, True, False, True)):
        twins.eager.train(training), twins.module.train(training)
        twins.call(data(step, 4, 3, 8, 8))
        with torch.no_grad():
            twins.call(data(step + 9, 4, 3, 8, 8))


def test_one_norm_in_evaluation() -> None:
    torch.manual_seed(1)
    module = Positions(nn.BatchNorm2d)
    module.norms[1].eval()
    stepped(module, lambda step: data(step, 4, 3, 8, 8))


def test_an_input_and_results() -> None:
    torch.manual_seed(1)
    twins = Twins(First(), fallback="error", log="error")
    for step in range(3):
        given = [data(step, 4, 3, 8, 8).requires_grad_() for _ in range(2)]
        theirs, ours = twins.eager(given[0]), twins.wrapped(given[1])
        for weights in ((1.0, 0.0, 0.0), (0.3, -1.0, 2.0)):
            for results in (theirs, ours):
                sum(w * (each * each.detach().cos()).sum() for w, each in zip(weights, results, strict=True)).backward(
                    retain_graph=True
                )
        torch.testing.assert_close(given[1].grad, given[0].grad, rtol=1e-4, atol=1e-5)
        twins.compare()


def test_other_sizes_of_the_same_graph() -> None:
    torch.manual_seed(1)
    twins = stepped(Positions(nn.BatchNorm2d), lambda step: data(step, 4 + step, 3, 8, 8))
    twins.call(data(9, 2, 3, 8, 8))


def test_a_bias_that_is_written_before_the_backward() -> None:
    """Eager does not save a bias: the relu's gradient is that of the forward's bias."""
    torch.manual_seed(1)
    module = nn.Sequential(nn.Conv2d(3, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.Conv2d(6, 2, 3))
    twins = Twins(module, fallback="error", log="error")
    for step in range(3):
        results = [model(data(step, 4, 3, 8, 8)) for model in (twins.eager, twins.wrapped)]
        for model, result in zip((twins.eager, twins.module), results, strict=True):
            with torch.no_grad():
                model[1].bias.add_(1.0 if step == 1 else 0.5)
            result.square().sum().backward()
        twins.compare()


def test_gradients_are_the_same_bit_for_bit_with_a_budget() -> None:
    torch.manual_seed(1)
    module = Positions(nn.BatchNorm2d)
    found = []
    for budget in (None, 0.5):
        model = copy.deepcopy(module)
        wrapped = rekindle.Module(model, rekindle.Options(fallback="error", log="error", memory_budget=budget))
        wrapped(data(0, 4, 3, 32, 32)).square().sum().backward()
        found.append([each.grad for each in model.parameters()] + list(model.buffers()))
    assert all(torch.equal(one, other) for one, other in zip(*found, strict=True))


@pytest.mark.parametrize("budget", (None, 0.5))
@pytest.mark.parametrize("seed", range(10))
def test_random_nets_are_as_exact_as_eager(seed: int, budget: float | None) -> None:
    torch.manual_seed(seed)
    module = Random(random.Random(seed))
    ours, theirs, exact = (copy.deepcopy(module) for _ in range(3))
    wrapped = rekindle.Module(ours, rekindle.Options(fallback="error", log="error", memory_budget=budget))
    found = measured(wrapped, ours, torch.float32), measured(theirs, theirs, torch.float32)
    for mine, others, right in zip(*found, measured(exact.double(), exact, torch.float64), strict=True):
        allowed = 4 * (others - right).abs().max() + 1e-5 * right.abs().max() + 1e-6
        assert (mine - right).abs().max() <= allowed


class Moved(nn.Module):
    """Normalizes channels that come last."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(x.transpose(1, 2))


@pytest.mark.parametrize("factor", (0.0, 1.0, 1e19))
def test_values_with_gaps_are_centered_first_as_in_eager(factor: float) -> None:
    """PyTorch multiplies dense ones first: of a constant channel of 1e4, that is up to 0.03 from the bias."""
    torch.manual_seed(1)
    module = Moved()
    wrapped = rekindle.Module(copy.deepcopy(module), rekindle.Options(fallback="error", log="error"))
    for step in range(3):
        x = data(step, 3, 5, 2) * factor + (1e4 if factor == 0 else 0)
        torch.testing.assert_close(wrapped(x), module(x), rtol=1e-6, atol=1e-6)
        for mine, others in zip(wrapped.buffers(), module.buffers(), strict=True):
            torch.testing.assert_close(mine, others)
