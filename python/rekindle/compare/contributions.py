"""Records what the gradients of addends, such as a bias, are summed from: where that cancels, rounding is all that may be left.

The bias of keys in an attention, say, or one before a normalization, changes nothing; its gradient is a sum of numbers that are
none of them small. Their size is seen while eager's backward runs, which costs a pass over them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from rekindle.compare.distance import Distance

# Nodes of autograd, and the position of an input whose gradient is a sum of the node's cotangent; None: any.
_SUMS = {
    "AddBackward0": None,
    "SubBackward0": None,
    "AddmmBackward0": 0,
    "ConvolutionBackward0": 2,
    "NativeBatchNormBackward0": 2,
    "NativeGroupNormBackward0": 2,
    "NativeLayerNormBackward0": 2,
}
_OF_CHANNELS = ("ConvolutionBackward0", "NativeBatchNormBackward0", "NativeGroupNormBackward0")
_ROUNDING = 128  # times what one rounding error of each addend makes of a sum, which cotangents come with


class Contributions:
    """Holds, for the gradients of some leaves that are sums, the root of the sum of the addends' squares."""

    def __init__(self, leaves: Sequence[torch.Tensor]) -> None:
        self._positions = {id(leaf): i for i, leaf in enumerate(leaves) if leaf.requires_grad}
        self._squares: dict[int, torch.Tensor] = {}

    @contextmanager
    def noted(self, outputs: Sequence[torch.Tensor]) -> Iterator[None]:
        """Notes the addends of a backward from the outputs, which runs within the block."""
        hooks = [node.register_prehook(self._note(node, leaf)) for node, leaf in self._sums(outputs)]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()

    def explain(self, position: int, ours: torch.Tensor, theirs: torch.Tensor) -> bool:
        """Tells whether rounding of the addends explains how far a gradient is from eager's, where it is not near anyhow.

        Of a bias of queries, keys and values in one, for example, it explains the keys' part, and the others are near. Numbers
        that are rounding and nothing else say nothing of how large the others are: these are measured without them.
        """
        squares = self._squares.get(position)
        if squares is None or squares.shape != theirs.shape or not bool(squares.isfinite().all()):
            return False
        ours, theirs = ours.detach(), theirs.detach()
        allowed = _ROUNDING * torch.finfo(theirs.dtype).eps * squares.sqrt()
        explained = (ours - theirs).abs() <= allowed
        if bool(explained.all()):
            return True
        left = ~(explained & (theirs.abs() <= allowed))
        return Distance.between(torch.where(explained, theirs, ours)[left], theirs[left]).is_near

    def _sums(self, outputs: Sequence[torch.Tensor]) -> list[tuple[Any, torch.Tensor]]:
        """Lists (node, leaf) where the node's cotangent is summed to be all or a part of the leaf's gradient."""
        found, seen = [], set()
        left = [output.grad_fn for output in outputs if output.grad_fn is not None]
        other: set[int] = set()
        while left:
            node = left.pop()
            if node in seen:
                continue
            seen.add(node)
            for i, (before, _) in enumerate(node.next_functions):
                leaf = getattr(before, "variable", None)
                if leaf is None:
                    left += [before] if before is not None else []
                elif id(leaf) in self._positions:
                    is_sum = _SUMS.get(type(node).__name__, -1) in (None, i) and _is_plain(node)
                    found += [(node, leaf)] if is_sum else []
                    other |= set() if is_sum else {id(leaf)}
        return [(node, leaf) for node, leaf in found if id(leaf) not in other]

    def _note(self, node: Any, leaf: torch.Tensor) -> Callable[[tuple[torch.Tensor | None, ...]], None]:
        of_channels = type(node).__name__ in _OF_CHANNELS
        position, shape = self._positions[id(leaf)], leaf.shape

        def note(cotangents: tuple[torch.Tensor | None, ...]) -> None:
            cotangent = cotangents[0]
            if cotangent is None or not cotangent.is_floating_point():
                return
            skipped = cotangent.dim() - len(shape)
            dims = [i for i in range(cotangent.dim()) if (i != 1 if of_channels else i < skipped or shape[i - skipped] == 1)]
            numbers = cotangent.detach()
            numbers = numbers.float() if numbers.dtype in (torch.bfloat16, torch.float16) else numbers
            norms = torch.linalg.vector_norm(numbers, 2, dims) if dims else numbers.abs()
            squares = norms.double().square().reshape(shape)
            self._squares[position] = self._squares[position] + squares if position in self._squares else squares

        return note


def _is_plain(node: Any) -> bool:
    """Tells whether no factor is applied to the cotangent."""
    return all(getattr(node, factor, 1) == 1 for factor in ("_saved_alpha", "_saved_beta"))
