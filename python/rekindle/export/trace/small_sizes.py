"""Finds the sizes of 0, and a few of 1, on which a trace depends without a question: ATen takes short cuts there.

An example: `h = x[mask]` with a mask of nothing but False is [0, 16]. A dropout of it is traced as `h` itself, and draws nothing.
So the trace is for masks with nothing in them only: the size 0 of `h` becomes a guard.

Where there are elements an operator is traced as itself, but for the few that are named here, and does in eager what it does in
the graph where there are none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from rekindle.export.trace.leaves import tensors_of
from rekindle.process.torch_internals import untraced
from rekindle.reasons import SMALL
from rekindle.sizes.traced_sizes import in_trace, is_traced

if TYPE_CHECKING:
    from rekindle.export.trace.open_sizes import OpenSizes

# Functions that take a short cut up to a size of their argument: an integral of nothing is zeros without a gradient, and a
# matrix of one row is taken for a vector.
_SHORTENED_UP_TO = {
    **dict.fromkeys((torch.trapz, torch.trapezoid), 0),
    **dict.fromkeys((torch.cov, torch.corrcoef, torch.Tensor.cov, torch.Tensor.corrcoef), 1),
}
# Functions whose further results are empty unless they are wished for, and have sizes that follow from the first one's.
_OF_WISHED_RESULTS = (torch._unique2, torch._unique, torch._VF.unique_consecutive, torch.unique_consecutive)  # type: ignore[attr-defined]


def ask_for_small(sizes: OpenSizes, function: Any, args: Any, kwargs: dict[str, Any], result: Any, from_data: bool) -> None:
    """Makes guards of the sizes of 0 of what a call gave that other calls may have otherwise, and of those named above.

    from_data: whether data decide on the sizes of the result
    """
    _ask_of_shortened(sizes, function, args)
    for tensor in tensors_of(result)[: 1 if function in _OF_WISHED_RESULTS else None]:
        if sizes.is_closed(tensor):
            continue
        with untraced():
            made = tensor.shape
            if 0 not in made:
                continue
            is_passed_on = not from_data and any(one.shape == made for one in tensors_of((args, kwargs)))
        for size in filter(is_traced, () if is_passed_on else sizes.shape(tensor)):
            if size.value == 0:
                size.trace.ask(1, in_trace(torch.eq, size, 0), f"{SMALL} 0", is_small=True)


def _ask_of_shortened(sizes: OpenSizes, function: Any, args: Any) -> None:
    limit = _SHORTENED_UP_TO.get(function)
    if limit is None or not args or sizes.is_closed(args[0]):
        return
    for size in filter(is_traced, sizes.shape(args[0])):
        is_small = size.value <= limit
        what = f"{SMALL} {size.value}" if is_small else f"{size.value} > {limit}"
        size.trace.ask(is_small, in_trace(torch.le, size, limit), what, is_small)
