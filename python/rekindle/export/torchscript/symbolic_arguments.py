"""Tells what the arguments are with which torch's exporter calls a symbolic function: None, a Python value, or a tensor's.

An example: for `x.sum(1)` the exporter passes a value of its graph for the 1, which `constant` gives back.
"""

from __future__ import annotations

from typing import Any

from torch.onnx import symbolic_helper

from rekindle.process.torch_internals import Value
from rekindle.reasons import Bypass, Reason


def is_none(value: Any) -> bool:
    """Tells whether the argument is None, or was left out."""
    return value is None or symbolic_helper._is_none(value)


def constant(value: Any, kind: str, what: str = "an argument") -> Any:
    """Returns the Python value of an argument. Raises Bypass for one that is computed from a tensor.

    kind: as in torch's parse_args ("i", "f", "b", "is", "s")
    what: names the argument in the message
    """
    found = symbolic_helper._maybe_get_const(value, kind)
    if isinstance(found, Value):
        raise Bypass(Reason.VALUE_SPECIALIZED, f"{what} is computed from a tensor; pass a Python number")
    return found
