"""Weights of bitsandbytes with 4 bits: one MatMulBnb4 node each, equal to eager, cold and warm."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import onnx
import pytest
import rekindle
import torch
from module_support import assert_same
from onnx import TensorProto, helper
from rekindle import onnx_backend
from torch import nn

bitsandbytes = pytest.importorskip("bitsandbytes")
from bitsandbytes import functional as quantization  # noqa: E402

_ROWS, _COLUMNS = 24, 40


class Quantized(nn.Module):
    """A layer with adapters beside it, of which only these are trained."""

    def __init__(self, kind: str, nested: bool, size: int, bias: bool) -> None:
        super().__init__()
        torch.manual_seed(0)
        weight = torch.randn(_ROWS, _COLUMNS)
        self.base = bitsandbytes.nn.Linear4bit(_COLUMNS, _ROWS, bias=bias, compute_dtype=torch.float32, quant_type=kind)
        self.base.weight = bitsandbytes.nn.Params4bit(
            weight, requires_grad=False, quant_type=kind, compress_statistics=nested, blocksize=size
        )
        self.down, self.up = nn.Linear(_COLUMNS, 4), nn.Linear(4, _ROWS)
        self.to("cpu")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.base(x)) + self.up(self.down(x))


def _step(model: Any, module: nn.Module, shape: tuple[int, ...]) -> list[torch.Tensor | None]:
    x = torch.randn(*shape, _COLUMNS, generator=torch.Generator().manual_seed(len(shape))).requires_grad_()
    module.zero_grad()
    result = model(x)
    result.square().mean().backward()
    return [result.detach(), x.grad, *(parameter.grad for parameter in module.parameters())]


def _nodes(model: rekindle.Module) -> list[str]:
    """Sees the graphs that a model is given from now on: the ops of the last."""
    found: list[str] = []

    def look(mode: str, graph: bytes) -> None:
        found[:] = [f"{node.domain}::{node.op_type}" for node in onnx.load_model_from_string(graph).graph.node]

    model._runtime.on_graph = look
    return found


@pytest.mark.parametrize(
    ("kind", "nested", "size", "bias"),
    [
        ("nf4", True, 64, False),
        ("nf4", False, 128, True),
        ("fp4", True, 128, True),
        ("fp4", False, 64, False),
    ],
)
def test_products_are_nodes(kind: str, nested: bool, size: int, bias: bool) -> None:
    module = Quantized(kind, nested, size, bias)
    assert (module.base.weight.quant_state.nested, module.base.weight.quant_state.blocksize) == (nested, size)
    for source in ("export", "local"):
        own = copy.deepcopy(module)
        model = rekindle.Module(own, rekindle.Options(fallback="error", log="error"))
        nodes = _nodes(model)
        for shape in ((3,), (3,), (2, 5)):
            assert_same(_step(model, own, shape), _step(module, module, shape))
        assert nodes.count("com.microsoft::MatMulBnb4") == 1
        assert rekindle.status(model).source == source
        rekindle.lookup.store.flush()


def test_the_statistics_are_those_of_now() -> None:
    module = Quantized("nf4", True, 64, False)
    model = rekindle.Module(module, rekindle.Options(fallback="error", log="error"))
    before = _step(model, module, (3,))[0]
    with torch.no_grad():
        module.base.weight.quant_state.offset.add_(0.5)
        module.base.weight.data.bitwise_xor_(1)
    after = _step(model, module, (3,))
    assert not torch.allclose(before, after[0])
    assert_same(after, _step(module, module, (3,)))
    assert rekindle.status(model).eager_calls == 0


def test_what_the_node_does_not_say_is_called_back() -> None:
    module = Quantized("nf4", True, 64, False)
    model = rekindle.Module(module, rekindle.Options(fallback="error", log="error"))
    nodes = _nodes(model)
    assert_same(_step(model, module, (0,)), _step(module, module, (0,)))
    assert "com.microsoft::MatMulBnb4" not in nodes
    assert "torch::rekindle.call_host.default" in nodes


@pytest.mark.parametrize(("kind", "size"), [("nf4", 64), ("fp4", 1024)])
def test_onnx_models_with_the_node_run(kind: str, size: int) -> None:
    weight = torch.randn(_ROWS, _COLUMNS, generator=torch.Generator().manual_seed(1))
    packed, state = quantization.quantize_4bit(weight, blocksize=size, quant_type=kind)
    exact = quantization.dequantize_4bit(packed, state)
    for transposed, columns in ((1, _COLUMNS), (0, _ROWS)):
        x = torch.randn(2, 3, columns, generator=torch.Generator().manual_seed(2))
        attributes = {
            "K": _COLUMNS,
            "N": _ROWS,
            "bits": 4,
            "block_size": size,
            "quant_type": int(kind == "nf4"),
            "transB": transposed,
        }
        node = helper.make_node("MatMulBnb4", ["x", "b", "absmax"], ["y"], domain="com.microsoft", **attributes)
        kinds = {"x": TensorProto.FLOAT, "b": TensorProto.UINT8, "absmax": TensorProto.FLOAT}
        inputs = [helper.make_tensor_value_info(name, kind, None) for name, kind in kinds.items()]
        graph = helper.make_graph([node], "g", inputs, [onnx.ValueInfoProto(name="y")])
        opsets = [helper.make_opsetid("", 20), helper.make_opsetid("com.microsoft", 1)]
        model = onnx_backend.prepare(helper.make_model(graph, opset_imports=opsets))
        y = model.run([x.numpy(), packed.flatten().numpy(), state.absmax.numpy()]).y
        np.testing.assert_allclose(y, (x @ (exact.t() if transposed else exact)).numpy(), rtol=1e-4, atol=1e-5)
