"""Captures a module in parts: while it runs in eager, the largest of its submodules that can run from graphs do.

A submodule's `forward` is replaced in its instance, for the time of one eager call of the module above and in the calling thread.
What surrounds a forward (hooks, the calling code) is left to eager, in its order. A submodule that cannot run from a graph either
runs in eager, with its own submodules served in the same way.

An example: the forward of `Net` is `h = self.encoder(x); print(h.mean()); return self.decoder(h)`. It prints, so `Net` is refused
(side_effect) and runs in eager. Afterwards `candidates(net)` names `encoder` and `decoder`, if each has two layers or more, and
within `Parts(...).run(net, ...)` eager's calls of the two run from graphs, with the print between them.
"""

from __future__ import annotations

import contextlib
import types
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from threading import get_ident
from typing import Any

import torch
from torch import nn

from rekindle.modules.hooks import HOOKS, has_global_hooks
from rekindle.modules.module_tables import named_modules
from rekindle.modules.proxy import wrapping_of
from rekindle.process.exporting import exporting
from rekindle.process.torch_internals import tracing_state
from rekindle.reasons import Bypass, Reason

# Those under which submodules may do better. The others hold for submodules as well, or pass by themselves.
_OF_ONE_MODULE = frozenset(Reason) - {
    Reason.MODE_STACK, Reason.INFERENCE_MODE, Reason.DISABLED, Reason.DATA_PARALLEL,
    Reason.CHANGED_DURING_EXPORT, Reason.OUT_OF_MEMORY, Reason.BUSY, Reason.BACKGROUND,
}  # fmt: skip
# Those that may pass by themselves, or be an error of the user's: the parts wait until a call has run in eager.
_AFTER_A_CALL = frozenset((Reason.EXPORT_FAILED, Reason.VERIFICATION_FAILED, Reason.STATE_MUTATED, Reason.SIDE_EFFECT))
_LEAST_LAYERS = 2  # a graph of one layer saves nothing
_OPAQUE_PACKAGES = ("torch.nn.parallel.", "torch.distributed.", "torch._dynamo.", "torch.jit.")

Call = Callable[[tuple[Any, ...], dict[str, Any]], Any]


@dataclass(frozen=True)
class Part:
    """Names one submodule, and says how it ran last."""

    name: str  # as in `named_modules`; empty for the module itself
    source: str  # as in Status
    reason: str | None = None  # why it runs in eager, if it does

    def __str__(self) -> str:
        return f"{self.name or '(the module)'}: {self.source}" + (f" ({self.reason})" if self.reason else "")


def allows_parts(reason: Reason, ran_in_eager: bool) -> bool:
    """Tells whether submodules of a module that is refused for `reason` may run from graphs.

    ran_in_eager: whether such a call has run in eager
    """
    return reason in _OF_ONE_MODULE and (ran_in_eager or reason not in _AFTER_A_CALL) and not has_global_hooks()


def candidates(module: nn.Module) -> dict[str, nn.Module]:
    """Returns the outermost submodules, by name, that are worth a graph."""
    found: dict[str, nn.Module] = {}
    seen: set[int] = set()

    def walk(parent: nn.Module, prefix: str) -> None:
        for name, child in parent._modules.items():
            if child is None or id(child) in seen or _is_opaque(child):
                continue
            seen.add(id(child))
            if _can_be_part(child):
                found[prefix + name] = child
            else:
                walk(child, f"{prefix}{name}.")

    walk(module, "")
    return found


def _can_be_part(module: nn.Module) -> bool:
    return (
        type(module).forward is not nn.Module.forward  # a container, which is not called
        and "forward" not in module.__dict__
        and module._compiled_call_impl is None
        and not _is_opaque(module)
        and sum(not child._modules for child in named_modules(module).values()) >= _LEAST_LAYERS
    )


def _is_opaque(module: nn.Module) -> bool:
    """Tells whether more happens inside than the module's own forward, or whether the module is served already."""
    return (
        not issubclass(type(module), nn.Module)  # a weakref.proxy
        or wrapping_of(module) is not None
        or _user_class(type(module)).__module__.startswith(_OPAQUE_PACKAGES)
        or isinstance(module, torch.jit.ScriptModule)
    )


def _user_class(kind: type) -> type:
    """Returns the class that a module had before fully_shard gave it one that gathers its parameters around the forward."""
    if (
        kind.__module__.startswith("torch.distributed.fsdp.")
        and len(kind.__mro__) > 2
        and kind.__bases__[0].__name__ == "FSDPModule"
    ):
        return kind.__bases__[1]
    return kind


class Parts:
    """Serves the parts of one module from graphs. For one thread at a time.

    module: the module whose submodules they are
    serving: makes what serves the calls of a submodule, given its name and itself
    in_use: whether submodules are other than the user made them
    """

    def __init__(self, module: nn.Module, serving: Callable[[str, nn.Module], Call]) -> None:
        self._served = [_Served(part, serving(name, part)) for name, part in candidates(module).items()]
        self.in_use = False

    def run(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Runs the module's forward as run_eager does, with the parts' calls by this thread served; inside of itself without."""
        if self.in_use or not self._served:
            return run_eager(module, args, kwargs)
        self.in_use = True
        try:
            for served in self._served:
                served.install()
            return run_eager(module, args, kwargs)
        finally:
            self.remove()

    def remove(self) -> None:
        """Gives the submodules back the forwards that the user made."""
        for served in self._served:
            served.remove()
        self.in_use = False


class _Served:
    """Stands in the place of the `forward` of a module instance."""

    def __init__(self, module: nn.Module, serve: Call) -> None:
        self._module = module
        self._serve = serve
        self._thread: int | None = None

    def install(self) -> None:
        if "forward" not in self._module.__dict__:
            self._module.__dict__["forward"] = self
            self._thread = get_ident()

    def remove(self) -> None:
        self._thread = None
        if self._module.__dict__.get("forward") is self:
            del self._module.__dict__["forward"]

    @property
    def __wrapped__(self) -> Any:
        return own_forward(self._module)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._thread != get_ident():
            return own_forward(self._module)(*args, **kwargs)
        self.remove()  # while it is served the module is what the user made it
        try:
            return self._serve(args, kwargs)
        finally:
            self.install()

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        """Gives a copy of the module that is made meanwhile the copy's own forward."""
        return own_forward(memo[id(self._module)])

    def __reduce__(self) -> Any:
        return own_forward, (self._module,)


@contextlib.contextmanager
def as_made(module: nn.Module) -> Iterator[None]:
    """Lets the block see the module as its user made it, should this thread serve it as a part at the moment."""
    served = module.__dict__.get("forward")
    if not isinstance(served, _Served) or served._thread != get_ident():
        yield
        return
    served.remove()
    try:
        yield
    finally:
        served.install()


def own_forward(module: nn.Module) -> Any:
    """Returns the forward that the user gave the module or its class."""
    if isinstance(module.__dict__.get("forward"), _Served):
        return types.MethodType(type(module).forward, module)
    return module.forward


def run_eager(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Runs the module's forward in eager and returns its result, without the module's own hooks, which the caller runs."""
    if tracing_state() is None:
        return own_forward(module)(*args, **kwargs)
    with _hooks_refused(module):
        return module._slow_forward(*args, **kwargs)  # what a module's __call__ does in a trace


@contextlib.contextmanager
def _hooks_refused(module: nn.Module) -> Iterator[None]:
    """Raises Bypass should the forward, within the block, call the module itself, whose hooks would then be in the graph."""
    attributes = module.__dict__
    hooks = {name: attributes[name] for name in HOOKS}
    if not (exporting.active and any(hooks.values())):
        yield
        return

    def refuse(*_: Any) -> None:
        raise Bypass(Reason.HOOKS, f"{type(module).__name__} has hooks, and its forward calls the module itself")

    attributes.update({name: OrderedDict() for name in HOOKS}, _forward_pre_hooks=OrderedDict({0: refuse}))
    try:
        yield
    finally:
        attributes.update(hooks)
