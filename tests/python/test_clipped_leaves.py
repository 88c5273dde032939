"""`rekindle.optim.fuse` with `max_norm`: the pass that measures changes nothing but the norm."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rekindle
import torch
from test_fused_optimizer import OPTIMIZERS, assert_same, values_of, wrapped
from torch import nn
from torch.nn.utils import clip_grad_norm_
from torch.optim import SGD
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    """Has a body and a head, which different optimizers may train."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = nn.Linear(4, 8), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x).tanh())


class Checkpointed(Net):
    """Runs the body and the head in checkpoints that run a backward of their own, which hides the parameters."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = checkpoint(lambda y: self.body(y).tanh(), x, use_reentrant=True)
        return checkpoint(self.head, h, use_reentrant=True)


def called(model: nn.Module, how: str, tmp_path: Path) -> nn.Module:
    return wrapped(model, tmp_path) if how == "graph" else model


def clipped(model: nn.Module, parameters: list[nn.Parameter], x: torch.Tensor, temperature: torch.Tensor) -> torch.Tensor:
    """Trains one step as PyTorch does; returns the loss."""
    optimizer = OPTIMIZERS["momentum"](parameters)
    loss = (model(x) / temperature).square().mean()
    loss.retain_grad()
    loss.backward()
    clip_grad_norm_(parameters, 0.1)
    optimizer.step()
    optimizer.zero_grad()
    return loss


def clipped_by_fused(
    model: nn.Module, parameters: list[nn.Parameter], x: torch.Tensor, temperature: torch.Tensor
) -> torch.Tensor:
    """Does what `clipped` does, with a fused optimizer."""
    fused = rekindle.optim.fuse(model, OPTIMIZERS["momentum"](parameters), max_norm=0.1)
    loss = (model(x) / temperature).square().mean()
    loss.retain_grad()
    fused.backward(loss)
    fused.step()
    fused.remove()
    return loss


Train = Callable[[nn.Module, list[nn.Parameter], torch.Tensor, torch.Tensor], torch.Tensor]


def leaves_after(train: Train, model: nn.Module, steps: int = 2) -> list[torch.Tensor]:
    """The parameters and the gradients of all leaves, which are accumulated, after steps on the head."""
    torch.manual_seed(1)
    x, temperature = torch.randn(6, 4).requires_grad_(), torch.tensor(1.5, requires_grad=True)
    losses = [train(model, [*model.head.parameters()], x, temperature) for _ in range(steps)]
    gradients = [one.grad for one in (x, temperature, *model.body.parameters(), *losses)]
    assert all(gradient is not None for gradient in gradients)
    assert all(one.grad is None for one in model.head.parameters())
    return [*values_of(model), *gradients]


@pytest.mark.parametrize(("kind", "how"), [(Net, "eager"), (Net, "graph"), (Checkpointed, "eager")])
def test_leaves_that_the_optimizer_does_not_have_get_their_gradients_once(kind: Any, how: str, tmp_path: Path) -> None:
    model = kind()
    expected = leaves_after(clipped, called(copy.deepcopy(model), how, tmp_path))
    assert_same(leaves_after(clipped_by_fused, called(model, how, tmp_path)), expected)


@pytest.mark.parametrize("how", ["eager", "graph"])
def test_hooks_of_other_leaves_run_once(how: str, tmp_path: Path) -> None:
    model, x = called(Net(), how, tmp_path), torch.randn(6, 4, requires_grad=True)
    ran: list[str] = []
    for name, leaf in [("x", x), ("weight", model.body.weight)]:
        leaf.register_hook(lambda _, name=name: ran.append(f"{name} gets a gradient"))
        leaf.register_post_accumulate_grad_hook(lambda _, name=name: ran.append(f"{name} has it"))
    clipped_by_fused(model, [*model.head.parameters()], x, torch.tensor(1.0))
    assert sorted(ran) == ["weight gets a gradient", "weight has it", "x gets a gradient", "x has it"]


@pytest.mark.parametrize("how", ["eager", "graph"])
def test_a_second_optimizer_may_be_fused_without_clipping(how: str, tmp_path: Path) -> None:
    model, x = Net(), torch.randn(6, 4)
    results = []
    for train in (clipped, clipped_by_fused):
        module = called(copy.deepcopy(model), how, tmp_path)
        other = SGD(module.body.parameters(), 0.1)
        stepping = other if train is clipped else rekindle.optim.fuse(module, other)
        train(module, [*module.head.parameters()], x, torch.tensor(1.0))
        stepping.step()
        results.append(values_of(module))
    assert_same(results[1], results[0])


def test_what_a_parameter_that_left_has_accumulated_stays() -> None:
    model, x = Net(), torch.randn(6, 4)
    optimizer = SGD(model.parameters(), 0.1)
    fused = rekindle.optim.fuse(model, optimizer, max_norm=0.1)
    optimizer.param_groups[0]["params"].pop()
    model.head.bias.grad = torch.ones(3)
    fused.backward(model(x).sum())
    assert torch.equal(model.head.bias.grad, torch.full((3,), 7.0))


class RunsBackward(torch.autograd.Function):
    """Hides a module from the graph: its backward runs one of its own."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, module: nn.Module) -> torch.Tensor:
        ctx.module = module
        ctx.save_for_backward(x)
        return module(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        with torch.enable_grad():
            x = ctx.saved_tensors[0].detach().requires_grad_()
            torch.autograd.backward(ctx.module(x), gradient)
        return x.grad, None


class Hidden(Net):
    """Hides its body from the graph, whose backward has to run for the head, which comes first."""

    def __init__(self) -> None:
        super().__init__()
        self.head, self.body = nn.Linear(8, 4), nn.Linear(4, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return RunsBackward.apply(self.head(x), self.body)


def test_a_backward_inside_of_a_backward_gives_other_leaves_their_gradients_once() -> None:
    model, x = Hidden(), torch.randn(6, 8)
    results = []
    for train in (clipped, clipped_by_fused):
        module = copy.deepcopy(model)
        train(module, [*module.head.parameters()], x, torch.tensor(1.0))
        results.append([*values_of(module), *(one.grad for one in module.body.parameters())])
    assert_same(results[1], results[0])


def test_a_gradient_that_was_not_measured_is_an_error_that_names_the_parameter() -> None:
    model, x = nn.Linear(4, 3), torch.randn(6, 4, requires_grad=True)
    before = values_of(model)
    fused = rekindle.optim.fuse(model, SGD(model.parameters(), 0.1), max_norm=0.1)
    with pytest.raises(RuntimeError, match=r"(weight|bias) gets a gradient that was not there when the norm was measured"):
        fused.backward(RunsBackward.apply(x, model).sum())
    assert_same(values_of(model), before)


@pytest.mark.parametrize("frozen", [["body.weight"], ["body.weight", "body.bias", "head.weight", "head.bias"]])
@pytest.mark.parametrize("max_norm", [None, 0.1])
@pytest.mark.parametrize("how", ["eager", "graph"])
def test_parameters_may_be_frozen_before_the_backward(how: str, max_norm: float | None, frozen: list, tmp_path: Path) -> None:
    model, x = Net(), torch.randn(6, 4)
    results = []
    for is_fused in (False, True):
        module = called(copy.deepcopy(model), how, tmp_path)
        optimizer: Any = OPTIMIZERS["momentum"](module.parameters())
        stepping = rekindle.optim.fuse(module, optimizer, max_norm=max_norm) if is_fused else optimizer
        loss = module(x).square().mean()
        for name in frozen:
            module.get_parameter(name).requires_grad_(False)
        stepping.backward(loss) if is_fused else loss.backward()
        if max_norm is not None:
            results.append([stepping.total_norm if is_fused else clip_grad_norm_(module.parameters(), max_norm)])
        stepping.step()
        results.append(values_of(module))
    for expected, found in zip(results[: len(results) // 2], results[len(results) // 2 :], strict=True):
        assert_same(found, expected)


@pytest.mark.parametrize("register", [register_optimizer_step_pre_hook, register_optimizer_step_post_hook])
def test_hooks_on_all_optimizers_are_refused_by_name(register: Any) -> None:
    def counts(*_: Any) -> None:
        raise AssertionError("a hook that was refused has run")

    model, other, x = Net(), Net(), torch.randn(6, 4)
    why = r"all optimizers have hooks .*counts; call remove\(\) of the handle"
    fused = rekindle.optim.fuse(model, SGD(model.parameters(), 0.1))
    before = values_of(model)
    handle = register(counts)
    try:
        with pytest.raises(ValueError, match=why):
            rekindle.optim.fuse(other, SGD(other.parameters(), 0.1))
        with pytest.raises(ValueError, match=why):
            model(x).sum().backward()
        with pytest.raises(ValueError, match=why):
            fused.step()
    finally:
        handle.remove()
    assert_same(values_of(model), before)
