"""Ends a backward at the inputs of a computation, and lets later ones go on from there.

An example: `h = model(x); y = model(h)`, and the gradients of the parameters are asked for with create_graph=True. The second
forward is done again on a stand-in of h, a leaf, and differentiated. So nothing of the first call runs, though the parameters are
used there, too. `connected` then returns the gradients as functions of h itself, for the backward that differentiates them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch

from rekindle.modules.hooks import without_hooks
from rekindle.process.torch_internals import keeps_graph

_Gradients = Sequence[torch.Tensor | None]


def differentiate(
    outputs: Sequence[torch.Tensor],
    wanted: Sequence[torch.Tensor],
    cotangents: _Gradients,
    create_graph: bool,
    retain_graph: bool,
) -> list[torch.Tensor | None]:
    """Returns the gradients of what is `wanted`, None for what has none; an output has a cotangent, or None."""
    given = [(output, cotangent) for output, cotangent in zip(outputs, cotangents, strict=True) if cotangent is not None]
    if not given:
        return [None] * len(wanted)
    results, weights = zip(*given, strict=True)
    options = {"create_graph": create_graph, "retain_graph": retain_graph, "allow_unused": True}
    return list(torch.autograd.grad(results, wanted, weights, **options))


def leads_to(tensors: Iterable[torch.Tensor], wanted: Iterable[torch.Tensor]) -> bool:
    """Tells whether one of the leaves that are `wanted` is in the history of one of the tensors."""
    ends = {id(tensor) for tensor in wanted}
    seen = {tensor.grad_fn for tensor in tensors} - {None}
    waiting = list(seen)
    while waiting:
        node = waiting.pop()
        if id(getattr(node, "variable", None)) in ends:  # the node accumulates the gradient of a leaf
            return True
        following = {function for function, _ in node.next_functions} - seen - {None}
        seen |= following
        waiting.extend(following)
    return False


class StandIns:
    """Gives tensors leaves that stand for them.

    pairs: leaves that stand for tensors already, with these; a tensor may stand for itself
    """

    def __init__(self, pairs: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> None:
        self._pairs = [pair for pair in pairs if pair[0].requires_grad]
        self._leaves: dict[int, torch.Tensor] = {}

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns what stands for the tensor: a leaf that shares its memory, and requires a gradient if the tensor does."""
        if id(tensor) not in self._leaves:
            leaf = self._leaves[id(tensor)] = tensor.detach().requires_grad_(tensor.requires_grad)
            self._pairs += [(leaf, tensor)] if leaf.requires_grad else []
        return self._leaves[id(tensor)]

    def connected(self, results: _Gradients) -> list[torch.Tensor | None]:
        """Returns results that were computed from stand-ins as functions of the tensors that these stand for."""
        given = [result for result in results if result is not None and result.requires_grad]
        if not given:
            return list(results)
        leaves, originals = zip(*self._pairs, strict=True)
        outputs = iter(_Connected.apply(given, leaves, *originals))
        return [next(outputs) if result is not None and result.requires_grad else result for result in results]


class _Connected(torch.autograd.Function):
    """Hands on results; its backward differentiates them up to the leaves, and goes on from what these stand for."""

    @staticmethod
    def forward(
        ctx: Any, results: list[torch.Tensor], leaves: tuple[torch.Tensor, ...], *originals: torch.Tensor
    ) -> tuple[torch.Tensor, ...]:
        ctx.results, ctx.leaves = results, leaves
        ctx.save_for_backward(*originals)
        ctx.set_materialize_grads(False)
        return tuple(result.detach() for result in results)

    @staticmethod
    def backward(ctx: Any, *cotangents: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        create_graph = torch.is_grad_enabled()
        # That an original was written since matters only to a backward that is differentiated; PyTorch checks it, and also raises
        # where an earlier backward has freed the graph.
        originals = ctx.saved_tensors if create_graph or ctx.results is None else ctx.leaves
        stand_ins = StandIns(zip(ctx.leaves, originals, strict=True))
        weights = [None if one is None else stand_ins.of(one) for one in cotangents]
        # What the results share with others is kept: this backward may come to these, too.
        with without_hooks(ctx.leaves):
            gradients = differentiate(ctx.results, ctx.leaves, weights, create_graph, retain_graph=True)
        if not keeps_graph():
            ctx.results = ctx.leaves = None
        return None, None, *(stand_ins.connected(gradients) if create_graph else gradients)
