"""What is declared of autograd Functions: reuse of memory, shapes, inlining, exports; wrong declarations are errors."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import rekindle
import torch
from rekindle.errors import PythonOpError
from semantics_support import made_of, rows
from torch import nn
from torch.autograd import Function

LOG = logging.getLogger("declarations")
LOG.setLevel(logging.INFO)
LOG.propagate = False  # pytest keeps what it sees


class Pointers(logging.Handler):
    """The addresses that Functions log, by what they are of."""

    def __init__(self) -> None:
        super().__init__()
        self.last: dict[str, int] = {}

    def emit(self, record: logging.LogRecord) -> None:
        what, pointer = record.args  # type: ignore[misc]
        self.last[what] = pointer


@pytest.fixture
def pointers() -> Iterator[dict[str, int]]:
    handler = Pointers()
    LOG.addHandler(handler)
    yield handler.last
    LOG.removeHandler(handler)


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


_factor = 2.0


@torch.library.custom_op("rekindle_tests::scaled", mutates_args=())
def scaled(x: torch.Tensor) -> torch.Tensor:
    """Its implementation and its derivative read a global."""
    return x * _factor


scaled.register_fake(torch.empty_like)
scaled.register_autograd(lambda ctx, gradient: gradient * _factor)


@pytest.mark.filterwarnings("ignore")
def test_an_operator_decorated_in_place_runs_in_the_graph_and_its_code_is_in_the_key(monkeypatch: pytest.MonkeyPatch) -> None:
    module = made_of(lambda self, x: scaled(self.a(x)))()
    for factor, source in ((2.0, "export"), (2.0, "local"), (3.0, "export"), (3.0, "local")):
        monkeypatch.setattr(sys.modules[__name__], "_factor", factor)
        model = rekindle.Module(module, rekindle.Options(fallback="error"))
        module.zero_grad()
        model(rows()).sum().backward()
        torch.testing.assert_close(module.a.bias.grad, torch.full((4,), 5.0 * factor))
        torch.testing.assert_close(model(rows()), module(rows()))
        assert rekindle.status(model).source == source
        rekindle.lookup.store.flush()
    monkeypatch.setattr(scaled, "_backward_fn", lambda ctx, gradient: gradient * 7)
    model = rekindle.Module(module, rekindle.Options(fallback="error"))
    module.zero_grad()
    model(rows()).sum().backward()
    assert rekindle.status(model).source == "export"
    torch.testing.assert_close(module.a.bias.grad, torch.full((4,), 35.0))


@torch.library.custom_op("rekindle_tests::matmul_quantized", mutates_args=())
def _quantized(x: torch.Tensor, packed: torch.Tensor, scale: float) -> torch.Tensor:
    return x @ (packed.to(x.dtype) * scale).t()


@_quantized.register_fake
def _(x: torch.Tensor, packed: torch.Tensor, scale: float) -> torch.Tensor:
    return x.new_empty(x.shape[0], packed.shape[0])


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.packed, ctx.scale = inputs[1], inputs[2]


_quantized.register_autograd(
    lambda ctx, gradient: (gradient @ (ctx.packed.to(gradient.dtype) * ctx.scale), None, None), setup_context=_save
)


class QuantizedMatMul(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, packed: torch.Tensor, scale: float) -> torch.Tensor:
        LOG.info("%s at %d", "called", 1)
        ctx.packed, ctx.scale = packed, scale
        return x @ (packed.to(x.dtype) * scale).t()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient @ (ctx.packed.to(gradient.dtype) * ctx.scale), None, None


def _export(x: torch.Tensor, packed: torch.Tensor, scale: float) -> torch.Tensor:
    return torch.ops.rekindle_tests.matmul_quantized(x, packed, scale)


def test_an_export_names_an_operator_with_a_kernel_of_its_own(pointers: dict[str, int]) -> None:
    rekindle.register_python_op(QuantizedMatMul, export=_export)
    packed = torch.randint(-8, 8, (6, 4), dtype=torch.int8)
    module = made_of(
        lambda self, x: QuantizedMatMul.apply(self.a(x), self.packed, 0.25).relu(),
        lambda self: self.register_buffer("packed", packed),
    )()
    model = rekindle.Module(module, rekindle.Options(fallback="error"))
    model(rows())
    pointers.clear()
    result = model(rows())
    result.sum().backward()
    assert pointers == {}, "the Function itself is not called"
    gradient, module.a.weight.grad = module.a.weight.grad, None
    module(rows()).sum().backward()
    torch.testing.assert_close(gradient, module.a.weight.grad)
    ((kind,),) = [[variant.session.describe_plan() for variant in kind.graphs] for kind in model._runtime._kinds]
    assert "rekindle_tests.matmul_quantized.default" in kind


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
