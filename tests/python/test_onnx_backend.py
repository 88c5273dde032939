"""rekindle.onnx_backend on ONNX's own node tests; the whole suite is `scripts/conformance onnx-node`."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import rekindle.onnx_backend as backend
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper
from onnx_node import collect, run_case
from rekindle import _native

_ROOT = Path(__file__).parents[2]
_ACCEPT = bool(os.environ.get("REKINDLE_ACCEPT"))  # read now: tests run without such variables
_REFUSED = _ROOT / "tests" / "golden" / "onnx_node_refused.txt"


@pytest.fixture(scope="module")
def cases() -> list:
    return collect()


def _one_per_op(cases: list) -> list:
    """The first test of each op: of those that several list, the one that comes with the fewest nodes."""
    found: dict[tuple, object] = {}
    for case in sorted(cases, key=lambda case: len(case.model.graph.node)):
        for node in case.model.graph.node:
            found.setdefault((node.domain, node.op_type), case)
    return list({case.name: case for case in found.values()}.values())


def test_a_case_of_each_op_is_right_or_refused(cases: list) -> None:
    refused = set(_REFUSED.read_text().split())
    results = [run_case(case) for case in _one_per_op(cases)]
    assert not [result for result in results if not result.right and result.name not in refused]
    assert sum(result.right for result in results) > 150
    assert {"planned", "interpreted"} <= {result.outcome for result in results}


def test_what_is_refused_does_not_grow(cases: list) -> None:
    refused = []
    for case in cases:
        try:
            backend.prepare(case.model)
        except _native.Unsupported:
            refused.append(case.name)
    if _ACCEPT:
        _REFUSED.write_text("".join(f"{name}\n" for name in sorted(refused)))
        pytest.fail(f"rewrote {_REFUSED}")
    assert set(refused) == set(_REFUSED.read_text().split())


def _model(nodes: list, inputs: list[str], outputs: list[str], opset: int = 20, **more: object) -> onnx.ModelProto:
    infos = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in inputs]
    results = [onnx.ValueInfoProto(name=name) for name in outputs]
    graph = helper.make_graph(nodes, "g", infos, results)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], **more)


def test_a_plan_is_made_where_sizes_follow_from_those_of_the_inputs() -> None:
    static = backend.prepare(_model([helper.make_node("Relu", ["x"], ["y"])], ["x"], ["y"]))
    assert static.run([np.float32([-1, 2])]).y.tolist() == [0, 2]
    assert static.why_interpreted == ""
    dynamic = backend.prepare(_model([helper.make_node("NonZero", ["x"], ["y"])], ["x"], ["y"]))
    assert dynamic.run({"x": np.float32([0, 2, 3])}).y.tolist() == [[1, 2]]
    assert "depend on the data" in dynamic.why_interpreted


def test_outputs_do_not_share_memory_with_inputs_or_each_other() -> None:
    x = np.float32([1, 2])
    nodes = [helper.make_node("Identity", ["x"], [name]) for name in ("y", "z")]
    y, z = backend.run_model(_model(nodes, ["x"], ["y", "z"]), [x])
    y += 1
    assert x.tolist() == [1, 2]
    assert z.tolist() == [1, 2]


def test_one_node_runs() -> None:
    node = helper.make_node("Softmax", ["x"], ["y"], axis=1)
    x = np.random.default_rng(0).random((2, 3, 4), dtype=np.float32)
    (new,) = backend.run_node(node, [x])
    # Until opset 13, of all dimensions from the axis on.
    (old,) = backend.run_node(node, [x], opset_version=11)
    np.testing.assert_allclose(new.sum(1), 1, rtol=1e-6)
    np.testing.assert_allclose(old.reshape(2, 12).sum(1), 1, rtol=1e-6)


def test_a_model_s_own_functions_are_inlined() -> None:
    body = [helper.make_node("Add", ["a", "a"], ["b"])]
    twice = helper.make_function("own", "Twice", ["a"], ["b"], body, [helper.make_opsetid("", 20)])
    model = _model([helper.make_node("Twice", ["x"], ["y"], domain="own")], ["x"], ["y"], functions=[twice])
    model.opset_import.append(helper.make_opsetid("own", 1))
    assert backend.run_model(model, [np.float32([3])]).y.tolist() == [6]


def test_refusals_name_the_node() -> None:
    node = helper.make_node("Mystery", ["x"], ["y"], name="odd", domain="com.example")
    model = _model([node], ["x"], ["y"])
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    assert not backend.is_compatible(model)
    with pytest.raises(_native.Unsupported, match=r"'odd' \(op com.example::Mystery\)"):
        backend.prepare(model)
    with pytest.raises(ValueError, match="no input"):
        backend.run_model(_model([helper.make_node("Relu", ["x"], ["y"])], ["x"], ["y"]), {"nope": np.float32([1])})
    with pytest.raises(ValueError, match="device"):
        backend.prepare(model, "CUDA")
    assert backend.supports_device("CPU") and not backend.supports_device("CUDA:0")


_FLOAT8 = ["float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"]


@pytest.mark.parametrize("dtype", ["bfloat16", *_FLOAT8, "uint16", "uint64", "complex64", "bool"])
def test_arrays_of_every_type_go_through(dtype: str) -> None:
    import ml_dtypes

    x = np.asarray([0, 1, 2]).astype(getattr(ml_dtypes, dtype, None) or np.dtype(dtype))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        (y,) = backend.run_node(helper.make_node("Identity", ["x"], ["y"]), [x])
    assert y.dtype == x.dtype
    assert y.tobytes() == x.tobytes()


def test_uint64_beyond_int64_is_right_or_refused() -> None:
    x, y = np.uint64([2**63, 1]), np.uint64([1, 2**63])

    def run(op: str) -> list:
        return backend.run_node(helper.make_node(op, ["x", "y"], ["z"]), [x, y]).z.tolist()

    assert run("Greater") == [True, False]
    assert run("Max") == [2**63, 2**63]
    assert run("Add") == [2**63 + 1] * 2
    with pytest.raises(_native.Unsupported, match="2\\^63"):
        run("Div")


def _microsoft(op: str, inputs: list, **attributes: object) -> np.ndarray:
    names = [f"i{i}" if value is not None else "" for i, value in enumerate(inputs)]
    node = helper.make_node(op, names, ["y"], domain="com.microsoft", **attributes)
    model = _model([node], [name for name in names if name], ["y"])
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return backend.run_model(model, [value for value in inputs if value is not None])[0]


def test_microsoft_s_ops_agree_with_pytorch() -> None:
    torch.manual_seed(0)
    x, skip, gamma, beta = torch.randn(2, 5, 8), torch.randn(2, 5, 8), torch.rand(8), torch.randn(8)

    def check(expected: torch.Tensor, op: str, *inputs: torch.Tensor | None, **attributes: object) -> None:
        arrays = [None if value is None else value.numpy() for value in inputs]
        np.testing.assert_allclose(_microsoft(op, arrays, **attributes), expected.numpy(), rtol=1e-4, atol=1e-5)

    check(F.gelu(x + beta), "BiasGelu", x, beta)
    check(F.gelu(x + beta, approximate="tanh"), "FastGelu", x, beta)
    check(x * torch.sigmoid(1.702 * x), "QuickGelu", x)
    check(2 * x.transpose(1, 2) @ skip, "FusedMatMul", x, skip, transA=1, alpha=2.0)
    check(
        F.layer_norm(x + skip, (8,), gamma, beta, 1e-5),
        "SkipLayerNormalization",
        x,
        skip,
        gamma,
        beta,
        epsilon=1e-5,
    )
    check(
        F.rms_norm(x + skip, (8,), gamma, 1e-5),
        "SkipSimplifiedLayerNormalization",
        x,
        skip,
        gamma,
        epsilon=1e-5,
    )
    heads = [value.view(2, 5, 2, 4).transpose(1, 2) for value in (x, skip, x)]
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]], dtype=torch.int32)
    bias = (mask == 0).view(2, 1, 1, 5) * -10000.0
    attended = F.scaled_dot_product_attention(*heads, attn_mask=bias).transpose(1, 2).flatten(2)
    check(attended, "MultiHeadAttention", x, skip, x, None, mask, num_heads=2)
    check(
        F.scaled_dot_product_attention(*heads, is_causal=True).transpose(1, 2).flatten(2),
        "MultiHeadAttention", x, skip, x, num_heads=2, unidirectional=1,
    )  # fmt: skip
    with pytest.raises(_native.Unsupported, match="attribute 'nope' is not known"):
        _microsoft("Gelu", [x.numpy()], nope=1)


INTEGERS: dict[str, tuple[str, list[Any], dict[str, Any], list[int]]] = {
    "Gemm with factors": ("Gemm", [[[3, 5]], [[4], [6]], 7], {"alpha": 0.5, "beta": 1.5}, [31]),
    "Gemm with a factor and no bias": ("Gemm", [[[3, 5]], [[4], [6]]], {"alpha": 0.5}, [21]),
    "a root": ("Pow", [[4, 9], np.array([0.5, 0.5])], {}, [2, 3]),
    "a constant root": ("Pow", [[4, 9], np.float32(0.5)], {}, [2, 3]),
    "a large sum": ("ReduceL1", [[2**60 + 1, -1]], {}, [2**60 + 2]),
}


@pytest.mark.parametrize("case", INTEGERS)
def test_integers_with_factors_that_are_none_are_rounded_at_the_end(case: str) -> None:
    op, inputs, attributes, expected = INTEGERS[case]
    node = helper.make_node(op, [f"x{i}" for i in range(len(inputs))], ["y"], **attributes)
    arrays = [np.asarray(value) for value in inputs]
    assert backend.run_node(node, arrays, opset_version=20)[0].ravel().tolist() == expected


def test_a_mask_of_another_type_is_refused() -> None:
    node = helper.make_node("Dropout", ["x"], ["y", "mask"])
    with pytest.raises(_native.Unsupported, match="the mask has the type of the input"):
        backend.run_node(node, [np.ones(2, np.float32)], opset_version=7)
