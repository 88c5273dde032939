"""Provides rekindle.Module: an nn.Module like the one it wraps, whose forward runs from a cached graph."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from rekindle.calls.runtime import Runtime
from rekindle.memory_plan import MemoryPlan
from rekindle.modules.proxy import WRAPPED, Proxy, Wrapping, adopt, as_unwrapped, kind_of, unwrapped, wrapping_of
from rekindle.modules.status import Status
from rekindle.options import Options

if TYPE_CHECKING:
    from rekindle.lookup.explanation import Explanation


class Module(Proxy):
    """Wraps a module, and runs its forward from a cached graph: `Module(module, Options(...))`.

    It has the same parameters, buffers, state_dict keys, signature, methods and attributes. The wrapped module stays the one
    place of state: this object has its attributes and its class's methods, which run with this object as `self`, so that
    `self(x)` in them runs from a graph too. Hooks of the module run around the graph; forward hooks on submodules are part of
    it, and backward hooks on them leave it to the submodules to run from graphs of their own. `.module` is the wrapped module,
    unless that has an attribute of this name; `rekindle.unwrap` always gives it. Wrapping runs nothing. The first call of each
    kind looks the cache up, and exports on a miss.
    """

    def __init__(self, module: nn.Module, options: Options | None = None) -> None:
        if not isinstance(module, nn.Module):
            raise TypeError(f"rekindle.Module wraps a torch.nn.Module, not a {type(module).__name__}")
        if wrapping_of(module) is not None:
            raise TypeError("this module is wrapped already; wrap its .module, or use it as it is")
        options = options or Options()
        adopt(self, Wrapping(module, options, Runtime(module, options)))

    def __copy__(self) -> Any:
        return _copied(self, copy.copy, {})

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return _copied(self, functools.partial(copy.deepcopy, memo=memo), memo)

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Pickles everything but the sessions, which another process makes anew from the cache."""
        wrapping = wrapping_of(self)
        if wrapping is None:
            return as_unwrapped(self).__reduce_ex__(protocol)
        return blank, (kind_of(self),), {"module": wrapping.module, "options": wrapping.options, "forward": wrapping.forward}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if hasattr(type(self), WRAPPED):
            super().__setstate__(state)
        else:
            _restore(self, **state)


def blank(kind: type[Module]) -> Module:
    """Returns an object of a class that wraps nothing yet; copies and pickles fill it."""
    return object.__new__(kind)


def _restore(model: Module, module: nn.Module, options: Options, forward: Any) -> None:
    adopt(model, Wrapping(module, options, Runtime(module, options), forward))


def _copied(model: Module, duplicate: Callable[[Any], Any], memo: dict[int, Any]) -> Any:
    wrapping = wrapping_of(model)
    if wrapping is None:
        return duplicate(as_unwrapped(model))
    other = memo[id(model)] = blank(kind_of(model))
    _restore(other, duplicate(wrapping.module), wrapping.options, duplicate(wrapping.forward))
    return other


def runtime_of(model: Module, asked: str) -> Runtime:
    """Returns what serves the calls of a module, for the function `rekindle.<asked>`. Raises TypeError without a wrapper."""
    wrapping = wrapping_of(model)
    if wrapping is None:
        raise TypeError(f"rekindle.{asked} takes a rekindle.Module, not a {type(model).__name__}")
    return wrapping.runtime


def status(model: Module) -> Status:
    """Returns what the module has done so far; see Status. Raises TypeError for a module that is not wrapped."""
    return runtime_of(model, "status").current_status()


def explain(model: Module, *args: Any, **kwargs: Any) -> Explanation:
    """Explains why `model(*args, **kwargs)` would hit or miss the cache, against the nearest entry; see Explanation.

    Runs no forward, exports nothing, changes and counts nothing. Raises TypeError for a module that is not wrapped.
    """
    return runtime_of(model, "explain").explain(args, kwargs)


def unwrap(model: torch.nn.Module) -> torch.nn.Module:
    """Returns the wrapped module; a module that is not wrapped is returned as it is."""
    return unwrapped(model)


# Of weights-only loads: they make what is saved, and run nothing.
torch.serialization.add_safe_globals([blank, Module, Options, MemoryPlan])
