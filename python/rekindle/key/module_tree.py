"""Adds the leaves of a module tree: code, mode, attributes by value, parameters and buffers by description.

For example, `torch.nn.Sequential(torch.nn.Linear(2, 3))` gives:

    model.class             torch.nn.modules.container.Sequential <digest>
    model.training          True
    model[0].class          torch.nn.modules.linear.Linear <digest>
    model[0].training       True
    model[0].weight         Parameter torch.float32 [3, 2] cpu grad
    model[0].bias           Parameter torch.float32 [3] cpu grad
    model[0].in_features    2
    model[0].out_features   3
"""

from __future__ import annotations

from typing import Any

import torch
from torch.nn.modules import module as module_globals

from rekindle.key.values import tensors
from rekindle.key.values.cells import ITEMS, OBJECT, SET, object_but
from rekindle.key.values.objects import volatile_fields, watch_slots
from rekindle.key.values.proxies import around_forward
from rekindle.key.values.walker import Walker, attribute_path
from rekindle.modules.hooks import FORWARD_HOOKS, GLOBAL_HOOKS, HOOKS, STATE_DICT_HOOKS
from rekindle.modules.module_tables import has_strides
from rekindle.modules.proxy import unwrapped, wrapping_of
from rekindle.reasons import Bypass, Reason
from rekindle.results.layouts import has_memory

# What torch.nn.Module keeps in an instance's dict and this walk handles by itself.
_HANDLED = frozenset({"training", "_parameters", "_buffers", "_modules", "_non_persistent_buffers_set"})
_BOOKKEEPING = frozenset(  # of the hooks below
    "_forward_hooks_with_kwargs _forward_hooks_always_called _forward_pre_hooks_with_kwargs _is_full_backward_hook".split()
)
UNREAD = "unread"  # the leaf of an attribute that the forward is taken not to read; a text of the user's is quoted
_NOT_ATTRIBUTES = _HANDLED | _BOOKKEEPING | frozenset((*HOOKS, *STATE_DICT_HOOKS))


def _derived_anew(module: torch.nn.Module) -> frozenset[str]:
    """Returns what a forward sets before it reads it: the list of a recurrent layer whose parameters are others by now."""
    is_stale = type(module) in (torch.nn.RNN, torch.nn.LSTM, torch.nn.GRU) and module._weights_have_changed()
    return frozenset({"_flat_weights"}) if is_stale else frozenset()


def add_module_tree(walker: Walker, root: torch.nn.Module) -> list[tuple[str, torch.Tensor]]:
    """Adds the leaves of `root` and all below it, and returns its parameters and buffers, as (path, tensor) in order.

    Raises Bypass for what cannot be digested, for hooks of all modules, and for backward hooks, but for those of `root` itself,
    which run around it.
    """
    for name in GLOBAL_HOOKS:
        hooks = getattr(module_globals, name)
        if hooks:
            raise _hooked("torch.nn.Module (global)", name, hooks)
        walker.watch(hooks, ITEMS)
    walk = _TreeWalk(walker, root)
    walk.add("model", root)
    return walk.state


class _TreeWalk:
    """Adds the leaves of modules, of each once.

    with_hooks: the module whose own hooks are let through
    """

    def __init__(self, walker: Walker, with_hooks: torch.nn.Module) -> None:
        self._walker = walker
        self._with_hooks = with_hooks
        self._unread: dict[str, set[str]] = {}  # names of attributes taken to be unread, by the path of what has them
        for path in walker.unread:
            owner, _, name = path.rpartition(".")
            self._unread.setdefault(owner, set()).add(name)
        self.state: list[tuple[str, torch.Tensor]] = []  # parameters and buffers met, by path

    def add(self, path: str, module: torch.nn.Module) -> None:
        """Adds a module, then its children in order; a module met before becomes a reference."""
        walker = self._walker
        wrapping = wrapping_of(module)
        if wrapping is not None:
            self.add(path, wrapping.module)
            around_forward(walker, path, module)
            return
        if walker.seen(path, module):
            return
        _refuse_unsupported(path, module)
        state = module.__dict__
        self._watch(path, module, state)
        for name in HOOKS:
            hooks = state.get(name)
            if hooks and module is not self._with_hooks and name not in FORWARD_HOOKS:
                raise _hooked(path, name, hooks)
            if hooks is not None:
                walker.watch(hooks, ITEMS)
        walker.emit(f"{path}.class", walker.add_class(type(module)))
        walker.emit(f"{path}.training", module.training)
        self._add_tensors(path, module)
        # Children come before attributes, so that a reference to a module leads to its place in the tree.
        children = state["_modules"]
        walker.watch(children, ITEMS)
        for name, child in children.items():
            child_path = child_name(path, name)
            if child is None:
                walker.emit(child_path, None)
            else:
                self.add(child_path, child)
        skipped = _NOT_ATTRIBUTES | volatile_fields(type(module)) | _derived_anew(module)
        unread = self._unread_in(path, module, skipped) if path in self._unread else []
        for name, value in state.items():
            if name not in skipped and f"{name}" not in unread and not walker.left_out(path, type(module), name):
                self._add_attribute(_path_of(path, name), module, name, value)
        for name in unread:
            self._add_attribute(attribute_path(path, name), module, name, None)
        watch_slots(walker, path, module)
        if module is not self._with_hooks:
            self._add_forward_hooks(path, state)

    def _unread_in(self, path: str, module: torch.nn.Module, skipped: frozenset[str]) -> list[str]:
        """Lists the attributes of a module that are taken to be unread, there or not: a forward that asks for one reads it."""
        state = module.__dict__
        # In a private copy, names of the tables are not to be compared; the texts are.
        others = {f"{name}" for table in ("_parameters", "_buffers", "_modules") for name in state[table]}
        names = sorted(filter(is_attribute, self._unread[path] - others - skipped))
        return [name for name in names if not self._walker.left_out(path, type(module), name)]

    def _watch(self, path: str, owner: Any, attributes: dict[str, Any]) -> None:
        """Watches the attributes of a module or of a tensor of it, but for what unread ones hold, or such as no key has."""
        walker = self._walker
        # In a private copy, these names are not to be compared (export/copies/tripwires.py): the texts are.
        unread = {f"{name}" for name in attributes if walker.unread and _path_of(path, name) in walker.unread}
        unread |= self._unread.get(path, set()) | volatile_fields(type(owner)).intersection(attributes)
        walker.watch(owner, object_but(tuple(sorted(unread))) if unread else OBJECT)

    def _add_attribute(self, path: str, owner: Any, name: str, value: Any) -> None:
        walker = self._walker
        if path in walker.unread:
            walker.emit(path, UNREAD)
            walker.unread_of.append((owner, name))
            return
        walker.attributes_met.append(path)
        try:
            walker.walk(path, value)
        except Bypass as bypass:
            bypass.attribute = path
            raise

    def _add_forward_hooks(self, path: str, state: dict[str, Any]) -> None:
        """Adds the hooks that run around a submodule's forward: they are code of the forward above."""
        walker = self._walker
        for name, flags in FORWARD_HOOKS.items():
            for i, (key, hook) in enumerate(list(state.get(name, {}).items())):
                walker.walk(f"{path}.{name}[{i}]", hook)
                for flag in flags:
                    if key in state.get(flag, ()):
                        walker.emit(f"{path}.{name}[{i}].{flag}", True)
            for flag in flags:
                if flag in state:
                    walker.watch(state[flag], ITEMS)

    def _add_tensors(self, path: str, module: torch.nn.Module) -> None:
        walker = self._walker
        state = module.__dict__
        walker.watch(state["_parameters"], ITEMS)
        walker.watch(state["_buffers"], ITEMS)
        for name, parameter in state["_parameters"].items():
            self._add_tensor(attribute_path(path, name), parameter, "")
        transient = state["_non_persistent_buffers_set"]
        if state["_buffers"]:
            walker.watch(transient, SET)
        for name, buffer in state["_buffers"].items():
            buffer_path = attribute_path(path, name)
            if buffer is None or has_strides(buffer):
                self._add_tensor(buffer_path, buffer, " transient" if name in transient else " persistent")
            else:
                self._add_attribute(buffer_path, state["_buffers"], name, buffer)

    def _add_tensor(self, path: str, tensor: torch.Tensor | None, suffix: str) -> None:
        walker = self._walker
        if tensor is None:
            walker.emit(path, f"None{suffix}")
            return
        if isinstance(tensor, torch.nn.parameter.UninitializedTensorMixin):
            raise Bypass(Reason.OPAQUE_VALUE, f"{path} is not initialized; a lazy module is when it has been called once")
        if not tensors.is_plain(tensor) and tensors.is_traceable_parameter(tensor):
            walker.emit(f"{path}.class", walker.add_class(type(tensor)))
        elif not tensors.is_plain(tensor):
            kind = type(tensor)
            what = f"{path} is a {kind.__module__}.{kind.__qualname__}; parameters and buffers must be plain tensors"
            if kind.__module__.startswith("torch.distributed."):
                what += "; blocks that fully_shard has sharded run from graphs, what parallelize_module has split does not"
            raise Bypass(Reason.OPAQUE_VALUE, what)
        if walker.seen(path, tensor):
            return
        if tensors.is_plain(tensor) and not has_memory(tensor):
            raise Bypass(Reason.OPAQUE_VALUE, f"{path} has no memory now: it was freed, as sharding does between forwards")
        self.state.append((path, tensor))
        walker.emit(path, tensors.describe(tensor, self._walker.devices) + suffix)
        attributes = tensor.__dict__
        self._watch(path, tensor, attributes)
        unread = sorted(self._unread.get(path, ()))  # there or not
        for name, value in list(attributes.items()):
            if f"{name}" not in unread and not walker.left_out(path, type(tensor), name):
                self._add_attribute(attribute_path(path, name), tensor, name, value)
        for name in unread:
            if not walker.left_out(path, type(tensor), name):
                self._add_attribute(attribute_path(path, name), tensor, name, None)


def is_attribute(name: str) -> bool:
    """Tells whether a name in a module's dict is an attribute of the user's, which torch.nn.Module does not keep for itself."""
    return name.isidentifier() and name not in _NOT_ATTRIBUTES and not name.startswith("__")


def _path_of(path: str, name: str) -> str:
    """Returns the path of an attribute; what torch names anew in each process, as fully_shard its state, has one for all."""
    return attribute_path(path, name.partition("_key_")[0] if name.startswith("__composable_api_") else name)


def module_paths(root: torch.nn.Module) -> dict[int, tuple[str, object]]:
    """Returns every module of the tree by identity: the path of its first place, and the module."""
    found: dict[int, tuple[str, object]] = {}
    _add_paths(found, "model", root)
    return found


def _add_paths(found: dict[int, tuple[str, object]], path: str, module: torch.nn.Module) -> None:
    module = unwrapped(module)
    if id(module) not in found:
        found[id(module)] = (path, module)
        for name, child in module._modules.items():
            if child is not None:
                _add_paths(found, child_name(path, name), child)


def child_name(path: str, name: str) -> str:
    """Returns the path of a child as one would write it in Python."""
    return f"{path}[{name}]" if name.isdigit() else attribute_path(path, name)


def _refuse_unsupported(path: str, module: torch.nn.Module) -> None:
    if isinstance(module, torch.nn.DataParallel):
        raise Bypass(
            Reason.DATA_PARALLEL,
            f"{path} is torch.nn.DataParallel; use DistributedDataParallel around the wrapped module",
        )
    if isinstance(module, torch.jit.ScriptModule):
        raise Bypass(Reason.OPAQUE_VALUE, f"{path} is a scripted module; wrap the Python module it was made from")


def _hooked(path: str, name: str, hooks: Any) -> Bypass:
    hook = next(iter(hooks.values()))
    shown = getattr(hook, "__qualname__", None) or type(hook).__qualname__
    kind = name.replace("_global", "").strip("_").replace("_", " ").removesuffix("s")
    return Bypass(Reason.HOOKS, f"{path} has a {kind} {shown}; remove the hook, or move its work into the forward")
