"""`rekindle.optim.fuse` takes optimizers that step each parameter by itself, refuses others, and follows their groups."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import rekindle
import torch
from test_fused_optimizer import OPTIMIZERS, assert_same, loss_of, mlp, values_of
from torch.optim import Optimizer


class Mixing(Optimizer):
    """Scales each gradient by what its name says before subtracting it."""

    def __init__(self, parameters: Any, how: str) -> None:
        super().__init__(parameters, {"lr": 0.1, "count": 0})
        self.how = how

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        given = [one for group in self.param_groups for one in group["params"] if one.grad is not None]
        for group in self.param_groups:
            group["count"] += self.how == "count"
        for one in given:
            scale: Any = 0.1
            if self.how == "norm":
                scale = 1 / torch.stack([other.grad.norm() for other in given]).norm()
            elif self.how == "count":
                scale = 1 / self.param_groups[0]["count"]
            elif self.how == "noise":
                scale = torch.rand(())
            one.sub_(one.grad * scale)


ALONE = "Mixing gives other values when it steps one parameter at a time"
COUNTS = "Mixing changes param_groups[0]['count'] in a step, which is not the state of one parameter"


@pytest.mark.parametrize(("how", "why"), [("norm", ALONE), ("count", COUNTS), ("noise", ALONE)])
def test_an_optimizer_that_mixes_parameters_is_refused(how: str, why: str) -> None:
    model = mlp(1)
    before, state = values_of(model), torch.get_rng_state()
    optimizer = Mixing(model.parameters(), how)
    with pytest.raises(TypeError, match=re.escape(why)):
        rekindle.optim.fuse(model, optimizer)
    assert torch.equal(torch.get_rng_state(), state)
    assert optimizer.param_groups[0]["count"] == 0
    loss_of(model, torch.randn(4, 8)).backward()  # no hook was left behind
    assert_same(values_of(model), before)


def test_an_optimizer_that_treats_parameters_alone_is_taken() -> None:
    model = mlp(1)
    rekindle.optim.fuse(model, Mixing(model.parameters(), "nothing"))


def test_an_optimizer_with_a_closure_is_refused() -> None:
    model = mlp(1)
    with pytest.raises(TypeError, match="LBFGS leads to its parameters by _params"):
        rekindle.optim.fuse(model, torch.optim.LBFGS(model.parameters()))


class Keeping(torch.optim.SGD):
    """Keeps something beside the state of its parameters."""

    def __init__(self, parameters: Any, what: str) -> None:
        parameters = list(parameters)
        super().__init__(parameters, lr=0.1)
        self.what, self.steps, self.table, self.averages = what, 0, [0, {"steps": 0}], [torch.zeros(3)]
        self.numbers, self.array = itertools.count(), np.zeros(2)
        if what == "parameters":
            self.averaged = {"all": (parameters,)}
        elif what == "parameters in a closure":
            self.all = lambda: parameters

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        super().step()
        if self.what == "counter":
            self.steps += 1
        elif self.what == "in a table":
            self.table[1]["steps"] += 1  # type: ignore[index]
        elif self.what == "tensor":
            self.averages[0].add_(1)
        elif self.what == "iterator":
            next(self.numbers)
        elif self.what == "array":
            self.array += 1
        elif self.what == "once":
            self.steps = 1


@pytest.mark.parametrize(
    ("what", "why"),
    [
        ("counter", "Keeping changes steps in a step"),
        ("in a table", "Keeping changes table in a step"),
        ("tensor", "Keeping changes averages in a step"),
        ("iterator", "Keeping changes numbers in a step"),
        ("array", "Keeping changes array in a step"),
        ("parameters in a closure", "Keeping leads to its parameters by all"),
        ("parameters", "Keeping leads to its parameters by averaged"),
    ],
)
def test_an_optimizer_that_keeps_more_than_states_is_refused_and_left_as_it_is(what: str, why: str) -> None:
    model = mlp(1)
    before = values_of(model)
    optimizer = Keeping(model.parameters(), what)
    with pytest.raises(TypeError, match=why):
        rekindle.optim.fuse(model, optimizer)
    assert_same(values_of(model), before)
    assert (optimizer.steps, optimizer.table) == (0, [0, {"steps": 0}])
    assert torch.equal(optimizer.averages[0], torch.zeros(3))


@pytest.mark.parametrize("what", ["nothing", "once"])
def test_an_optimizer_that_keeps_what_it_does_not_change_is_taken(what: str) -> None:
    model = mlp(1)
    rekindle.optim.fuse(model, Keeping(model.parameters(), what))


CHANGES: dict[str, Callable[[Any], Any]] = {
    "a parameter leaves": lambda groups: groups[0]["params"].pop(0),
    "a parameter goes to another group": lambda groups: groups[1]["params"].append(groups[0]["params"].pop()),
    "groups change places": lambda groups: groups.reverse(),
    "a group leaves": lambda groups: groups.pop(0),
}


@pytest.mark.parametrize("change", CHANGES)
def test_groups_that_change_between_steps_are_followed(change: str) -> None:
    values = []
    for is_fused in (False, True):
        torch.manual_seed(0)
        model: Any = mlp(2)
        first, second = model[0].parameters(), model[2].parameters()
        optimizer = torch.optim.SGD([{"params": [*first], "lr": 0.1}, {"params": [*second], "lr": 0.001}])
        fused = rekindle.optim.fuse(model, optimizer) if is_fused else optimizer
        for step in range(4):
            if step == 2:
                CHANGES[change](optimizer.param_groups)
            torch.manual_seed(step)
            loss_of(model, torch.randn(4, 8)).backward()
            fused.step()
            model.zero_grad()
        values.append(values_of(model))
    assert_same(*values)


def test_a_model_that_is_fused_or_gets_hooks_around_steps_later_is_an_error() -> None:
    model = mlp(1)
    optimizer = OPTIMIZERS["SGD"](model.parameters())
    fused = rekindle.optim.fuse(model, optimizer)
    with pytest.raises(ValueError, match=r"0\.weight is stepped by another fused optimizer"):
        rekindle.optim.fuse(model, OPTIMIZERS["SGD"](model.parameters()))
    before = values_of(model)
    handle = optimizer.register_step_post_hook(lambda *_: None)
    with pytest.raises(ValueError, match="hooks around its steps"):
        loss_of(model, torch.randn(4, 8)).backward()
    handle.remove()
    assert_same(values_of(model), before)
    fused.remove()
    rekindle.optim.fuse(model, OPTIMIZERS["SGD"](model.parameters()))


def test_a_parameter_that_left_gets_its_gradient_once_where_two_passes_clip() -> None:
    gradients = []
    for is_fused in (False, True):
        torch.manual_seed(0)
        model: Any = mlp(2)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        fused = rekindle.optim.fuse(model, optimizer, max_norm=1.0) if is_fused else None
        left = optimizer.param_groups[0]["params"].pop(0)
        loss = loss_of(model, torch.ones(4, 8))
        fused.backward(loss) if fused is not None else loss.backward()
        gradients.append(left.grad)
    assert torch.equal(*gradients)
