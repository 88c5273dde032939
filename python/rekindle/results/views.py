"""Handles outputs that share memory with an input or with each other: finds them in eager's result, makes them around the graph.

The graph computes no view that is returned. It is described by where it lies in its base, which is an input of the graph (an
argument, a parameter, a buffer) or an output, and `as_strided` makes it again outside of the graph, where writing to it and
differentiating it are PyTorch's own doing. A base that eager's result does not hold itself becomes one more output.

The grammar of a view is in src/contract/structure.h. Not views to PyTorch, though they share memory, are results of `detach`.
Numbers for a place are those of one call, and hold for inputs of these sizes only. Steps (results/view_steps.py) hold for all:
what they make of the base says where a view of it lies.

An example: `forward` returns `x.t()` of its argument x float32[2, 3]. The result is the view {"of": {"input": 0}, "detached":
false, "is_view": true, "one_of_many": false, "size": [3, 2], "stride": [1, 3], "offset": 0, "base_stride": [3, 1]}, and the graph
has no output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from rekindle.process.torch_internals import CreationMeta, creation_meta, disabled_torch_function, set_creation_meta
from rekindle.reasons import Bypass, Reason
from rekindle.results.layouts import elements_may_overlap, is_dense, is_within
from rekindle.results.view_steps import Step, decoded, repeated

_MOST_PLACES = 1024  # views, at one set of sizes each, that are kept worked out; beyond, all are forgotten and worked out again

View = dict[str, Any]
# (view, base) -> how it is made, where that is known
StepsOf = Callable[[torch.Tensor, torch.Tensor], list[Step] | None]

# The derivatives of operators that return views. A view made by another, as by an autograd Function, has a gradient of its own.
_VIEW_NODES = frozenset(
    f"{name}Backward0"
    for name in (
        "Alias", "AsStrided", "Diagonal", "Expand", "MovedimIntList", "Narrow", "Permute", "ReshapeAlias", "Select", "Slice",
        "Split", "SplitWithSizes", "Squeeze", "SqueezeDim", "T", "Transpose", "Unbind", "Unfold", "Unsqueeze", "View",
    )
) | {"SqueezeBackward1", "SqueezeBackward2", "TransposeBackward1"}  # fmt: skip


def separate(
    results: list[torch.Tensor], inputs: list[torch.Tensor], steps: StepsOf = lambda view, base: None
) -> tuple[list[torch.Tensor], list[View], list[tuple[str, int]]]:
    """Tells the graph's outputs from views: (outputs of the graph, views, where each result is: ("output" | "view", position)).

    results: distinct tensors
    inputs: those of the graph
    steps: gives how a view is made of its base, where that is known

    Raises Bypass(unsupported_output) for shared memory that a view by strides would not mean the same of.
    """
    owners = {_memory(tensor): {"input": i} for i, tensor in reversed([*enumerate(inputs)]) if _owns(tensor)}
    groups: dict[int, list[torch.Tensor]] = {}
    for tensor in results:
        groups.setdefault(_memory(tensor), []).append(tensor)
    bases = {key: _base_of(group) for key, group in groups.items() if key not in owners and len(group) > 1}
    outputs: list[torch.Tensor] = []
    views: list[View] = []
    places: list[tuple[str, int]] = []
    of: dict[int, dict[str, int]] = dict(owners)
    for tensor in results:
        key = _memory(tensor)
        base = inputs[of[key]["input"]] if key in owners else bases.get(key, tensor)
        if base is tensor:
            places.append(("output", _position(tensor, outputs)))
            continue
        if key not in owners:
            of[key] = {"output": _position(base, outputs)}
        places.append(("view", len(views)))
        views.append(_described(tensor, base, of[key], steps(tensor, base)))
    _check_between(results, [tensor for tensor, (kind, _) in zip(results, places, strict=True) if kind == "view"])
    return outputs, views, places


def _check_between(results: list[torch.Tensor], views: list[torch.Tensor]) -> None:
    """Raises Bypass(unsupported_output) for a view through which the gradient of another result goes.

    One that is made at the edge is on nobody's way, and would be told (`retain_grad`, a hook) less than it gets.
    """
    between = {id(node): (node, view) for view in views if (node := view.grad_fn) is not None}
    stack = [node for tensor in results if between and tensor.grad_fn is not None for node in _next_nodes(tensor.grad_fn)]
    seen: dict[int, Any] = {}  # kept, so that no number is given again
    while stack:
        node = stack.pop()
        if id(node) in between:
            shape = tuple(between[id(node)][1].shape)
            raise Bypass(
                Reason.UNSUPPORTED_OUTPUT,
                f"an output of shape {shape} shares memory with another, and a third is computed from it; return a clone",
            )
        if id(node) not in seen:
            seen[id(node)] = node
            stack += _next_nodes(node)


def _next_nodes(node: Any) -> list[Any]:
    return [other for other, _ in node.next_functions if other is not None]


def _memory(tensor: torch.Tensor) -> int:
    """Returns a number that is equal for tensors that share memory, and for views of a tensor that has none.

    A tensor without elements may be a view of some that has.
    """
    memory = tensor.untyped_storage()
    return memory.data_ptr() if memory.nbytes() > 0 else id(root_of(tensor))


def _owns(tensor: torch.Tensor) -> bool:
    """Tells whether results may be views of an input: not if it is an empty part of some memory."""
    return tensor.numel() > 0 or tensor.untyped_storage().nbytes() == 0


def _position(tensor: torch.Tensor, outputs: list[torch.Tensor]) -> int:
    for i, output in enumerate(outputs):
        if output is tensor:
            return i
    outputs.append(tensor)
    return len(outputs) - 1


def _base_of(group: list[torch.Tensor]) -> torch.Tensor:
    """Returns what all of a group are views of, whether it is one of them or not.

    One that is all of a hidden tensor, as a product that PyTorch computes with two dimensions, stands for it.
    """
    base = max(map(root_of, group), key=lambda tensor: (tensor.requires_grad, tensor.numel()))
    outside = [tensor for tensor in group if not is_within(tensor, base)]  # of a detached part of something larger
    if outside or not is_dense(base):
        raise _refused((outside or group)[-1], "another output")
    if any(tensor is base for tensor in group):
        return base
    return next((tensor for tensor in group if _is_all_of(tensor, base) and _lead_to(tensor, group)), base)


def _is_all_of(view: torch.Tensor, base: torch.Tensor) -> bool:
    return view._base is base and view.numel() == base.numel() and view.dtype is base.dtype and is_dense(view)


def _lead_to(tensor: torch.Tensor, group: list[torch.Tensor]) -> bool:
    """Tells whether the gradients of all others, where there are any, come to the tensor on their way."""
    return not tensor.requires_grad or all(other is tensor or _leads_by_views(other, tensor) for other in group)


def root_of(tensor: torch.Tensor) -> torch.Tensor:
    """Returns what the tensor is a view of to autograd; itself if it is none."""
    with disabled_torch_function():  # it is no question of the forward's
        return tensor if tensor._base is None else tensor._base


def _described(tensor: torch.Tensor, base: torch.Tensor, of: dict[str, int], steps: list[Step] | None) -> View:
    root = root_of(base)
    detached = root_of(tensor) is not root  # a view of a detached tensor, or one itself
    meta = creation_meta(tensor) if tensor._is_view() else CreationMeta.DEFAULT
    known = (
        tensor.dtype is base.dtype
        and tensor.layout is torch.strided
        and (tensor.is_conj(), tensor.is_neg()) == (base.is_conj(), base.is_neg())
        and meta not in (CreationMeta.IN_CUSTOM_FUNCTION, CreationMeta.INFERENCE_MODE)
        and tensor.requires_grad == (base.requires_grad and not detached)
        and (not tensor.requires_grad or _made_without_grad(tensor, meta) or _leads_by_views(tensor, base))
    )
    if not known:
        raise _refused(tensor, "an input" if "input" in of else "another output")
    if tensor.requires_grad and elements_may_overlap(base):  # as_strided gives all of one place the mean of their gradients
        message = f"an output of shape {tuple(tensor.shape)} is a view of an input with several elements in one place of memory"
        raise Bypass(Reason.UNSUPPORTED_OUTPUT, f"{message}, as expand() and unfold() make it; return a clone")
    return {
        "of": of,
        "detached": detached,
        "is_view": tensor._is_view(),
        "one_of_many": meta == CreationMeta.MULTI_OUTPUT_NODE,
        **(place_of(tensor, base) if steps is None else {"steps": steps}),
    }


def _made_without_grad(tensor: torch.Tensor, meta: CreationMeta) -> bool:
    """Tells whether a view requires a gradient as its base does, and has none to give, in a call without gradients."""
    return meta == CreationMeta.NO_GRAD_MODE and tensor.grad_fn is None and not torch.is_grad_enabled()


def place_of(tensor: torch.Tensor, base: torch.Tensor) -> dict[str, Any]:
    """Returns where a view lies in its base."""
    return {
        "size": list(tensor.shape),
        "stride": list(tensor.stride()),
        "offset": tensor.storage_offset() - base.storage_offset(),
        "base_stride": list(base.stride()),
    }


def has_places(layout: Any) -> bool:
    """Tells whether the structure of a result has views that lie where they do for the sizes of one call only."""
    return any("steps" not in view for view in layout.get("with_views", ()))


def placed(layout: Any, numbers: Sequence[int], outputs: list[torch.Tensor], inputs: list[torch.Tensor]) -> Any:
    """Returns the structure of one call's result, with the places of its views."""
    views = layout.get("with_views")
    if not views:
        return layout
    return {**layout, "with_views": [_placed(view, _base(view, outputs, inputs), numbers) for view in views]}


def _base(view: View, outputs: list[torch.Tensor], inputs: list[torch.Tensor]) -> torch.Tensor:
    ((kind, position),) = view["of"].items()
    return (inputs if kind == "input" else outputs)[position]


def _placed(view: View, base: torch.Tensor, numbers: Sequence[int]) -> View:
    if "steps" not in view:
        return view
    made = repeated(view["steps"], base.detach(), decoded(numbers))
    if made.untyped_storage().data_ptr() != base.untyped_storage().data_ptr():
        about = f"a tensor of shape {tuple(base.shape)} and strides {base.stride()}"
        raise RuntimeError(f"the result has a view of {about}, of which {view['steps']} make a copy")
    return {**{name: value for name, value in view.items() if name != "steps"}, **place_of(made, base)}


def _leads_by_views(tensor: torch.Tensor, base: torch.Tensor) -> bool:
    """Tells whether the gradient of `tensor` reaches that of `base` through derivatives of views only."""
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
        if "steps" not in view and position < len(arguments) and list(arguments[position].stride()) != view["base_stride"]:
            raise _refused(arguments[position], "an input")


class Views:
    """Makes the views in the structure of a result.

    Where one lies follows from the layout of its base and the numbers of the call, and is worked out once for each.
    """

    def __init__(self, views: list[View]) -> None:
        self._views = views
        self._places: dict[tuple[Any, ...], View] = {}

    def of(self, outputs: list[torch.Tensor], inputs: list[torch.Tensor], numbers: Sequence[int]) -> list[torch.Tensor]:
        """Returns the views of one call's outputs and inputs."""
        bases = [_base(view, outputs, inputs) for view in self._views]
        return [_view(self._place(i, base, numbers), base) for i, base in enumerate(bases)]

    def _place(self, i: int, base: torch.Tensor, numbers: Sequence[int]) -> View:
        view = self._views[i]
        if "steps" not in view:
            return view
        key = (i, base.shape, base.stride(), *numbers)
        found = self._places.get(key)
        if found is None:
            if len(self._places) >= _MOST_PLACES:
                self._places.clear()
            found = self._places[key] = _placed(view, base, numbers)
        return found


def _view(view: View, base: torch.Tensor) -> torch.Tensor:
    if list(base.stride()) != view["base_stride"]:
        ((kind, position),) = view["of"].items()
        raise RuntimeError(f"{kind} {position} has strides {base.stride()}, where the graph was made for {view['base_stride']}")
    if view["detached"]:
        base = base.detach()
    made = base.as_strided(view["size"], view["stride"], base.storage_offset() + view["offset"])
    if not view["is_view"]:
        return made.detach()
    if view["one_of_many"]:  # in-place edits of such a view are errors where it requires a gradient
        set_creation_meta(made, CreationMeta.MULTI_OUTPUT_NODE)
    return made
