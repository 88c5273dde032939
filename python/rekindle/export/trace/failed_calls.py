"""Follows calls of torch that fail in a forward that goes on all the same."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_map_only

from rekindle import _native
from rekindle.export.trace.data_sizes import DataSizes
from rekindle.export.trace.open_sizes import OpenSizes
from rekindle.export.trace.user_place import user_place
from rekindle.process.torch_internals import set_tracing_state, tracing_state, untraced
from rekindle.reasons import Bypass, Reason
from rekindle.sizes.traced_sizes import swapped


class FailedCalls:
    """Collects the calls of one forward that fail. `sizes` is None where all are fixed.

    There is a graph of what a forward does after calls that fail for all tensors of their shapes and dtypes.
    """

    def __init__(self, sizes: OpenSizes | None, data: DataSizes) -> None:
        self._sizes, self._data = sizes, data
        self._refused: Bypass | None = None

    def note(self, function: Any, args: Any, kwargs: dict[str, Any], error: Exception) -> None:
        """Notes a call, as the forward made it, that raised `error`."""
        if isinstance(error, Bypass):
            self._refused = self._refused or error
        elif self._data.any or not _fails_for_any_values(function, args, kwargs, error):
            name = getattr(function, "__name__", function)
            message = f"{user_place()} goes on after {name} failed ({type(error).__name__}), which may depend on values"
            self._refused = self._refused or Bypass(Reason.VALUE_SPECIALIZED, message)
        elif self._sizes is not None:
            self._sizes.fix_all()

    def check(self) -> None:
        """Raises Bypass if the forward, which has ended, went on after a call that may fail for some values only."""
        if self._refused is not None:
            raise self._refused


def tracing_on(function: Callable[..., Any], args: Any, kwargs: dict[str, Any]) -> Any:
    """Runs a call of torch. After one that fails, the tracer is off and holds what it knows of it; but the forward may go on."""
    state = tracing_state()
    try:
        return function(*args, **kwargs)
    except Exception:
        set_tracing_state(state)
        _native.forget_failed_call()
        raise


def _fails_for_any_values(function: Callable[..., Any], args: Any, kwargs: dict[str, Any], error: Exception) -> bool:
    """Tells whether a call that raised `error` fails without values, too."""

    def on_meta(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.detach().to("meta")

    with untraced():
        try:
            args, kwargs = tree_map_only(torch.Tensor, on_meta, swapped((args, kwargs), lambda size: size.value))
            function(*args, **kwargs)
        except Exception as other:
            return type(other) is type(error) and "meta" not in str(other)  # else it lacks the values
    return False
