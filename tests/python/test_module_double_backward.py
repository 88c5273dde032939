"""A backward with create_graph=True goes through eager, and everything around it stays right."""

from __future__ import annotations

import copy
import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import torch
from module_support import Smooth, Twins, assert_same, rows, tiny_gpt, tokens
from torch import nn


def penalty(model: Any, x: torch.Tensor, **arguments: Any) -> torch.Tensor:
    """The gradient penalty of a GAN's critic; draws other random numbers before its backward."""
    x = x.clone().requires_grad_()
    score = model(x, **arguments)
    torch.rand(3)
    (gradient,) = torch.autograd.grad(score.sum(), x, create_graph=True)
    loss = score.mean() + (gradient.norm(2, dim=1) - 1).square().mean()
    loss.backward()
    return loss


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_a_gradient_penalty(dropout: float) -> None:
    torch.manual_seed(2)
    twins = Twins(Smooth(dropout), fallback="error")
    for step in range(3):
        theirs, ours = twins.both(lambda model: penalty(model, rows(step), scale=0.5))  # noqa: B023
        assert_same(ours, theirs)
        twins.compare()
    assert twins.status.eager_calls == 0
    assert twins.status.exports == 1


def test_a_product_with_the_hessian_of_a_language_model() -> None:
    twins = Twins(tiny_gpt(), fallback="error")

    def product(model: Any) -> list[torch.Tensor]:
        parameters = list(model.parameters())
        gradients = torch.autograd.grad(model(tokens(), tokens()), parameters, create_graph=True)
        return list(torch.autograd.grad(sum(gradient.square().sum() for gradient in gradients), parameters))

    # PyTorch's attention on the CPU has no second derivative, in eager either, but by its plain form.
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        assert_same(*reversed(twins.both(product)))


def test_one_of_several_results_and_a_result_without_gradient() -> None:
    class Several(Smooth):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            y = super().forward(x)
            return y, y.square().sum(), y.detach() > 0

    twins = Twins(Several(), fallback="error")

    def run(model: Any) -> Any:
        (gradient,) = torch.autograd.grad(model(rows())[1], model.second.weight, create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), [model.first.weight, model.first.bias])

    assert_same(*reversed(twins.both(run)))


def test_under_autocast() -> None:
    twins = Twins(Smooth(), fallback="error")

    def run(model: Any) -> torch.Tensor:
        x = rows().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16):
            score = model(x)
        (gradient,) = torch.autograd.grad(score.float().sum(), x, create_graph=True)
        return torch.autograd.grad(gradient.square().sum(), model.first.weight)[0]

    assert_same(*reversed(twins.both(run)))


def test_buffers_that_the_repeated_forward_writes_are_written_once() -> None:
    twins = Twins(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.Tanh()))
    for step in range(2):
        twins.both(lambda model: penalty(model, rows(step)))  # noqa: B023
        twins.compare()


CHANGES: dict[str, Callable[[Smooth], Any]] = {
    "eval": lambda model: model.eval(),
    "a child in eval": lambda model: model.drop.eval(),
    "frozen": lambda model: model.requires_grad_(False),
    "an attribute": lambda model: setattr(model.drop, "p", 0.9),
    "an attribute more": lambda model: setattr(model, "scale", 3.0),
    "another layer": lambda model: setattr(model, "second", nn.Linear(8, 3)),
    "another parameter": lambda model: setattr(model.second, "bias", nn.Parameter(torch.ones(3))),
    "a hook": lambda model: model.second.register_forward_hook(lambda module, args, output: output * 0),
    "an item of a dict": lambda model: model.options.update(power=1),
}


class Adjustable(Smooth):
    """Depends on plain attributes as well."""

    def __init__(self) -> None:
        super().__init__(0.5)
        self.options = {"power": 3}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x).pow(self.options["power"])


@pytest.mark.parametrize("name", CHANGES)
def test_a_module_that_is_changed_before_its_backward(name: str) -> None:
    torch.manual_seed(2)
    twins = Twins(Adjustable())
    twins.call(rows())

    def run(model: Any) -> list[torch.Tensor]:
        inner = getattr(model, "module", model)
        x = rows(1).requires_grad_()
        score = model(x)
        parameter = inner.first.weight
        CHANGES[name](inner)
        before = copy.copy(vars(inner)), [p.requires_grad for p in inner.parameters()]
        (gradient,) = torch.autograd.grad(score.sum(), x, create_graph=True)
        assert before == (vars(inner), [p.requires_grad for p in inner.parameters()]), "the change stays"
        return [gradient, *torch.autograd.grad(gradient.square().sum(), [x] if name == "frozen" else [x, parameter])]

    torch.manual_seed(3)
    theirs = run(copy.deepcopy(twins.eager))
    torch.manual_seed(3)
    ours = run(twins.wrapped)
    assert_same(ours, theirs)


def test_a_backward_outside_of_the_region_of_its_forward() -> None:
    twins = Twins(tiny_gpt(), fallback="error")

    def product(model: Any) -> list[torch.Tensor]:
        parameters = list(model.parameters())
        with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
            loss = model(tokens(), tokens())
        gradients = torch.autograd.grad(loss, parameters, create_graph=True)
        return list(torch.autograd.grad(sum(gradient.square().sum() for gradient in gradients), parameters))

    assert_same(*reversed(twins.both(product)))
    assert torch.backends.cuda.flash_sdp_enabled()


def test_a_class_that_is_changed_before_a_backward_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    model = rekindle.Module(Smooth(0.5), rekindle.Options(fallback="error"))
    x = rows().requires_grad_()
    score = model(x)
    monkeypatch.setattr(Smooth, "forward", lambda self, x: x * 2)
    with pytest.raises(RuntimeError, match="Smooth was changed between a forward and its backward"):
        torch.autograd.grad(score.sum(), x, create_graph=True)


def test_wrapped_modules_are_collected() -> None:
    model = rekindle.Module(Smooth(), rekindle.Options(fallback="error"))
    penalty(model, rows())
    dead = [weakref.ref(model), weakref.ref(model.module), weakref.ref(model.module.first.weight)]
    del model
    rekindle.lookup.store.flush()  # the entry that is written in the background describes the module
    gc.collect()
    assert [reference() for reference in dead] == [None, None, None]


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_many_cotangents_at_once(dropout: float) -> None:
    torch.manual_seed(2)
    twins = Twins(Smooth(dropout))
    x = rows()
    twins.call(x)
    cotangents = torch.eye(15).view(15, 5, 3)

    def gradients(model: Any) -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(model(x), [*model.parameters()], cotangents, is_grads_batched=True)

    for theirs, ours in zip(*twins.both(gradients), strict=True):
        assert_same(ours, theirs)
    theirs, ours = twins.both(
        lambda model: torch.autograd.functional.jacobian(lambda given: model(given).sum(0), x, vectorize=True)
    )
    assert_same(ours, theirs)
    assert twins.status.eager_calls == 0


class Averaging(nn.Module):
    """Writes a buffer that its result depends on."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.mean.mul_(0.9).add_(x.detach().mean(0) * 0.1)
        return torch.tanh(self.linear(x)) * self.mean


@pytest.mark.parametrize("make", [Averaging, lambda: nn.BatchNorm1d(4)], ids=["averaging", "batch norm"])
def test_a_wrapped_module_within_that_writes_a_buffer(make: Callable[[], nn.Module]) -> None:
    eager = nn.Sequential(make(), nn.Linear(4, 3))
    twin = copy.deepcopy(eager)
    ours = rekindle.Module(nn.Sequential(rekindle.Module(twin[0]), twin[1]))
    for step in range(2):
        for model, called in ((eager, eager), (twin, ours)):
            model.zero_grad()
            parameters = list(model.parameters())
            gradients = torch.autograd.grad(called(rows(step)).square().sum(), parameters, create_graph=True)
            sum(gradient.square().sum() for gradient in gradients).backward()  # type: ignore[union-attr]
        for mine, other in zip(twin.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, other.grad)
        torch.testing.assert_close(dict(twin.named_buffers()), dict(eager.named_buffers()))
    assert rekindle.status(ours).source != "eager"
