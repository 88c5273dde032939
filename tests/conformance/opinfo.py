"""PyTorch's own operator database as a suite: each operator with inputs that PyTorch's tests chose for it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import rekindle
import torch
from comparison import Outcome, try_call
from torch import nn
from torch.utils._pytree import tree_leaves


class Calls(nn.Module):
    """An operator as a module. Its results are cloned: an operator that returns a view is not one that cannot be an output."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The operator's tensors, none of them an argument itself."""
        return [x.clone() if isinstance(x, torch.Tensor) else x for x in tree_leaves(self.function(*args, **kwargs))]


def entries(pattern: str) -> list[Any]:
    """The entries that are differentiable in float32, of those whose name contains `pattern`."""
    from torch.testing._internal.common_methods_invocations import op_db

    def chosen(op: Any) -> bool:
        return op.supports_autograd and torch.float32 in op.supported_dtypes("cpu") and pattern in name_of(op)

    return [op for op in op_db if chosen(op)]


def name_of(op: Any) -> str:
    """The name of an entry, with that of its variant."""
    return op.name + (f".{op.variant_test_name}" if op.variant_test_name else "")


def function_of(op: Any) -> Any:
    """The operator itself where the database has a wrapper that seeds the generator inside the call."""
    code = getattr(op.op, "__code__", None)
    if code is None or "wrapper_set_seed" not in code.co_names:
        return op.op
    found: Any = torch
    for part in op.name.split("."):
        found = getattr(found, part)
    return found


def run(
    pattern: str,
    samples: int,
    options: rekindle.Options,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    part: slice = slice(None),
) -> Iterator[Outcome]:
    """One outcome a sample, named `operator#number`; the first `samples` of each operator of a part of the database.

    Forward and backward; of bfloat16 the forward only, and of the operators that have it.
    """
    differentiated = dtype is not torch.bfloat16
    for op in entries(pattern)[part]:
        if dtype not in op.supported_dtypes("cpu"):
            continue
        torch.manual_seed(0)
        found = op.sample_inputs("cpu", dtype, requires_grad=differentiated)
        for i, sample in enumerate(itertools.islice(found, samples)):
            yield try_call(
                f"{name_of(op)}#{i}", Calls(function_of(op)), (sample.input, *sample.args), sample.kwargs, options, device
            )
