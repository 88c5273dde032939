"""A backward meets what eager's would: the inputs and parameters that its results do not lead to are left alone."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import torch
from module_support import rows
from torch import nn
from torch.utils.checkpoint import checkpoint

Events = list[tuple[str, Any]]


class Woven(nn.Module):
    """Returns products of some of its weights and inputs, as `plan` says, in which results may have a part in later ones."""

    def __init__(self, plan: list[tuple[list[int], list[int], list[int]]]) -> None:
        super().__init__()
        self.plan = plan
        self.weights = nn.ParameterList([torch.linspace(0.5, 1.5, 4) * (i + 1) for i in range(3)])

    def forward(self, *inputs: torch.Tensor) -> tuple[torch.Tensor, ...]:
        results: list[torch.Tensor] = []
        for weights, chosen, before in self.plan:
            result = torch.ones(4)
            for i in weights:
                result = result * self.weights[i]
            for i in chosen:
                result = result * inputs[i]
            for i in before:
                result = torch.tanh(result + results[i])
            results.append(result)
        return tuple(results)


def woven(seed: int) -> tuple[Woven, random.Random]:
    choose = random.Random(seed)

    def some(count: int, least: int = 0) -> list[int]:
        return sorted(choose.sample(range(count), choose.randint(min(least, count), min(2, count))))

    return Woven([(some(3, 1), some(3), some(i) if choose.random() < 0.4 else []) for i in range(choose.randint(2, 4))]), choose


class Passed(torch.autograd.Function):
    """The identity, which tells when a gradient comes to it."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, name: str, events: Events) -> torch.Tensor:
        ctx.name, ctx.events = name, events
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        ctx.events.append((ctx.name, gradient.tolist()))
        return gradient, None, None


def watch(module: nn.Module, events: Events) -> None:
    """Notes the calls of hooks of all parameters."""
    for name, parameter in module.named_parameters():
        parameter.register_hook(lambda grad, name=name: events.append((name, None if grad is None else grad.tolist())))
        parameter.register_post_accumulate_grad_hook(
            lambda p, name=name: events.append((f"{name} done", None if p.grad is None else p.grad.tolist()))
        )


def hear(results: Any, events: Events) -> None:
    """Notes the gradients that come to results."""
    for i, result in enumerate(results):
        result.register_hook(lambda grad, i=i: events.append((f"result {i}", grad.tolist())))


def differentiate(model: nn.Module, seed: int) -> tuple[Events, list[Any]]:
    """Runs backwards of some of the results; returns what was met, and the gradients that there are in the end."""
    choose = random.Random(seed)
    events: Events = []
    watch(model, events)
    leaves = [torch.full((4,), 0.5 + i, requires_grad=True) for i in range(3)]
    for _ in range(3):
        results = model(*(Passed.apply(leaf, f"input {i}", events) for i, leaf in enumerate(leaves)))
        hear(results, events)
        chosen = sorted(choose.sample(range(len(results)), choose.randint(1, len(results))))
        weighed = [results[i].sum() * (i + 1) for i in chosen]
        how = choose.randrange(4)
        if how == 0:
            sum(weighed).backward()
        elif how == 1:
            for loss in weighed:
                loss.backward(retain_graph=True)
        elif how == 2:
            wanted = choose.sample(leaves, 2)
            events += [("grad", repr(torch.autograd.grad(sum(weighed), wanted, allow_unused=True)))]
        else:
            sum(weighed).backward(inputs=choose.sample(leaves, 1))
        events.append(("after", how))
    return events, [leaf.grad for leaf in (*leaves, *model.parameters())]


def by_pass(events: Events) -> list[Events]:
    """Sorts what was met in each backward: that there are several chains may change the order of what is independent."""
    passes: list[Events] = [[]]
    for event in events:
        passes[-1].append(event)
        if event[0] == "after":
            passes.append([])
    return [sorted(each, key=repr) for each in passes]


@pytest.mark.parametrize("seed", range(24))
def test_any_results_lead_to_what_they_lead_to_in_eager(seed: int) -> None:
    theirs_events, theirs = differentiate(woven(seed)[0], seed)
    model = rekindle.Module(woven(seed)[0], rekindle.Options(fallback="error"))
    ours_events, ours = differentiate(model, seed)
    assert by_pass(ours_events) == by_pass(theirs_events)
    for mine, other in zip(ours, theirs, strict=True):
        assert (mine is None) == (other is None)
        torch.testing.assert_close(mine, other)


class Two(nn.Module):
    """Two layers that have nothing in common."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.first, self.second = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.first(x), self.second(z)


def steps_inside(model: nn.Module) -> Any:
    """An optimizer inside of the backward steps what the loss leads to."""

    def step(parameter: torch.Tensor) -> None:
        with torch.no_grad():
            parameter.sub_(parameter.grad, alpha=0.1)

    model(rows(), rows(1))[0].sum().backward()
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(step)
    model(rows(2), rows(3))[1].sum().backward()
    return [parameter.detach().clone() for parameter in model.parameters()]


def hook_changes(model: nn.Module) -> Any:
    """A hook that takes a gradient for granted gets one."""
    for parameter in model.parameters():
        parameter.register_hook(lambda gradient: gradient.clamp(-0.1, 0.1))
    model(rows(), rows(1))[1].pow(2).sum().backward()
    return [parameter.grad for parameter in model.parameters()]


def freed_upstream(model: nn.Module) -> Any:
    """Differentiates what made an input first, which a backward past it must not meet again."""
    encoder = nn.Linear(4, 4)
    torch.nn.init.ones_(encoder.weight)
    features = encoder(rows()).tanh()
    features.sum().backward()
    before = encoder.weight.grad.clone()
    model(features, rows(1))[1].sum().backward()
    return [before, encoder.weight.grad]


def reentrant_upstream(model: nn.Module) -> Any:
    """A reentrant checkpoint, which would give gradients of zeros."""
    encoder = nn.Linear(4, 4)
    hidden = checkpoint(encoder, rows().requires_grad_(), use_reentrant=True)
    model(hidden, rows(1))[1].sum().backward()
    return [encoder.weight.grad]


def several_threads(model: nn.Module) -> Any:
    """Nodes recorded by another thread, which the engine runs later than those of the call."""
    made = []

    def use(result: torch.Tensor) -> None:
        made.append(result * 3)

    first, second = model(rows(), rows(1))
    thread = threading.Thread(target=use, args=(second,))
    thread.start()
    thread.join()
    (first.pow(2).sum() + made[0].sum()).backward()
    return [parameter.grad for parameter in model.parameters()]


@pytest.mark.parametrize("case", [steps_inside, hook_changes, freed_upstream, reentrant_upstream, several_threads])
def test_what_the_loss_does_not_lead_to_is_left_alone(case: Callable[[nn.Module], Any]) -> None:
    model = rekindle.Module(Two(), rekindle.Options(fallback="error"))
    for mine, other in zip(case(model), case(Two()), strict=True):
        assert (mine is None) == (other is None)
        torch.testing.assert_close(mine, other)


class Crossed(nn.Module):
    """Three results: of one weight each, and of both."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = (nn.Parameter(torch.linspace(start, 2, 4)) for start in (1, -1))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return (x * self.a).tanh(), (x * self.b).tanh(), (x * self.a * self.b).exp()


@pytest.mark.parametrize("late", [(0,), (1,), (2,), (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("retain", [False, True])
def test_results_whose_gradients_come_late(late: tuple[int, ...], retain: bool) -> None:
    def train(model: nn.Module) -> list[Any]:
        x = rows().requires_grad_()
        results = list(model(x))

        def use() -> None:
            for i in late:
                results[i] = results[i] * (i + 2)

        thread = threading.Thread(target=use)
        thread.start()
        thread.join()
        total = sum(result.sum() for result in results)
        for _ in range(1 + retain):
            total.backward(retain_graph=retain)
        return [x.grad, *(parameter.grad for parameter in model.parameters())]

    model = rekindle.Module(Crossed(), rekindle.Options(fallback="error"))
    for mine, other in zip(train(model), train(Crossed()), strict=True):
        torch.testing.assert_close(mine, other)
    assert rekindle.status(model).exports == 1


class Fails(torch.autograd.Function):
    """The identity, whose backward raises for a large gradient."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        if gradient.max() > 1e6:
            raise RuntimeError("no gradient today")
        return gradient


class Failing(Two):
    """Two layers, in the backward of one of which an error waits."""

    def forward(self, x: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        first, second = super().forward(x, z)
        return first, Fails.apply(second)


def test_an_error_in_the_backward_of_one_result_leaves_the_other_as_it_is() -> None:
    def train(model: nn.Module) -> list[Any]:
        first, second = model(rows(), rows(1))
        with pytest.raises(RuntimeError, match="no gradient today"):
            (first.sum() + 1e9 * second.sum()).backward(retain_graph=True)
        model.zero_grad()
        first.sum().backward()
        return [parameter.grad for parameter in model.parameters()]

    model = rekindle.Module(Failing(), rekindle.Options(fallback="error"))
    for mine, other in zip(train(model), train(Failing()), strict=True):
        assert (mine is None) == (other is None)
        torch.testing.assert_close(mine, other)
