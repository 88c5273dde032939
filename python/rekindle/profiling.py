"""Says where the time of a training step goes: rekindle.profile(model, *args, **kwargs)."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch

from rekindle.module import Module, runtime_of, unwrap

if TYPE_CHECKING:
    from rekindle.timing.record import Profile


def profile(
    model: Module, *args: Any, loss: Callable[[Any], torch.Tensor] | None = None, steps: int = 5, **kwargs: Any
) -> Profile:
    """Returns what the nodes of `model(*args, **kwargs)` and of its backward take of time and of memory; see timing/record.py.

    An example: `print(rekindle.profile(model, **batch))` prints the lines of Python that take most of a step.

    The call and its backward run 2 + 2 * steps times: twice first, then without and then with torch.profiler, whose events say
    what each node takes. Gradients go nowhere: `.grad` is left alone, as are hooks that wait for it. Buffers and random states
    are then what they were before; what else the forward changes it changes.

    args, kwargs: those of the forward
    loss: result -> the scalar at which the backward begins. None: the first scalar in the result that requires a gradient; where
        there is none, all tensors that do.
    steps: that each figure is the median of

    Raises TypeError for a module that is not wrapped or a loss that has no gradient, ValueError for steps below 1, and what the
    call and its backward raise.
    """
    runtime = runtime_of(model, "profile")
    if not isinstance(steps, int) or steps < 1:
        raise ValueError(f"steps is {steps!r}; it has to be an int of at least 1")
    from rekindle.calls.profiling import profile_steps  # with what else only exports and comparisons need

    return profile_steps(unwrap(model), runtime, lambda: model(*args, **kwargs), (args, kwargs), loss, steps)
