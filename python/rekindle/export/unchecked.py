"""Knows the operators that take numbers for places in memory without a check.

Given others than the model's own numbers, they write anywhere. So a forward that calls one is not tried on just any numbers and
sizes (miss/open_shapes.py, miss/perturbation.py).
"""

from __future__ import annotations

import enum
from typing import Any

from torch._ops import OpOverload, OpOverloadPacket

from rekindle.process.torch_internals import CUSTOM_OPERATORS


class Allowed(enum.IntEnum):
    """Says what a forward may be tried on besides its own call."""

    NOTHING = 0
    LARGER = 1  # repeated data only, so that places stay inside
    ANYTHING = 2


# Those of PyTorch on the CPU: pivots, lengths and indices; channels; labels, where sizes are checked.
_UNCHECKED = {
    **dict.fromkeys(("lu_unpack", "lu_solve", "linalg_lu_solve", "linalg_ldl_solve", "segment_reduce"), Allowed.NOTHING),
    **dict.fromkeys(("max_pool2d_with_indices_backward", "max_pool3d_with_indices_backward"), Allowed.NOTHING),
    **dict.fromkeys(("adaptive_max_pool2d_backward", "adaptive_max_pool3d_backward"), Allowed.NOTHING),
    **dict.fromkeys(("native_batch_norm", "_native_batch_norm_legit", "_native_batch_norm_legit_no_training"), Allowed.NOTHING),
    **dict.fromkeys(("_batch_norm_with_update", "batch_norm_update_stats"), Allowed.NOTHING),
    **dict.fromkeys(("ctc_loss", "_ctc_loss"), Allowed.LARGER),
}
_OWN_NAMESPACES = ("aten", "prim", "prims", "profiler", "rekindle")


def allowed_by(function: Any) -> Allowed:
    """Returns what a function of torch allows: nothing, if it is a library's operator that is not written in Python."""
    if not isinstance(function, (OpOverload, OpOverloadPacket)):
        return _UNCHECKED.get(getattr(function, "__name__", ""), Allowed.ANYTHING)
    packet = function.overloadpacket if isinstance(function, OpOverload) else function
    namespace, _, name = packet._qualified_op_name.partition("::")
    if namespace in _OWN_NAMESPACES:
        return _UNCHECKED.get(name, Allowed.ANYTHING)
    return Allowed.ANYTHING if packet._qualified_op_name in CUSTOM_OPERATORS else Allowed.NOTHING
