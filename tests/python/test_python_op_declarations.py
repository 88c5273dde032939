"""What is declared of autograd Functions: reuse of memory, shapes, inlining; wrong declarations are errors."""

from __future__ import annotations

from typing import Any

import pytest
import rekindle
import torch
from python_op_support import LOG, told_pointers
from rekindle.errors import PythonOpError
from semantics_support import made_of, rows
from torch import nn
from torch.autograd import Function

pointers = pytest.fixture(told_pointers)


class Sees(Function):
    """Tells where its input and its cotangent lie."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, name: str) -> torch.Tensor:
        LOG.info("%s at %d", name, x.data_ptr())
        ctx.name = name
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        LOG.info("%s at %d", f"gradient of {ctx.name}", gradient.data_ptr())
        return gradient * 2, None


class Runs(Function):
    """Tells that it runs; what is inlined must not ask where tensors lie."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        LOG.info("%s at %d", "forward", 1)
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        LOG.info("%s at %d", "backward", 1)
        return gradient * 2


class RunsStraightThrough(Runs):
    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient


class Hands(Sees):
    """Hands its cotangent on."""

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        LOG.info("%s at %d", f"gradient of {ctx.name}", gradient.data_ptr())
        return gradient, None


def function(forward: Any, backward: Any = lambda ctx, gradient: gradient, **attributes: Any) -> Any:
    return type("Made", (Function,), {"forward": staticmethod(forward), "backward": staticmethod(backward), **attributes})


def _itself(ctx: Any, x: torch.Tensor) -> torch.Tensor:
    LOG.info("%s at %d", "given", x.data_ptr())
    return x.view_as(x)


def _in_place(ctx: Any, x: torch.Tensor) -> torch.Tensor:
    LOG.info("%s at %d", "given", x.data_ptr())
    ctx.mark_dirty(x)
    return x.mul_(2)


def module_with(kind: Any) -> nn.Module:
    return made_of(
        lambda self, x: Sees.apply(self.kind.apply(Sees.apply(self.a(x), "before")), "after"),
        lambda self: setattr(self, "kind", kind),
    )()


def steps(module: nn.Module, count: int = 2) -> rekindle.Module:
    model = rekindle.Module(module, rekindle.Options(fallback="error"))
    for step in range(count):
        module.zero_grad()
        ours = model(rows(step))
        ours.square().sum().backward()
        gradient, module.a.weight.grad = module.a.weight.grad, None
        theirs = module(rows(step))
        theirs.square().sum().backward()
        torch.testing.assert_close(ours, theirs)
        torch.testing.assert_close(gradient, module.a.weight.grad)
    ours = model(rows())  # the last to be told of
    ours.square().sum().backward()
    return model


@pytest.mark.parametrize("forward", [_itself, _in_place])
def test_undeclared_reuse_is_copied_with_one_warning_that_prints_the_declaration(
    forward: Any, pointers: dict[str, int], capfd: pytest.CaptureFixture[str]
) -> None:
    steps(module_with(function(forward)), 3)
    assert pointers["given"] != pointers["after"] or forward is _in_place
    told = [line for line in capfd.readouterr().err.splitlines() if "inplace_map" in line]
    assert len(told) == 1
    assert "rekindle.register_python_op(Made, inplace_map={0: 0})" in told[0]


@pytest.mark.parametrize("forward", [_itself, _in_place])
def test_declared_reuse_is_not_copied(forward: Any, pointers: dict[str, int], capfd: pytest.CaptureFixture[str]) -> None:
    declared = function(forward)
    assert rekindle.register_python_op(declared, inplace_map={0: 0}) is declared
    steps(module_with(declared))
    assert pointers["given"] == pointers["after"]
    assert "inplace_map" not in capfd.readouterr().err


def test_a_gradient_that_is_handed_on_is_not_copied(pointers: dict[str, int]) -> None:
    steps(made_of(lambda self, x: Hands.apply(Hands.apply(self.a(x), "before"), "after"))())
    assert pointers["gradient of before"] == pointers["gradient of after"]


def test_a_false_declaration_is_an_error() -> None:
    model = rekindle.Module(module_with(function(lambda ctx, x: x * 2, inplace_map={0: 0})))
    with pytest.raises(PythonOpError, match=r"inplace_map=\{0: 0\} is declared for the autograd Function Made, but in this call"):
        model(rows())


def test_a_declaration_that_becomes_false_is_an_error() -> None:
    module = made_of(
        lambda self, x: self.kind.apply(self.a(x).t() if x.shape[0] == 3 else self.a(x)),
        lambda self: setattr(self, "kind", function(lambda ctx, x: x.contiguous(), inplace_map={0: 0})),
    )()
    model = rekindle.Module(module)
    model(rows())
    with pytest.raises(PythonOpError, match="memory of its own"):
        model(rows(0, 3, 4))


def test_a_declaration_of_what_is_no_tensor_is_an_error() -> None:
    model = rekindle.Module(made_of(lambda self, x: Sees.apply(self.a(x), "x"))())
    rekindle.register_python_op(Sees, inplace_map={0: 1})
    try:
        with pytest.raises(PythonOpError, match=r"says that output 0 reuses input 1, but .* the tensors are \[0\]"):
            model(rows())
    finally:
        rekindle.register_python_op(Sees)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"inplace_map": {"0": 0}}, "maps positions of outputs to positions of inputs"),
        ({"inplace_map": {0: -1}}, "maps positions of outputs to positions of inputs"),
        ({"inplace_map": [0]}, "maps positions of outputs to positions of inputs"),
        ({"infer_shape": 3}, "infer_shape of the autograd Function Made is 3, which cannot be called"),
        ({"export": "MatMul"}, "export of the autograd Function Made is 'MatMul', which cannot be called"),
        ({"inline": 1}, "it must be True or False"),
        ({"inline": True, "export": print}, "both inline=True and an export"),
    ],
)
def test_bad_declarations_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(PythonOpError, match=message):
        rekindle.register_python_op(function(_itself), **arguments)


def test_only_functions_have_declarations() -> None:
    with pytest.raises(PythonOpError, match=r"takes a subclass of torch\.autograd\.Function, not <class 'torch"):
        rekindle.register_python_op(nn.Linear, inplace_map={0: 0})


def test_a_changed_registration_is_a_miss() -> None:
    module = made_of(lambda self, x: Runs.apply(self.a(x)))()
    for inline in (None, True):
        rekindle.register_python_op(Runs, inline=inline)
        for source in ("export", "local"):
            model = rekindle.Module(module)
            model(rows())
            assert rekindle.status(model).source == source
            rekindle.lookup.store.flush()
    rekindle.register_python_op(Runs)
    model(rows())
    assert rekindle.status(model).source == "local", "the graph of before is looked up again, in the same process too"


def test_inlining_everything_is_an_option(pointers: dict[str, int]) -> None:
    module = made_of(lambda self, x: Runs.apply(self.a(x)))()
    model = rekindle.Module(module, rekindle.Options(inline_functions=True, fallback="error"))
    pointers.clear()
    model(rows()).sum().backward()
    pointers.clear()
    result = model(rows())
    result.sum().backward()
    assert pointers == {}
    torch.testing.assert_close(module.a.bias.grad, torch.full((4,), 20.0))  # two calls on five rows, each with derivative 2


def test_inlining_a_function_with_a_gradient_of_its_own_is_found_out() -> None:
    module = made_of(lambda self, x: RunsStraightThrough.apply(self.a(x)))()
    model = rekindle.Module(module, rekindle.Options(inline_functions=True))
    model(rows()).sum().backward()
    assert [code for code, _ in rekindle.status(model).bypass] == ["verification_failed"]
    torch.testing.assert_close(module.a.bias.grad, torch.full((4,), 5.0))


def test_infer_shape_lets_a_plan_serve_other_sizes() -> None:
    kind = function(
        lambda ctx, x: x[:, :2] * 2, lambda ctx, gradient: nn.functional.pad(gradient, (0, 2)) * 2, infer_shape=lambda x: x[:, :2]
    )
    module = made_of(lambda self, x: self.kind.apply(self.a(x)), lambda self: setattr(self, "kind", kind))()
    model = rekindle.Module(module, rekindle.Options(fallback="error"))
    model(rows())
    ((variant,),) = [kind.graphs for kind in model._runtime._kinds]
    other = rows(1, 7, 4)
    inputs = [other, *(variant.state[i - 1] for i in variant.used[1:])]
    (result,) = variant.session.forward(inputs, True)
    result.sum().backward()
    gradient, module.a.weight.grad = module.a.weight.grad, None
    expected = module(other)
    expected.sum().backward()
    torch.testing.assert_close(result, expected)
    torch.testing.assert_close(gradient, module.a.weight.grad)
