"""autograd Functions find what eager has at their place in the forward, at the export as in later steps whose data differ."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from function_cases_places import (
    ClampsItself,
    ClipsForGradients,
    DropsLarge,
    Noisy,
    OfAnAttribute,
    Outliers,
    Pair,
    Part,
    Penalty,
    Product,
    SometimesWithGradient,
    SometimesWithoutGradient,
    Takes,
)
from module_support import Twins, assert_same
from seeded import seeded
from torch import nn


class Net(nn.Module):
    """Applies `rest` to what a layer gives."""

    def __init__(self, rest: Callable[[nn.Module, torch.Tensor], Any]) -> None:
        super().__init__()
        self.layer, self.rest = nn.Linear(4, 4), rest
        self.register_buffer("count", torch.ones(4))

    def forward(self, x: torch.Tensor) -> Any:
        return self.rest(self, self.layer(x))


def off(model: nn.Module, h: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", enabled=False):
        return Product.apply(h.float())


def on(model: nn.Module, h: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return Product.apply(h)


def detached(model: nn.Module, h: torch.Tensor) -> torch.Tensor:
    return h / ClipsForGradients.apply(h).detach().abs().max()


def without_grad(model: nn.Module, h: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        part = Part.apply(h)
    return part * h[:, 1:]


def marked(model: nn.Module, h: torch.Tensor) -> torch.Tensor:
    return SometimesWithoutGradient.apply(h) * h


def unmarked(model: nn.Module, h: torch.Tensor) -> torch.Tensor:
    return SometimesWithGradient.apply(h) * h


def written(model: nn.Module, h: torch.Tensor) -> torch.Tensor:
    return OfAnAttribute.apply(h) + h.clamp_(-10, 10)


def written_by_another(model: nn.Module, h: torch.Tensor) -> torch.Tensor:
    return OfAnAttribute.apply(h) + ClampsItself.apply(h)


def in_a_list(model: nn.Module, h: torch.Tensor) -> torch.Tensor:
    return Takes.apply(h, [Noisy.apply(h)])


def dropped(model: nn.Module, h: torch.Tensor) -> torch.Tensor:
    return DropsLarge.apply(Penalty.apply(h)).square()


def counted(model: nn.Module, h: torch.Tensor) -> torch.Tensor:
    return Outliers.apply(h, model.count)


def x_of(step: int, size: float) -> torch.Tensor:
    return torch.randn(3, 4, generator=seeded(step)) * size


@pytest.mark.parametrize("rest", [off, on, detached, without_grad, marked, unmarked, in_a_list, dropped, counted])
@pytest.mark.parametrize("autocast", [False, True], ids=["plain", "autocast"])
def test_large_numbers_come_later(rest: Callable[..., Any], autocast: bool) -> None:
    torch.manual_seed(0)
    twins = Twins(Net(rest))
    for step, size in enumerate((1, 1, 100, 100, 1)):
        with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            twins.call(x_of(step, size))
        assert step > 0 or twins.status.source == "export"


@pytest.mark.parametrize("rest", [written, written_by_another])
def test_what_a_context_keeps_is_written_later(rest: Callable[..., Any]) -> None:
    torch.manual_seed(0)
    twins = Twins(Net(rest))
    for step, size in enumerate((1, 100)):
        twins.call(x_of(step, size))
    assert twins.reasons() == ["python_op"]


def test_what_a_context_keeps_and_nobody_writes_is_in_a_graph() -> None:
    twins = Twins(Net(lambda model, h: OfAnAttribute.apply(h)))
    twins.call(x_of(0, 1))
    assert twins.status.source == "export"


def test_autocast_of_its_place_changes_no_rounding() -> None:
    torch.manual_seed(0)
    twins = Twins(Net(off))
    with torch.autocast("cpu", torch.bfloat16):
        for step in range(3):
            theirs, ours = twins.both(lambda model, step=step: model(x_of(step, 300)))
            assert torch.equal(ours, theirs)
    assert twins.status.eager_calls == 0


def test_backwards_that_no_wanted_gradient_needs_are_not_called() -> None:
    class TwoLayers(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> Any:
            h = self.first(x)
            p = Noisy.apply(h)
            return (self.second(p) * h).mean(), p.mean()

    torch.manual_seed(0)
    twins = Twins(TwoLayers())
    for wanted in ("second.bias", "second.weight", "first.weight", "second.bias"):
        gradients = twins.both(
            lambda model, wanted=wanted: torch.autograd.grad(sum(model(x_of(0, 1))), [dict(named(model))[wanted]])[0]
        )
        assert_same(gradients[1], gradients[0])
    assert twins.status.source == "export"


def named(model: nn.Module) -> Any:
    return ((name.removeprefix("module."), parameter) for name, parameter in model.named_parameters())


def test_hooks_on_saved_tensors_in_the_forward_are_eagers() -> None:
    def packed(model: nn.Module, h: torch.Tensor) -> torch.Tensor:
        with torch.autograd.graph.saved_tensors_hooks(lambda saved: saved.clamp(-4, 4), lambda saved: saved):
            return h * h

    twins = Twins(Net(packed))
    for step, size in enumerate((1, 30)):
        twins.call(x_of(step, size))
    assert twins.reasons() == ["unsupported_op"]


def test_tensors_saved_on_the_cpu_need_no_hooks() -> None:
    def offloaded(model: nn.Module, h: torch.Tensor) -> torch.Tensor:
        with torch.autograd.graph.save_on_cpu():
            return h * h

    twins = Twins(Net(offloaded))
    twins.call(x_of(0, 1))
    assert twins.status.source == "export"


@pytest.mark.parametrize(
    "rest",
    [
        lambda model, h: torch.var_mean(h),
        lambda model, h: h.unbind()[:2],
        lambda model, h: Pair.apply(h),
    ],
    ids=["var_mean", "unbind", "function"],
)
def test_a_hook_on_one_of_several_results_of_an_operator(rest: Callable[..., Any]) -> None:
    def results(model: nn.Module, h: torch.Tensor) -> Any:
        first, second = rest(model, h)
        return first, second.square().mean()

    def step(model: nn.Module) -> Any:
        first, second = model(x_of(0, 1))
        seen: list[torch.Tensor] = []
        first.register_hook(lambda gradient: seen.append(gradient) or gradient * 2)
        (first.sum() + second).backward()
        return seen

    twins = Twins(Net(results))
    theirs, ours = twins.both(step)
    assert_same(ours, theirs)
    twins.compare()
