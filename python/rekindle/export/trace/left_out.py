"""Names the calls of torch that a trace leaves out: to it their results are Python values, whatever they are given."""

from __future__ import annotations

import types
from typing import Any

import torch

from rekindle.export.trace.packed_sequences import compares_state
from rekindle.export.trace.replaced_norms import counts_batches


def is_left_out(function: Any, caller: types.FrameType) -> bool:
    """Tells whether a call is no part of a graph, but runs beside the trace.

    Those read the count of a batch norm, begin ranges of a profile, for which a graph has no place, or compare the states of a
    packed sequence.
    """
    if function == torch.Tensor.__float__:
        return counts_batches(caller)
    if isinstance(function, torch._ops.OpOverload):
        return bool(function.namespace == "profiler")
    return compares_state(function, caller)
