"""Writes ops for torch's TorchScript exporter: what must stay whole, and what must become explicit.

The functions are registered for the duration of one export only. Ops are those of docs/ir.md; types have no sizes where these are
left open. An example: `x.detach()`, which the exporter would drop, becomes rekindle::StopGradient(x).
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.onnx import symbolic_helper

from rekindle.export.torchscript.decompositions import DECOMPOSITIONS
from rekindle.export.torchscript.symbolic_arguments import constant, is_none
from rekindle.export.trace.traced_operators import has_open_sizes, sizes_if_seen, sizes_seen
from rekindle.process.process_state import changed
from rekindle.process.torch_internals import symbolic_functions
from rekindle.reasons import Bypass, Reason

OPSET = 20
_FLOAT32 = 1  # numbers of dtypes in ONNX
_REDUCED = {"Half": 10, "BFloat16": 16}


def _like(g: Any, result: Any) -> Any:
    """Gives `result` the type that tracing saw, so that the exporter's own symbolics know its shape."""
    result.setType(g.original_node.output().type())
    return result


def _traced(g: Any, i: int) -> Any:
    """Returns the type that tracing saw for argument i; the values of the new graph may have lost theirs."""
    return list(g.original_node.inputs())[i].type()


def linear(g: Any, x: Any, weight: Any, bias: Any) -> Any:
    """Writes aten::linear whole: its gradients are three matrix products. A weight of one dimension gives a product only."""
    if _traced(g, 1).dim() == 1:
        product = g.op("MatMul", x, weight)
        return _like(g, product if is_none(bias) else g.op("Add", product, bias))
    inputs = [x, weight] if is_none(bias) else [x, weight, bias]
    return _like(g, g.op("rekindle::Linear", *inputs))


def silu(g: Any, x: Any) -> Any:
    """Writes aten::silu whole: of x * sigmoid(x) the gradient would be dy * x first, which overflows where PyTorch's does not."""
    return _like(g, g.op("rekindle::Silu", x))


def broadcast_to(g: Any, x: Any, sizes: Any) -> Any:
    """Writes aten::broadcast_to, which the exporter does not know, as aten::expand."""
    expand = symbolic_functions(OPSET)("aten::expand")
    assert expand is not None
    return expand(g, x, sizes, None)


def detach(g: Any, x: Any) -> Any:
    """Writes aten::detach, which ONNX would drop: no gradient passes."""
    return _like(g, g.op("rekindle::StopGradient", x))


def straight_through(g: Any, value: Any, x: Any) -> Any:
    """Writes the value of one tensor with the gradient of another."""
    return _like(g, g.op("rekindle::StraightThrough", value, x))


def embedding(g: Any, weight: Any, indices: Any, padding_idx: Any, scale_grad_by_freq: Any, sparse: Any) -> Any:
    """Writes aten::embedding whole, as a Gather has no `padding_idx`: the row without a gradient."""
    if constant(scale_grad_by_freq, "b", "scale_grad_by_freq") or constant(sparse, "b", "sparse"):
        raise Bypass(Reason.UNSUPPORTED_OP, "embedding with scale_grad_by_freq or sparse gradients; switch them off")
    padding = constant(padding_idx, "i", "padding_idx")
    return _like(g, g.op("rekindle::Embedding", weight, indices, padding_idx_i=padding))


def cross_entropy_loss(
    g: Any, scores: Any, target: Any, weight: Any, reduction: Any, ignore_index: Any, label_smoothing: Any
) -> Any:
    """Writes aten::cross_entropy_loss with class indices as targets."""
    if target.type().scalarType() != "Long":
        raise Bypass(Reason.UNSUPPORTED_OP, "cross_entropy with class probabilities as targets; pass class indices")
    inputs = [scores, target] if is_none(weight) else [scores, target, weight]
    loss, _ = g.op(
        "rekindle::CrossEntropyLoss",
        *inputs,
        outputs=2,
        reduction_s=("none", "mean", "sum")[constant(reduction, "i", "reduction")],
        ignore_index_i=constant(ignore_index, "i", "ignore_index"),
        label_smoothing_f=float(constant(label_smoothing, "f", "label_smoothing")),
    )
    return _like(g, loss)


def scaled_dot_product_attention(
    g: Any, query: Any, key: Any, value: Any, mask: Any, dropout: Any, causal: Any, scale: Any, gqa: Any = None
) -> Any:
    """Writes aten::scaled_dot_product_attention, whole where our op computes the same, else in parts."""
    if gqa is not None and not is_none(gqa) and constant(gqa, "b", "enable_gqa"):
        raise Bypass(Reason.UNSUPPORTED_OP, "scaled_dot_product_attention with enable_gqa; repeat the heads instead")
    shapes = [sizes_seen(value) for value in list(g.original_node.inputs())[:3]]  # the op checks its own
    factor = 1.0 / math.sqrt(shapes[0][-1]) if is_none(scale) else float(constant(scale, "f", "scale"))
    probability = float(constant(dropout, "f", "dropout_p"))
    is_causal = bool(constant(causal, "b", "is_causal"))
    masked = not is_none(mask)
    whole = (
        probability == 0.0
        and all(len(shape) == 4 for shape in shapes)
        and shapes[0][-1] == shapes[2][-1]
        and shapes[0][:2] == shapes[1][:2] == shapes[2][:2]
        and not (masked and mask.type().requires_grad())
        and (is_none(scale) or float(f"{factor:.7g}") == factor or _traced(g, 0).scalarType() != "Double")
    )
    if not whole:
        return _like(g, _attention_in_parts(g, (query, key, value), mask if masked else None, probability, is_causal, factor))
    inputs = [query, key, value, mask] if masked else [query, key, value]
    # The default scale is left out: an attribute of an ONNX model has the precision of float32 only.
    attributes = {"is_causal_i": int(is_causal)} | ({} if is_none(scale) else {"scale_f": factor})
    result, _ = g.op("rekindle::ScaledDotProductAttention", *inputs, outputs=2, **attributes)
    return _like(g, result)


def _lengths(g: Any, query: Any, key: Any) -> Any:
    """Returns the lengths of both sequences as a vector. Sizes that are known are constants.

    What the exporter infers from a part of a shape is that of the whole, and it crashes on it later.
    """
    traced = list(g.original_node.inputs())[:2]
    if not any(map(has_open_sizes, traced)):
        return g.op("Constant", value_t=torch.tensor([sizes_seen(value)[-2] for value in traced], device="cpu"))
    return g.op("Concat", *(g.op("Shape", x, start_i=-2, end_i=-1) for x in (query, key)), axis_i=0)


def _attention_in_parts(g: Any, inputs: tuple[Any, Any, Any], mask: Any, probability: float, causal: bool, factor: float) -> Any:
    """Writes aten::_scaled_dot_product_attention_math in at least float32.

    Both sides are scaled by the root; then come softmax, dropout and product. inputs: query, key and value.
    """
    query, key, value = inputs
    dtype = torch.float64 if _traced(g, 0).scalarType() == "Double" else torch.float32
    reduced = _traced(g, 0).scalarType() in _REDUCED
    if reduced:
        query, key, value = (g.op("Cast", x, to_i=_FLOAT32) for x in (query, key, value))

    def number(x: float) -> Any:
        return g.op("Constant", value_t=torch.tensor(x, dtype=dtype, device="cpu"))

    root = number(math.sqrt(factor))
    rank = _traced(g, 0).dim()
    turn = [*range(rank - 2), rank - 1, rank - 2]
    scores = g.op("MatMul", g.op("Mul", query, root), g.op("Transpose", g.op("Mul", key, root), perm_i=turn))
    if causal:
        sizes = _lengths(g, query, key)
        everywhere = g.op("Expand", g.op("Constant", value_t=torch.ones(1, 1, dtype=torch.bool, device="cpu")), sizes)
        mask = g.op("Trilu", everywhere, upper_i=0)
    if mask is not None and (causal or _traced(g, 3).scalarType() == "Bool"):
        mask = g.op("Where", mask, number(0.0), number(-math.inf))
    elif mask is not None and reduced:
        mask = g.op("Cast", mask, to_i=_FLOAT32)
    weights = g.op("Softmax", scores, axis_i=-1) if mask is None else _safe_softmax(g, g.op("Add", scores, mask), number)
    if probability > 0.0:
        ratio = g.op("Constant", value_t=torch.tensor(probability, dtype=torch.float64, device="cpu"))
        weights, _ = g.op("Dropout", weights, ratio, g.op("Constant", value_t=torch.tensor(True, device="cpu")), outputs=2)
    result = g.op("MatMul", weights, value)
    return g.op("Cast", result, to_i=_REDUCED[_traced(g, 0).scalarType()]) if reduced else result


def _safe_softmax(g: Any, scores: Any, number: Callable[[float], Any]) -> Any:
    """Writes aten::_safe_softmax: zeros, and no gradient, for rows of minus infinity alone."""
    highest = g.op("ReduceMax", scores, g.op("Constant", value_t=torch.tensor([-1], device="cpu")), keepdims_i=1)
    masked = g.op("Equal", highest, number(-math.inf))
    weights = g.op("Softmax", g.op("Where", masked, number(0.0), scores), axis_i=-1)
    return g.op("Where", masked, number(0.0), weights)


def _assigned(g: Any, x: Any, values: Any) -> Any:
    """Writes what copy_ leaves in all of x."""
    return g.op("rekindle::ExpandLike", g.op("CastLike", values, x), x)


def _in_shape_of_places(g: Any, x: Any, places: list[Any], values: Any) -> Any:
    """Gives values the shape of what they are written to: an index that the model took alone is a vector of one here."""
    together = places[0]
    for place in places[1:]:
        together = g.op("Add", together, place)
    first, end = (g.op("Constant", value_t=torch.tensor([number], device="cpu")) for number in (len(places), 1 << 31))
    rest = g.op("Slice", g.op("Shape", x), first, end)  # torch's own inference of shapes does not read Shape's attribute `start`
    shape = g.op("Concat", g.op("Shape", together), rest, axis_i=0)
    if _is_repeated(g, places):
        return g.op("Expand", values, shape)
    return g.op("Reshape", values, shape, allowzero_i=1)  # see reshape()


def _is_repeated(g: Any, places: list[Any]) -> bool:
    """Tells whether there is one value, or fewer than places, as far as the trace knows their numbers.

    It does not know the places that a pass has made.
    """
    x, traced, values = list(g.original_node.inputs())[:3]
    given, among = sizes_if_seen(values), sizes_if_seen(x)
    where = [sizes_if_seen(a) or b.type().sizes() for a, b in zip(traced.node().inputs(), places, strict=True)]
    if given is not None and among is not None and None not in where:
        wanted = math.prod(torch.broadcast_shapes(*where)) * math.prod(among[len(where) :])
        return math.prod(given) == 1 or math.prod(given) < wanted
    return given is not None and math.prod(given) == 1


def index_put(g: Any, x: Any, indices: Any, values: Any, accumulate: Any = None) -> Any:
    """Writes an assignment to all or part of a tensor, as the exporter makes it, of values of any dtype.

    The model's own index_put never comes here.
    """
    places = symbolic_helper._unpack_list(indices) if symbolic_helper._is_packed_list(indices) else [indices]
    if not places:
        return _assigned(g, x, values)
    adds = accumulate is not None and not is_none(accumulate) and constant(accumulate, "b", "accumulate")
    if not any(place.type().scalarType() in ("Bool", "Byte") for place in places):  # those that a mask chooses are not counted
        values = _in_shape_of_places(g, x, places, values)
    if values.type().scalarType() != x.type().scalarType():
        values = g.op("CastLike", values, x)
    result = g.op(
        "torch::aten.index_put.default", x, *places, values, indices_i=len(places), accumulate_i=int(adds),
        _results_i=1, _differentiable_i=[0], _random_i=0,
    )  # fmt: skip
    result.setType(x.type())
    return result


def reshape(g: Any, x: Any, sizes: Any, *others: Any) -> Any:
    """Writes a view in other sizes. A size of 0 means no elements.

    To ONNX's Reshape it would mean the input's size, and torch's inference of shapes, which then divides by 0, would end the
    process.
    """
    known = symbolic_helper._maybe_get_const(sizes, "is")
    if symbolic_helper._is_packed_list(sizes):
        known = [symbolic_helper._maybe_get_const(size, "i") for size in symbolic_helper._unpack_list(sizes)]
    numbers = [size for size in known if isinstance(size, int)] if isinstance(known, (list, tuple)) else []
    is_empty = 0 in numbers or 0 in (x.type().sizes() or ())
    return symbolic_helper._reshape_helper(g, x, sizes, allowzero=int(is_empty and -1 not in numbers))


def matmul_bnb4(g: Any, x: Any, packed: Any, absmax: Any, *numbers: Any) -> Any:
    """Writes the product with a weight of four bits as ONNX Runtime's operator.

    numbers: K, N, block size, type of the code
    """
    names = ("K", "N", "block_size", "quant_type")
    attributes = {f"{name}_i": constant(number, "i", name) for name, number in zip(names, numbers, strict=True)}
    return _like(g, g.op("com.microsoft::MatMulBnb4", x, packed, absmax, **attributes, bits_i=4, transB_i=1))


_SYMBOLICS: dict[str, Callable[..., Any]] = {
    **DECOMPOSITIONS,
    "aten::index_put": index_put,
    "aten::reshape": reshape,
    "aten::view": reshape,
    "aten::linear": linear,
    "aten::silu": silu,
    "aten::broadcast_to": broadcast_to,
    "rekindle::matmul_bnb4": matmul_bnb4,
    "aten::detach": detach,
    "rekindle::straight_through": straight_through,
    "aten::embedding": embedding,
    "aten::cross_entropy_loss": cross_entropy_loss,
    "aten::scaled_dot_product_attention": scaled_dot_product_attention,
}


@contextlib.contextmanager
def registered() -> Iterator[None]:
    """Registers the symbolics for one export; the user's own registrations come back afterwards."""
    current = symbolic_functions(OPSET)
    before = {name: current(name) for name in _SYMBOLICS}

    def undo() -> None:
        for name, function in before.items():
            torch.onnx.unregister_custom_op_symbolic(name, OPSET)
            if function is not None and current(name) is not function:
                torch.onnx.register_custom_op_symbolic(name, function, OPSET)

    with changed(undo):
        for name, function in _SYMBOLICS.items():
            torch.onnx.register_custom_op_symbolic(name, function, OPSET)
        yield
