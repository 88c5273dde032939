"""Writes statistics of every tensor of a training step to files, by which `rekindle diff` finds where two runs part.

    subscriber = rekindle.statistics.StatisticsSubscriber("run")
    handle = rekindle.statistics.subscribe(model, subscriber)
    ...  # train
    handle.remove()

See docs/statistics.md, which has the format of the files.
"""

from rekindle.statistics.inspection import inspect_activation
from rekindle.statistics.subscriber import StatisticsSubscriber
from rekindle.statistics.subscription import Subscription, subscribe

__all__ = ["StatisticsSubscriber", "Subscription", "inspect_activation", "subscribe"]
