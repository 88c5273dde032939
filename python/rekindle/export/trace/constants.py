"""Answers questions about tensors that a forward computes from numbers of its own, as `int(torch.tensor(16.0).log2())`.

Such a tensor is the same at each call: it is made of the code's own numbers, of tensors that the module or a global holds (whose
content the key and the guards cover), and of sizes that the forward has asked for.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any

import torch

from rekindle.export.trace.data_sizes import name_of
from rekindle.export.trace.in_place import is_in_place
from rekindle.export.trace.leaves import tensors_of
from rekindle.export.trace.refusals import OF_VALUES
from rekindle.process.torch_internals import Node, traced_value

_MOST = 1000  # nodes that are looked at for one tensor
_OF_TENSORS = "__bool__ __int__ __float__ __complex__ __index__ item tolist is_nonzero equal allclose".split()
_QUESTIONS = {torch.is_nonzero, torch.equal, torch.allclose, *OF_VALUES, *(getattr(torch.Tensor, name) for name in _OF_TENSORS)}
_OF_THE_TRACER = frozenset(
    f"prim::{name}" for name in ("Constant", "ListConstruct", "TupleConstruct", "ListUnpack", "TupleUnpack")
)


class Constants:
    """Knows the constant tensors of one trace.

    drawn: numbers of the traced values that random numbers were drawn for
    """

    def __init__(self, drawn: Container[int]) -> None:
        self._drawn = drawn
        self._are_written = False  # whether one may hold by now what the trace does not know of

    def answer(self, function: Any, args: Any, kwargs: dict[str, Any]) -> bool:
        """Tells whether a call of torch asks for values that are the same at each call of the module. Asked inside the trace."""
        if function not in _QUESTIONS or self._are_written:
            return False
        tensors = tensors_of((args, kwargs))
        return bool(tensors) and all(map(self._has, tensors))

    def write(self, target: Any, given: Any) -> None:
        """Notes a call that is about to write to `target` what it computes from the tensors in `given`."""
        if not self._are_written and isinstance(target, torch.Tensor) and self._has(target):
            self._are_written = not all(map(self._has, tensors_of(given)))

    def apart(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Returns what a call of torch does that the trace does not see."""
        self._are_written = self._are_written or is_in_place(function, args, kwargs)
        return function(*args, **kwargs)

    def _has(self, tensor: torch.Tensor) -> bool:
        """Tells whether nothing that a tensor is computed from is an input of the graph, random, or memory without content."""
        left, seen = [traced_value(tensor)], set()
        while left:
            value = left.pop()
            node = value.node()
            if value.unique() in self._drawn or len(seen) > _MOST or not _computes_the_same(node):
                return False
            if name_of(node) not in seen:
                seen.add(name_of(node))
                left += node.inputs()
        return True


def _computes_the_same(node: Node) -> bool:
    kind = node.kind()
    return kind in _OF_THE_TRACER or (kind.startswith("aten::") and "empty" not in kind and kind != "aten::resize_")
