"""Compares one call in eager and one through the graph: rekindle.verify(model, *args, **kwargs)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rekindle.module import Module, status, unwrap

if TYPE_CHECKING:
    from rekindle.compare.report import Comparison


def verify(model: Module, *args: Any, **kwargs: Any) -> Comparison:
    """Compares `model(*args, **kwargs)` with the same call of the module in eager.

    Compared are the results and their strides, the gradients of every parameter and of every floating-point input for random
    cotangents, the buffers and the state of the random generators after the call: each on its own scale, as a new graph is before
    it is used. What is farther from eager's than usual has to be explained by eager's own rounding, for which the module runs
    some times more.

    Parameters, `.grad`, buffers, the inputs and the random states are afterwards what they were before; what else the forward
    changes is changed once for each run. Raises TypeError for a module that is not wrapped, and what the call raises.
    """
    if not isinstance(model, Module):
        raise TypeError(f"rekindle.verify takes a rekindle.Module, not a {type(model).__name__}")
    from rekindle.compare.compared_runs import compared_runs  # with what else only exports and comparisons need
    from rekindle.compare.report import Comparison

    module = unwrap(model)
    rows = compared_runs(model, module, args, kwargs)
    return Comparison(status(model).source, rows)
