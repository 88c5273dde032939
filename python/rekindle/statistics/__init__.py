"""Writes statistics of every tensor of a training step to files, by which `rekindle diff` finds where two runs part.

    subscriber = rekindle.statistics.StatisticsSubscriber("run")
    handle = rekindle.statistics.subscribe(model, subscriber)
    ...  # train
    handle.remove()

See docs/statistics.md, which has the format of the files.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from rekindle.statistics.inspection import inspect_activation

if TYPE_CHECKING:
    from rekindle.statistics.subscriber import StatisticsSubscriber
    from rekindle.statistics.subscription import Subscription, subscribe

__all__ = ["StatisticsSubscriber", "Subscription", "inspect_activation", "subscribe"]

# What only those need who subscribe: no other start imports it.
_IMPORTED_LATER = {"StatisticsSubscriber": "subscriber", "Subscription": "subscription", "subscribe": "subscription"}


def __getattr__(name: str) -> Any:
    if name not in _IMPORTED_LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_IMPORTED_LATER[name]}"), name)
