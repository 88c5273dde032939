"""Records the views that a traced forward makes, with the steps that lead to them.

Each has the steps (results/view_steps.py) from the tensors that it is a view of.
"""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import torch

from rekindle.export.trace.data_sizes import DataSizes
from rekindle.process.torch_internals import Value, set_traced_value, traced_value, untraced
from rekindle.reasons import Bypass, Reason
from rekindle.results.view_steps import NotAStep, Step, decoded, encoded, recorded, repeated
from rekindle.results.views import place_of, root_of
from rekindle.sizes.traced_sizes import SizeTrace

_Path = list[tuple[weakref.ref[torch.Tensor], Step]]  # from the tensor that is no view, each with the step that comes next
_UNFOLDED: Step = ["view", [], {}, None]  # the step from a product that PyTorch has folded, until its sizes are asked for


class ViewRecords:
    """Records the views of one export. A tensor that others are views of is never turned in place: aliases.py refuses that.

    shape: gives the sizes of a tensor, as the forward sees them
    """

    def __init__(self, shape: Callable[[torch.Tensor], Any]) -> None:
        self._shape = shape
        self._paths: dict[int, tuple[weakref.ref[torch.Tensor], _Path]] = {}
        # Products that PyTorch has folded, with the size and the traced value of the result; then how results are made of them.
        self._products: dict[int, tuple[weakref.ref[torch.Tensor], torch.Size, Value]] = {}
        self._unfolded: dict[int, Step] = {}

    def made(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], result: Any) -> None:
        """Records what a call made, if it is a view. Called for each call, with Python's own arguments."""
        source = args[0] if args else None
        if not isinstance(source, torch.Tensor):
            return
        step = recorded(function, args[1:], kwargs, self._shape)
        if step is None:
            self._note_product(source, result)
            return
        several = isinstance(result, (list, tuple))
        for i, view in enumerate(result if several else [result]):
            if isinstance(view, torch.Tensor) and view is not source and _share_memory(view, source):
                path = [*self._path(source), (weakref.ref(source), [*step[:3], i if several else None])]
                self._paths[id(view)] = weakref.ref(view), path

    def _note_product(self, source: torch.Tensor, result: Any) -> None:
        """Notes a product of matrices that PyTorch has computed as one of two dimensions, which no call has shown."""
        if not isinstance(result, torch.Tensor) or (product := result._base) is None or product is source._base:
            return
        with untraced():
            is_dense = product.is_contiguous() and result.is_contiguous() and product.numel() == result.numel()
            is_folded = is_dense and product.dim() == 2 < result.dim() and product.shape[1] == result.shape[-1]
            size = result.shape
        if is_folded:
            self._products[id(product)] = weakref.ref(product), size, traced_value(result)
            self._paths[id(result)] = weakref.ref(result), [(weakref.ref(product), _UNFOLDED)]

    def follow_products(self, results: Iterable[torch.Tensor]) -> None:
        """Traces the product that a result is a view of, as it may become a result itself, and how it is unfolded."""
        for product in {id(one): one for one in map(root_of, results)}.values():
            ref, size, value = self._products.pop(id(product), (None, None, None))
            if ref is None or ref() is not product:
                continue
            with untraced():
                unfolded = product.detach().view(size)
            set_traced_value(unfolded, value)
            self._unfolded[id(product)] = ["view", [self._shape(unfolded)], {}, None]
            set_traced_value(product, traced_value(unfolded.flatten(0, -2)))

    def steps(self, tensor: torch.Tensor, base: torch.Tensor) -> list[Step] | None:
        """Returns the steps that make the tensor of `base`, whatever its sizes; None where they are not known."""
        if tensor is base:
            return []
        path = self._path(tensor)
        start = next((i for i, (ref, _) in reversed([*enumerate(path)]) if ref() is base), None)
        if start is None or (path[start][1] is _UNFOLDED and id(base) not in self._unfolded):
            return None
        return [self._unfolded[id(base)] if step is _UNFOLDED else step for _, step in path[start:]]

    def root(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Returns what a tensor is a view of and is no view itself, as far as is known; None if it is gone."""
        path = [place for place in self._path(tensor) if place[1] is not _UNFOLDED]
        return path[0][0]() if path else tensor

    def _path(self, tensor: torch.Tensor) -> _Path:
        ref, path = self._paths.get(id(tensor), (None, []))
        return path if ref is not None and ref() is tensor else []


def steps_in_result(
    made: ViewRecords | None, sizes: SizeTrace, data: DataSizes, view: torch.Tensor, base: torch.Tensor
) -> list[Step] | None:
    """Returns how a result is a view of another one or of an input, as JSON, whatever the sizes are; None where it is not known.

    Raises Bypass(unsupported_output) for one that is not known where sizes depend on data.
    """
    found = None if made is None else made.steps(view, base)
    before = len(sizes.numbers)
    with contextlib.suppress(NotAStep):
        steps = None if found is None else encoded(found, sizes.number)
        numbers = [number.value for number in sizes.numbers]
        if steps is not None and place_of(repeated(steps, base.detach(), decoded(numbers)), base) == place_of(view, base):
            return steps
    del sizes.numbers[before:]
    if data.any:
        message = f"a view of shape {tuple(view.shape)} is in the result, and sizes depend on data; return a clone"
        raise Bypass(Reason.UNSUPPORTED_OUTPUT, message)
    return None


def _share_memory(tensor: torch.Tensor, other: torch.Tensor) -> bool:
    both = all(one.layout is torch.strided for one in (tensor, other))
    return both and tensor.untyped_storage().data_ptr() == other.untyped_storage().data_ptr()
