"""Operators in graphs: one that is decorated in place, and one that an autograd Function's export names, with its own kernel."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import rekindle
import torch
from python_op_support import LOG, told_pointers
from semantics_support import made_of, rows
from torch.autograd import Function

pointers = pytest.fixture(told_pointers)


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
