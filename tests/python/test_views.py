"""Outputs that share memory with inputs, state or each other, and inputs that a forward writes: as in eager, cold and warm."""

from __future__ import annotations

import copy
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import torch
from views_support import Forward, Model, numbers, run


class Reversed(torch.autograd.Function):
    """Returns a view of its input whose gradient is not that of a view."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return -gradient


def several_of_a_hidden_one(self: Model, x: torch.Tensor) -> Any:
    y = self.a(x)
    return y[:2], {"rest": y[2:], "same": y[2:]}


def of_one_that_was_written(self: Model, x: torch.Tensor) -> Any:
    y = self.a(x)
    y[:2].mul_(2)
    return y[:2], y


def of_one_in_another_order(self: Model, x: torch.Tensor) -> Any:
    y = self.a(x).t() * 2
    return y, y[:2]


def output_and(view: Callable[[torch.Tensor], Any]) -> Forward:
    def forward(self: Model, x: torch.Tensor) -> Any:
        y = self.a(x).tanh()
        return y, view(y)

    return forward


def also(view: Callable[[torch.Tensor], Any]) -> Forward:
    return lambda self, x: (view(x), self.a(x))


def clamped_without_gradient(self: Model, x: torch.Tensor) -> Any:
    with torch.no_grad():
        x.clamp_(min=0)
    return self.a(x), x[1]


def written_in_places(self: Model, x: torch.Tensor) -> Any:
    x[:, 0] = 0
    x[1].mul_(2)
    return self.a(x), x[:2]


GRAPHS: dict[str, tuple[Forward, torch.Tensor]] = {
    "rows of an input": (also(lambda x: x[:2]), numbers(5, 4)),
    "rows of an input with a gradient": (also(lambda x: x[:2]), numbers(5, 4, grad=True)),
    "views of views": (also(lambda x: [x.t()[1], x[None]]), numbers(5, 4, grad=True)),
    "parts of an input": (also(lambda x: x.chunk(2, 1)), numbers(5, 4, grad=True)),
    "a detached input": (also(lambda x: [x.detach(), x.detach()[1:]]), numbers(5, 4, grad=True)),
    "rows of a table": (lambda self, x: (self.table[:2], self.a(x)), numbers(5, 4)),
    "a transposed parameter": (lambda self, x: (self.a.weight.t(), self.a(x)), numbers(5, 4)),
    "rows of every second column": (also(lambda x: x[1:]), numbers(5, 8)[:, ::2]),
    "rows of a transposed input": (also(lambda x: x[1:]), numbers(4, 5).t()),
    "rows of an expanded input": (also(lambda x: x[1:]), numbers(1, 4).expand(5, 4)),
    "rows of an input that overlaps itself": (also(lambda x: x[1:]), numbers(8).unfold(0, 4, 1)),
    "rows of a column of a wide input": (also(lambda x: x[1:]), numbers(5, 4, 100)[:, :, 7]),
    "an output and views of it": (output_and(lambda y: [y[:2], y.t(), y[0].expand(3, 4)]), numbers(5, 4, grad=True)),
    "an output and a detached one": (output_and(lambda y: y.detach()), numbers(5, 4)),
    "parts of a hidden output": (lambda self, x: self.a(x).chunk(2), numbers(6, 4, grad=True)),
    "views of a hidden output": (several_of_a_hidden_one, numbers(5, 4, grad=True)),
    "views of an output that was written": (of_one_that_was_written, numbers(5, 4)),
    "views of an output in another order": (of_one_in_another_order, numbers(5, 4)),
    "a written input": (lambda self, x: self.a(x.mul_(2)), numbers(5, 4)),
    "a written input with gaps": (lambda self, x: self.a(x.mul_(2)), numbers(4, 5).t()),
    "a written and returned input": (lambda self, x: (x.add_(1), self.a(x)), numbers(5, 4)),
    "an input written in places": (written_in_places, numbers(5, 4)),
    "an input written without gradient": (clamped_without_gradient, numbers(5, 4)),
}


def made_without_gradient(self: Model, x: torch.Tensor) -> Any:
    with torch.no_grad():
        view = x[:2]
    return view, self.a(x)


EAGER: dict[str, tuple[Forward, torch.Tensor, str]] = {
    "a view with a gradient of its own": (
        lambda self, x: (Reversed.apply(x), self.a(x)),
        numbers(5, 4, grad=True),
        "unsupported_output",
    ),
    "a view made without gradient": (made_without_gradient, numbers(5, 4, grad=True), "unsupported_output"),
    "an input written with a gradient": (lambda self, x: x.copy_(self.a(x.clone())) * 2, numbers(5, 4), "input_mutated"),
    "an input that requires a gradient": (lambda self, x: self.a(x.mul_(2)), numbers(5, 4, grad=True), "input_mutated"),
    "an expanded input": (lambda self, x: self.a(x.mul_(2)), numbers(1, 4).expand(5, 4), "export_failed"),
    "windows that overlap": (
        lambda self, x: self.a(x).unfold(0, 2, 1).clamp_(-0.1, 0.1),
        numbers(5, 4),
        "unsupported_op",
    ),
    "no tensor": (lambda self, x: (x.shape[0], "name"), numbers(5, 4), "unsupported_output"),
    "nothing": (lambda self, x: None, numbers(5, 4), "unsupported_output"),
    "views of an input only": (lambda self, x: x[1:], numbers(5, 4, grad=True), "unsupported_output"),
}


def refuses_strides(self: Model, x: torch.Tensor) -> torch.Tensor:
    return self.a(x.view(10, 2).view(5, 4))


def detached_parts(self: Model, x: torch.Tensor) -> Any:
    keys, values = self.a(x).chunk(2, -1)
    return (keys * values).sum(-1), keys.detach(), values.detach()


def detached_ends(self: Model, x: torch.Tensor) -> Any:
    y = self.a(x)
    return y[-1].detach(), y[0].detach()


EAGER["detached parts of one hidden row"] = (detached_parts, numbers(1, 4), "unsupported_output")
EAGER["detached ends of a hidden output"] = (detached_ends, numbers(3, 4), "unsupported_output")
EAGER["an input that cannot be viewed"] = (refuses_strides, numbers(4, 5).t(), "export_failed")


@pytest.mark.parametrize("name", GRAPHS)
def test_shared_memory_is_eagers(name: str) -> None:
    status = run(*GRAPHS[name])
    assert (status.source, status.bypass) == ("local", [])


@pytest.mark.parametrize(
    "name", ["rows of an input with a gradient", "an output and views of it", "parts of a hidden output", "a written input"]
)
def test_shared_memory_is_eagers_without_gradients(name: str) -> None:
    status = run(*GRAPHS[name], grad=False)
    assert (status.source, status.bypass) == ("local", [])


@pytest.mark.parametrize("name", EAGER)
def test_what_strides_cannot_say_stays_in_eager(name: str) -> None:
    forward, given, reason = EAGER[name]
    status = run(forward, given)
    assert (status.source, [code for code, _ in status.bypass]) == ("eager", [reason])


def test_a_written_input_that_shares_memory_with_another_runs_in_eager(tmp_path: pathlib.Path) -> None:
    def forward(self: Model, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        x.mul_(2)
        return self.a(x) + y

    torch.manual_seed(0)
    module = Model(forward)
    model = rekindle.Module(copy.deepcopy(module), rekindle.Options(log="error", cache_dir=tmp_path))
    for shared in (False, True):
        results = []
        for each in (module, model):
            x = numbers(5, 4)
            y = x.view(5, 4) if shared else numbers(5, 4)
            results.append([each(x, y), x, y])
        torch.testing.assert_close(results[1], results[0])
        assert rekindle.status(model).source == ("eager" if shared else "export")
    assert [code for code, _ in rekindle.status(model).bypass] == ["input_mutated"]


def test_a_differentiable_backward_of_views_and_written_inputs() -> None:
    def forward(self: Model, x: torch.Tensor, y: torch.Tensor) -> Any:
        y.mul_(2)
        z = self.a(x).tanh() * y
        return z[:2], z[2:].square(), x[1:]

    torch.manual_seed(0)
    module = Model(forward)
    model = rekindle.Module(copy.deepcopy(module), rekindle.Options(fallback="error", log="error"))
    results = []
    for each in (module, model):
        x, y = numbers(5, 4, grad=True), numbers(5, 4)
        first, second, third = each(x, y)
        loss = first.sum() + second.sum() + third.pow(3).sum()
        [gradient] = torch.autograd.grad(loss, [x], create_graph=True)
        (loss + gradient.square().sum()).backward()
        results.append([gradient.detach(), x.grad, y, each.a.weight.grad])
    torch.testing.assert_close(results[1], results[0])


def test_views_of_an_input_without_elements_are_its_views(tmp_path: pathlib.Path) -> None:
    for source in ("export", "local"):
        wrapped = rekindle.Module(Model(lambda self, x: (x[:0].view(0, 2, 2), x * 2)), rekindle.Options(cache_dir=tmp_path))
        x = numbers(0, 4, grad=True)
        for grad in (False, True):
            with torch.set_grad_enabled(grad):
                view, doubled = wrapped(x)
            assert view._base is x
            assert (view.shape, view.requires_grad, doubled.requires_grad) == ((0, 2, 2), True, grad)
        assert rekindle.status(wrapped).source == source
