"""Outputs that share memory with an input or with each other: found in eager's result, and made again around the graph.

The graph computes no view that is returned. It is described by where it lies in its base, which is an input of the graph (an
argument, a parameter, a buffer) or an output, and `as_strided` makes it again outside of the graph, where writing to it and
differentiating it are PyTorch's own doing. A base that eager's result does not hold itself becomes one more output.

    view := {"of": {"input" | "output": position}, "size": [int*], "stride": [int*], "offset": int from the base's own,
              "detached": bool, "is_view": bool, "one_of_many": bool, "base_stride": [int*]}

Not views to PyTorch, though they share memory, are results of `detach`. Sizes and strides are those of one call: a structure with
views holds for inputs of these sizes only.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._C._autograd import CreationMeta, _get_creation_meta, _set_creation_meta

from rekindle.layouts import is_dense
from rekindle.reasons import Bypass, Reason

View = dict[str, Any]

# The derivatives of operators that return views. A view made by another, as by an autograd Function, has a gradient of its own.
_VIEW_NODES = frozenset(
    f"{name}Backward0"
    for name in (
        "Alias", "AsStrided", "Diagonal", "Expand", "MovedimIntList", "Narrow", "Permute", "ReshapeAlias", "Select", "Slice",
        "Split", "SplitWithSizes", "Squeeze", "SqueezeDim", "T", "Transpose", "Unbind", "Unfold", "Unsqueeze", "View",
    )
) | {"SqueezeBackward1", "SqueezeBackward2", "TransposeBackward1"}  # fmt: skip


def separate(
    results: list[torch.Tensor], inputs: list[torch.Tensor]
) -> tuple[list[torch.Tensor], list[View], list[tuple[str, int]]]:
    """(outputs of the graph, views, where each result is: ("output" | "view", position)) for distinct `results`.

    Raises Bypass(unsupported_output) for shared memory that a view by strides would not mean the same of.
    """
    owners = {_memory(tensor): {"input": i} for i, tensor in reversed([*enumerate(inputs)]) if tensor.numel() > 0}
    groups: dict[int, list[torch.Tensor]] = {}
    for tensor in results:
        groups.setdefault(_memory(tensor) if tensor.numel() > 0 else id(tensor), []).append(tensor)
    bases = {key: _base_of(group) for key, group in groups.items() if key not in owners and len(group) > 1}
    outputs: list[torch.Tensor] = []
    views: list[View] = []
    places: list[tuple[str, int]] = []
    of: dict[int, dict[str, int]] = dict(owners)
    for tensor in results:
        key = _memory(tensor)
        base = inputs[of[key]["input"]] if key in owners and tensor.numel() > 0 else bases.get(key, tensor)
        if base is tensor or tensor.numel() == 0:
            places.append(("output", _position(tensor, outputs)))
            continue
        if key not in owners:
            of[key] = {"output": _position(base, outputs)}
        places.append(("view", len(views)))
        views.append(_described(tensor, base, of[key]))
    return outputs, views, places


def _memory(tensor: torch.Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _position(tensor: torch.Tensor, outputs: list[torch.Tensor]) -> int:
    for i, output in enumerate(outputs):
        if output is tensor:
            return i
    outputs.append(tensor)
    return len(outputs) - 1


def _base_of(group: list[torch.Tensor]) -> torch.Tensor:
    """What all of a group are views of, whether it is one of them or not."""
    base = max(map(_root_of, group), key=lambda tensor: (tensor.requires_grad, tensor.numel()))
    if not is_dense(base):
        raise _refused(group[-1], "another output")
    return base


def _root_of(tensor: torch.Tensor) -> torch.Tensor:
    return tensor if tensor._base is None else tensor._base


def _described(tensor: torch.Tensor, base: torch.Tensor, of: dict[str, int]) -> View:
    root = _root_of(base)
    detached = _root_of(tensor) is not root  # a view of a detached tensor, or one itself
    meta = _get_creation_meta(tensor) if tensor._is_view() else CreationMeta.DEFAULT
    known = (
        tensor.dtype is base.dtype
        and tensor.layout is torch.strided
        and (tensor.is_conj(), tensor.is_neg()) == (base.is_conj(), base.is_neg())
        and meta not in (CreationMeta.IN_CUSTOM_FUNCTION, CreationMeta.INFERENCE_MODE)
        and tensor.requires_grad == (base.requires_grad and not detached)
        and (not tensor.requires_grad or _leads_by_views(tensor, base))
    )
    if not known:
        raise _refused(tensor, "an input" if "input" in of else "another output")
    return {
        "of": of,
        "size": list(tensor.shape),
        "stride": list(tensor.stride()),
        "offset": tensor.storage_offset() - base.storage_offset(),
        "detached": detached,
        "is_view": tensor._is_view(),
        "one_of_many": meta == CreationMeta.MULTI_OUTPUT_NODE,
        "base_stride": list(base.stride()),
    }


def _leads_by_views(tensor: torch.Tensor, base: torch.Tensor) -> bool:
    """Whether the gradient of `tensor` reaches that of `base` through derivatives of views only."""
    node = tensor.grad_fn
    while node is not None and node is not base.grad_fn:
        if base.grad_fn is None and getattr(node, "variable", None) is base:
            return True
        if type(node).__name__ not in _VIEW_NODES or len(node.next_functions) != 1:
            return False
        node = node.next_functions[0][0]
    return node is not None


def _refused(tensor: torch.Tensor, what: str) -> Bypass:
    return Bypass(
        Reason.UNSUPPORTED_OUTPUT,
        f"an output of shape {tuple(tensor.shape)} shares memory with {what} but is no view of it by strides; return a clone",
    )


def check_strides(layout: Any, arguments: list[torch.Tensor]) -> None:
    """Raises Bypass(unsupported_output) where a view in the structure of a result is not one of the live argument."""
    for view in layout.get("with_views", ()):
        position = view["of"].get("input", len(arguments))
        if position < len(arguments) and list(arguments[position].stride()) != view["base_stride"]:
            raise _refused(arguments[position], "an input")


def made_again(views: list[View], outputs: list[torch.Tensor], inputs: list[torch.Tensor]) -> list[torch.Tensor]:
    """The views of one call's outputs and inputs."""
    return [_view(view, outputs, inputs) for view in views]


def _view(view: View, outputs: list[torch.Tensor], inputs: list[torch.Tensor]) -> torch.Tensor:
    ((kind, position),) = view["of"].items()
    base = (inputs if kind == "input" else outputs)[position]
    if list(base.stride()) != view["base_stride"]:
        raise RuntimeError(f"{kind} {position} has strides {base.stride()}, where the graph was made for {view['base_stride']}")
    if view["detached"]:
        base = base.detach()
    made = base.as_strided(view["size"], view["stride"], base.storage_offset() + view["offset"])
    if not view["is_view"]:
        return made.detach()
    if view["one_of_many"]:  # in-place edits of such a view are errors where it requires a gradient
        _set_creation_meta(made, CreationMeta.MULTI_OUTPUT_NODE)
    return made
