"""Refuses results that are more than numbers which a graph computes: what a caller could tell, or write to.

Each raises Bypass(unsupported_output).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch

from rekindle.reasons import Bypass, Reason
from rekindle.results.layouts import bytes_of
from rekindle.sizes.traced_sizes import CLOSED

_HINTS = "_dynamo_"  # for torch.compile, as mark_static_address leaves them on the states of a cache; a graph's results have none


def check_new(outputs: Sequence[torch.Tensor], given: Sequence[torch.Tensor]) -> None:
    """Refuses results that are new and more than what was computed: leaves for gradients, with attributes, conjugated lazily.

    given: tensors of the call, which may be results themselves
    """
    known = set(map(id, given))
    for output in outputs:
        if id(output) in known:
            continue
        if output.requires_grad and output.is_leaf:
            what = "a tensor for which gradients were asked without a graph behind it"
        elif attributes := [name for name in vars(output) if name != CLOSED and not name.startswith(_HINTS)]:
            what = f"a tensor that got the attribute {attributes[0]!r}"
        elif output.is_conj() or output.is_neg():
            raise _refused("a conjugate, or a part of one, that is a view; return resolve_conj() or resolve_neg() of it")
        else:
            continue
        raise _refused(f"{what}; return the tensor alone, or do so outside")


def check_held(outputs: Sequence[torch.Tensor], held: Iterable[tuple[str, torch.Tensor]]) -> None:
    """Refuses results in the memory of plain tensors, to which eager's caller could write.

    held: the plain tensors that a forward found, with names for them
    """
    ranges = [(name, bytes_of(tensor)) for name, tensor in held]
    for output in outputs:
        begin, end = bytes_of(output)
        for name, (first, last) in ranges:
            if max(begin, first) < min(end, last):
                raise _refused(f"the plain tensor {name}, or a view of it; return a clone, or register it as a buffer")


def _refused(what: str) -> Bypass:
    return Bypass(Reason.UNSUPPORTED_OUTPUT, f"the result has {what}")
