"""The rules of autograd hold for the results of a wrapped module."""

from __future__ import annotations

import pytest
import torch
from module_support import Twins, assert_same, mlp, rows
from torch import nn


@pytest.fixture
def twins() -> Twins:
    return Twins(mlp(), fallback="error")


def test_gradients_accumulate_over_backwards(twins: Twins) -> None:
    for step in range(3):
        twins.call(rows(step))
    assert twins.status.plans >= 1


def test_two_forwards_before_the_backwards_keep_their_own_values(twins: Twins) -> None:
    def run(model: nn.Module) -> torch.Tensor:
        first, second = model(rows(0)), model(rows(1))
        second.square().sum().backward()
        first.square().sum().backward()
        return first + second

    theirs, ours = twins.both(run)
    assert_same(ours, theirs)
    twins.compare()


def test_one_backward_through_two_forwards(twins: Twins) -> None:
    theirs, ours = twins.both(lambda model: (model(rows(0)) * model(rows(1)) + model(rows(0))).sum())
    ours.backward()
    theirs.backward()
    twins.compare()


def test_a_retained_graph_can_be_differentiated_again(twins: Twins) -> None:
    for loss in twins.both(lambda model: model(rows()).square().mean()):
        loss.backward(retain_graph=True)
        loss.backward()
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()
    twins.compare()


def test_gradients_can_be_asked_for_without_being_accumulated(twins: Twins) -> None:
    def run(model: nn.Module) -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(model(rows()).square().sum(), [model.first.weight, model.second.bias])

    assert_same(*reversed(twins.both(run)))
    assert twins.module.first.weight.grad is None


def test_inputs_get_gradients(twins: Twins) -> None:
    inputs = [rows().requires_grad_() for _ in range(2)]
    for model, given in zip((twins.eager, twins.wrapped), inputs, strict=True):
        model(given).exp().sum().backward()
    assert_same(inputs[1].grad, inputs[0].grad)
    twins.compare()
    twins.wrapped.requires_grad_(False)
    twins.eager.requires_grad_(False)
    for model, given in zip((twins.eager, twins.wrapped), inputs, strict=True):
        model(given * 2).sum().backward()
    assert_same(inputs[1].grad, inputs[0].grad)


def test_a_sum_hidden_in_a_view_of_the_result(twins: Twins) -> None:
    theirs, ours = twins.both(lambda model: model(rows())[1:, :2].t().square().sum())
    theirs.backward()
    ours.backward()
    twins.compare()


def test_hooks_on_parameters_and_results_run(twins: Twins) -> None:
    def run(model: nn.Module) -> dict[str, torch.Tensor]:
        seen: dict[str, torch.Tensor] = {}
        model.first.weight.register_hook(lambda gradient: seen.update(first=gradient.clone()))
        model.second.weight.register_post_accumulate_grad_hook(lambda leaf: seen.update(second=leaf.grad.clone()))
        result = model(rows())
        result.register_hook(lambda gradient: gradient * 3)
        result.retain_grad()
        result.sum().backward()
        seen["result"] = result.grad
        return {name: seen[name] for name in ("first", "second", "result")}

    assert_same(*reversed(twins.both(run)))
    twins.compare()


class Partly(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Linear(4, 3)
        self.unused = nn.Linear(4, 3)
        self.register_buffer("shift", torch.arange(3.0))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.used(x), self.used(x).exp() + self.shift


def test_parameters_that_take_no_part_get_no_gradient() -> None:
    twins = Twins(Partly(), fallback="error")
    twins.call(rows())
    assert twins.module.unused.weight.grad is None
    for model in (twins.eager, twins.wrapped):
        model(rows())[1].sum().backward()  # one of two results
    twins.compare()


def test_writing_to_a_result_in_place_is_as_in_eager(twins: Twins) -> None:
    def run(model: nn.Module) -> torch.Tensor:
        result = model(rows())
        result.mul_(2).add_(1)
        result.sum().backward()
        return result.detach()

    assert_same(*reversed(twins.both(run)))
    twins.compare()


def test_parameters_written_between_forward_and_backward_are_an_error(twins: Twins) -> None:
    for result in twins.both(lambda model: model(rows())):
        with torch.no_grad():
            for model in (twins.eager, twins.module):
                model.second.weight.add_(1)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            result.sum().backward()


def test_results_outlive_the_next_calls(twins: Twins) -> None:
    results = [twins.wrapped(rows(step)).detach() for step in range(4)]
    for step, result in enumerate(results):
        assert_same(result, twins.eager(rows(step)).detach())


def deep(layers: int) -> nn.Module:
    torch.manual_seed(1)
    return nn.Sequential(*[nn.Sequential(nn.Linear(4, 4), nn.Tanh()) for _ in range(layers)])


def test_gradients_are_delivered_one_after_the_other_and_can_be_freed_at_once() -> None:
    twins = Twins(deep(6), fallback="error")

    def run(model: nn.Module) -> list[tuple[int, int]]:
        alive: list[tuple[int, int]] = []
        layers = list(model.children())

        def consume(parameter: torch.Tensor) -> None:
            layer = next(i for i, each in enumerate(layers) if any(parameter is own for own in each.parameters()))
            alive.append((layer, sum(other.grad is not None for other in model.parameters())))
            parameter.grad = None

        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(consume)
        model(rows()).sum().backward()
        return alive

    theirs, ours = twins.both(run)
    assert [layer for layer, _ in ours] == [layer for layer, _ in theirs] == sorted((layer for layer, _ in ours), reverse=True)
    assert {count for _, count in ours} == {1}


def test_more_parameters_than_there_are_deliveries() -> None:
    twins = Twins(deep(80), fallback="error")
    for step in range(2):
        twins.call(rows(step))


def test_some_gradients_of_a_chain_and_again_from_a_retained_graph() -> None:
    twins = Twins(deep(4), fallback="error")

    def run(model: nn.Module) -> list[torch.Tensor]:
        loss = model(rows()).square().sum()
        first, last = model[0][0].weight, model[3][0].bias
        found = [
            *torch.autograd.grad(loss, last, retain_graph=True),
            *torch.autograd.grad(loss, [first, last], retain_graph=True),
        ]
        return [*found, *torch.autograd.grad(loss, last)]

    for _ in range(3):
        assert_same(*reversed(twins.both(run)))
    assert twins.status.plans == 1


def test_a_pruned_backward_gives_its_memory_back() -> None:
    twins = Twins(deep(4), fallback="error")
    losses = []
    for step in range(5):
        losses.append(twins.wrapped(rows(step)).sum())  # kept alive, as a log of losses does
        torch.autograd.grad(losses[-1], twins.module[3][0].bias)
    (variant,) = next(iter(twins.wrapped._runtime._kinds)).graphs
    assert variant.session.stats()["frames"] == 1
