"""Subscribes to a module: hooks that show its tensors, step by step, to a subscriber's writer."""

from __future__ import annotations

import collections
import threading
from typing import Any

import torch
from torch import nn
from torch.utils._pytree import tree_iter, tree_map_only

from rekindle.modules.proxy import unwrapped
from rekindle.process.exporting import exporting
from rekindle.process.torch_internals import is_in_backward
from rekindle.statistics import inspection
from rekindle.statistics.ancestors import ancestors
from rekindle.statistics.inspection import Inspect, Place, running
from rekindle.statistics.subscriber import StatisticsSubscriber
from rekindle.statistics.summary import Summary
from rekindle.statistics.writer import Item

_lock = threading.Lock()
_subscriptions: list[Subscription] = []


def subscribe(model: nn.Module, subscriber: StatisticsSubscriber) -> Subscription:
    """Writes the statistics of the module's calls from now on, and returns what ends that: its `remove()`.

    model: wrapped with rekindle.Module before, afterwards or not at all. A wrapped one still runs from a graph, another one than
        without: each observed tensor is the call of an autograd Function in it

    Raises TypeError for what is no module or subscriber, ValueError for a module or a directory that has a subscription.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"subscribe takes a torch.nn.Module, not a {type(model).__name__}")
    if not isinstance(subscriber, StatisticsSubscriber):
        raise TypeError(f"subscribe takes a rekindle.statistics.StatisticsSubscriber, not a {type(subscriber).__name__}")
    return Subscription(unwrapped(model), subscriber)


class OutputHook:
    """Shows the output of the module `name`. It holds plain values, for it is part of the key.

    A tensor that others of the output were computed from stays the very one, or it would have no part in them any more: of such
    a tensor no gradient is shown. One that is there twice stays one tensor.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, module: nn.Module, arguments: Any, result: Any) -> Any:
        """Returns the output with each tensor handed on by Inspect."""
        if isinstance(result, torch.Tensor):
            return Inspect.apply(result, self.name, 0)
        tensors = [one for one in tree_iter(result) if isinstance(one, torch.Tensor)]
        kept = ancestors(tensors)
        handed = {id(one): one for one in tensors}
        for count, tensor in enumerate(tensors):
            if id(tensor) in kept:
                Inspect.apply(tensor.detach(), self.name, count)
            else:
                handed[id(tensor)] = Inspect.apply(handed[id(tensor)], self.name, count)
        return tree_map_only(torch.Tensor, lambda one: handed[id(one)], result)


class _Step:
    """Takes the tensors of one call of the module; gradients may come when the next call has begun."""

    def __init__(self, subscription: Subscription, number: int) -> None:
        self._subscription, self._number = subscription, number
        self._calls: collections.Counter[tuple[str, str, int | None]] = collections.Counter()

    def observe(self, place: Place, phase: str, tensor: torch.Tensor, call: int | None) -> int:
        """Writes one tensor; as Observer.observe."""
        if call is None:
            key = phase, place.name, place.output
            if phase == "forward" and is_in_backward():  # a checkpoint computes it again
                return max(self._calls[key] - 1, 0)
            call = self._calls[key]
            self._calls[key] += 1
        self._subscription.write(self._number, place, phase, tensor, call)
        return call


class Subscription:
    """Stands for one subscription to a module; it is a context, too, that ends it."""

    def __init__(self, model: nn.Module, subscriber: StatisticsSubscriber) -> None:
        with _lock:
            for other in _subscriptions:
                if other._model is model or other._subscriber is subscriber:
                    what = f"this {type(model).__name__}" if other._model is model else "this subscriber"
                    raise ValueError(f"{what} has a subscription already; call its remove() first")
            self._model, self._subscriber = model, subscriber
            modules = dict(model.named_modules())
            self._classes = {name: type(unwrapped(module)).__name__ for name, module in modules.items()}
            self._writer = subscriber.open(type(model).__name__, {name: i for i, name in enumerate(modules)})
            self._number, self._step = -1, None
            self._handles: list[Any] = []
            self._add_hooks(modules)
            _subscriptions.append(self)
            inspection.is_subscribed = True

    def __enter__(self) -> Subscription:
        return self

    def __exit__(self, *_: object) -> None:
        self.remove()

    def remove(self) -> None:
        """Ends the subscription, and waits until all is written. Raises StatisticsError if something could not be."""
        with _lock:
            for handle in self._handles:
                handle.remove()
            self._handles = []
            if self in _subscriptions:
                _subscriptions.remove(self)
            inspection.is_subscribed = bool(_subscriptions)
        self._writer.close()

    def flush(self) -> None:
        """Waits until all that was observed is in the files. Raises StatisticsError if something could not be written."""
        self._writer.flush()

    def write(self, step: int, place: Place, phase: str, tensor: torch.Tensor, call: int) -> None:
        """Takes the statistics of one tensor. An error is raised by the next step: here it would be one of the graph."""
        try:
            summary = Summary(
                tensor, self._subscriber.bucket_size, self._subscriber.text_files and phase in ("forward", "backward")
            )
        except Exception as error:
            self._writer.fail(error)
            return
        fields = {"kind": "tensor", "step": step, "phase": phase, "name": place.name, "output": place.output}
        self._writer.put(Item({**fields, "call": call, "module": self._class_of(place, phase)}, summary))

    def _class_of(self, place: Place, phase: str) -> str | None:
        if phase in ("parameter", "gradient"):
            return self._classes.get(place.name.rpartition(".")[0])
        return None if place.output is None else self._classes[place.name]

    def _add_hooks(self, modules: dict[str, nn.Module]) -> None:
        root = modules.pop("")
        self._handles = [module.register_forward_hook(OutputHook(name)) for name, module in modules.items()]
        self._handles.append(root.register_forward_pre_hook(self._begin, prepend=True))
        self._handles.append(root.register_forward_hook(OutputHook("")))
        self._handles.append(root.register_forward_hook(self._end, always_call=True))
        for name, parameter in root.named_parameters():
            if parameter.requires_grad and parameter.is_leaf:
                hook = _GradientHook(self, name)
                self._handles.append(parameter.register_post_accumulate_grad_hook(hook))

    def _begin(self, module: nn.Module, arguments: Any) -> None:
        """Begins a step: one call of the module, of which the parameters come first."""
        if not self._is_call(module):
            return
        self._number += 1
        self._step = _Step(self, self._number) if self._subscriber.covers(self._number) else None
        running.begin(self._step)
        self._writer.check()
        if self._step is not None:
            mode = {"training": module.training, "gradients": torch.is_grad_enabled()}
            self._writer.put(Item({"kind": "step", "step": self._number, **mode}))
            for name, parameter in module.named_parameters():
                self._step.observe(Place(name, None), "parameter", parameter, None)

    def _end(self, module: nn.Module, arguments: Any, result: Any) -> None:
        if self._is_call(module):
            running.observers.pop()

    def _is_call(self, module: nn.Module) -> bool:
        """Tells whether the user calls the module itself, and not a copy of it, which has its hooks."""
        return not exporting.active and unwrapped(module) is self._model

    def __deepcopy__(self, memo: dict[int, Any]) -> Subscription:
        """Returns this object: a copy of the module is not subscribed to."""
        return self

    def gradient(self, name: str, parameter: torch.Tensor) -> None:
        """Takes a parameter whose gradient has come, as one of the latest step."""
        if self._step is not None and parameter.grad is not None and not exporting.active:
            self._step.observe(Place(name, None), "gradient", parameter.grad, None)


class _GradientHook:
    """Shows a parameter's gradient once it is there."""

    def __init__(self, subscription: Subscription, name: str) -> None:
        self._subscription, self._name = subscription, name

    def __call__(self, parameter: torch.Tensor) -> None:
        self._subscription.gradient(self._name, parameter)
