"""Adds leaves for what was registered with torch: operators in Python, libraries of operators, the exporter's symbolics."""

from __future__ import annotations

import os

import torch

from rekindle.key.code.binaries import build_id
from rekindle.key.values.names import codes_of
from rekindle.key.values.walker import Walker
from rekindle.process.origin import Origin, origin_of
from rekindle.process.torch_internals import added_symbolic_functions
from rekindle.reasons import Bypass, Reason

# Keys under which a call on the CPU or on CUDA may find an implementation; torch itself registers others, as Meta.
_RUN = {
    "", "CPU", "CUDA", "Autograd", "AutogradCPU", "AutogradCUDA", "AutocastCPU", "AutocastCUDA", "ADInplaceOrView",
    "BackendSelect", "Functionalize", "CompositeImplicitAutograd", "CompositeExplicitAutograd",
}  # fmt: skip
_harmless: set[str] = set()  # names in torch.library's list that were looked at before
_OURS = (Origin.TORCH, Origin.STDLIB, Origin.REKINDLE)


def add_registries(walker: Walker) -> None:
    """Adds leaves for what was registered; raises Bypass where an operator of torch runs Python code that cannot be seen."""
    unseen = torch.library._impls - _harmless
    for registered in sorted(unseen):
        namespace, operator, key = registered.split("/", 2)
        if namespace == "aten" and key in _RUN:
            raise Bypass(
                Reason.OPAQUE_VALUE,
                f"aten::{operator} is implemented for {key} by a Python function given to torch.library, whose code cannot be "
                "seen; replace the calls instead of the operator",
            )
    _harmless.update(unseen)
    for path in sorted(torch.ops.loaded_libraries):
        walker.emit(f"registered.library.{os.path.basename(path)}", build_id(path))
    _add_symbolics(walker)


def _add_symbolics(walker: Walker) -> None:
    """Adds the symbolics that somebody else registered: versions cover torch's own, and Rekindle's during an export."""
    for name, opset, function in added_symbolic_functions():
        if any(origin_of(code.co_filename) not in _OURS for code in codes_of(function)):
            walker.walk(f"registered.symbolic.{name}.{opset}", function)
