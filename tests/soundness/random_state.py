"""What can be seen of a module after a call, as text and tensors by path, so that two modules can be compared.

Everything reachable is visited once, in one order; what is met again is told by where it was met first. So identity and shared
memory are compared like values: a result that is the module's own list reads as a reference to it.
"""

from __future__ import annotations

import collections
import contextvars
import enum
import functools
import hashlib
import inspect
import logging
import pathlib
import random
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

_PLAIN = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    type(...),
    type(NotImplemented),
    range,
    torch.dtype,
    torch.device,
    slice,
)
_HIDDEN = {"STEPS", "annotations"}
_MOST = 200  # differences that are kept
Leaf = str | torch.Tensor


def _asked(question: Callable[[], bool]) -> bool | str:
    """Returns an answer, or the error: a view that was made without gradients and then written with them has none."""
    try:
        return question()
    except RuntimeError as error:
        return str(error)[:40]


class Walk:
    """Visits values; `leaves` are (path, text or tensor) in the order of the visit."""

    def __init__(self, module: types.ModuleType) -> None:
        self.leaves: list[tuple[str, Leaf]] = []
        self._module = module
        self._seen: dict[int, str] = {}
        self._storages: dict[int, str] = {}
        self._alive: list[Any] = []

    def visit(self, path: str, value: Any) -> None:
        """Add what the value is and all that it holds."""
        if isinstance(value, _PLAIN) and not isinstance(value, enum.Enum) and type(value) in _PLAIN:
            self._add(path, f"{type(value).__name__} {value!r}".replace(self._module.__name__, "(module)"))
            return
        if id(value) in self._seen:
            self._add(path, f"is {self._seen[id(value)]}")
            return
        self._seen[id(value)] = path
        self._alive.append(value)
        if isinstance(value, torch.Tensor):
            self._tensor(path, value)
        elif isinstance(value, np.ndarray | np.generic):
            text = f"{type(value).__name__} {value.dtype} {value.shape} {value.strides} {np.asarray(value).tolist()!r}"
            self._add(path, text)
        elif isinstance(value, type):
            self._class(path, value)
        else:
            self._other(path, value)

    def _add(self, path: str, leaf: Leaf) -> None:
        self.leaves.append((path, leaf))

    def _tensor(self, path: str, value: torch.Tensor) -> None:
        with torch.inference_mode():  # some tensors of inference mode do not say so, after `x.data = y`
            plain = value.detach().clone().as_subclass(torch.Tensor)
        text = f"{type(value).__name__} {value.dtype} {[*value.shape]} {[*value.stride()]}"
        is_leaf = _asked(lambda: value.is_leaf)
        text += f" leaf={is_leaf} req={_asked(lambda: value.requires_grad)}"
        storage = value.untyped_storage()
        key = storage.data_ptr()
        if key and key in self._storages:
            text += f" in memory of {self._storages[key]} from {value.storage_offset() * value.element_size()}"
        elif key:
            self._storages[key] = path
        self._add(path, text)
        self._add(path + ".values", plain.clone())
        if is_leaf is True and value.grad is not None:
            self.visit(path + ".grad", value.grad)
        for name, held in sorted(vars(value).items()):
            self.visit(f"{path}.{name}", held)

    def _class(self, path: str, value: type) -> None:
        self._add(path, f"class {value.__name__}")
        if value.__module__ == self._module.__name__:
            for name, held in [*vars(value).items()]:
                if not name.startswith("__") and not isinstance(held, types.GetSetDescriptorType | types.MemberDescriptorType):
                    self.visit(f"{path}.{name}", held)

    def _other(self, path: str, value: Any) -> None:
        kind = type(value)
        self._add(path, f"a {kind.__name__}{_detail(value)}")
        if isinstance(value, dict | collections.ChainMap | types.MappingProxyType):
            for i, (key, held) in enumerate([*dict.items(value)] if isinstance(value, dict) else [*value.items()]):
                is_hooks = "_hooks" in path.rpartition(".")[2]  # by numbers that the process counts
                if not is_hooks:
                    self.visit(f"{path}.key{i}", key)
                self.visit(f"{path}[{key!r}]" if isinstance(key, str | int) and not is_hooks else f"{path}.value{i}", held)
        elif isinstance(value, list | tuple | collections.deque):
            for i, held in enumerate(value):
                self.visit(f"{path}[{i}]", held)
        elif isinstance(value, set | frozenset):
            self._add(path + ".members", repr(sorted(map(repr, value))))
        elif isinstance(value, types.FunctionType):
            self._function(path, value)
        elif isinstance(value, types.MethodType):
            self.visit(path + ".__self__", value.__self__)
            self.visit(path + ".__func__", value.__func__)
        elif isinstance(value, functools.partial):
            for name in ("func", "args", "keywords"):
                self.visit(f"{path}.{name}", getattr(value, name))
        self._attributes(path, value)

    def _function(self, path: str, value: types.FunctionType) -> None:
        self.visit(path + ".defaults", value.__defaults__)
        self.visit(path + ".kwdefaults", value.__kwdefaults__)
        for i, (name, cell) in enumerate(zip(value.__code__.co_freevars, value.__closure__ or (), strict=True)):
            if name == "dispatch_cache":  # of functools.singledispatch, which eager fills and a hit does not
                continue
            try:
                self.visit(f"{path}.cell{i}", cell.cell_contents)
            except ValueError:
                self._add(f"{path}.cell{i}", "empty")

    def _attributes(self, path: str, value: Any) -> None:
        if isinstance(value, types.ModuleType) or type(value).__module__ in (
            "pathlib",  # keeps the text of a path once somebody has asked for it
            "logging",
            "threading",
            "torch._C",
            "torch.utils.hooks",
        ):
            return
        try:
            held = object.__getattribute__(value, "__dict__")
        except AttributeError:
            held = {}
        for name, each in [*held.items()] if isinstance(held, dict) else []:
            if not (isinstance(value, types.FunctionType) and name in ("__wrapped__", "_clear_cache")):
                self.visit(f"{path}.{name}", each)
        for owner in type(value).__mro__:
            for name in vars(owner).get("__slots__", ()) if isinstance(vars(owner).get("__slots__"), tuple) else ():
                if hasattr(value, name):
                    self.visit(f"{path}.{name}", getattr(value, name))


def _detail(value: Any) -> str:
    """What a value says of itself, for those whose content is not visited."""
    if isinstance(value, enum.Enum):
        return f" {value.name}"
    if isinstance(value, types.ModuleType | types.BuiltinFunctionType):
        return f" {value.__name__}"
    if isinstance(value, int | float | str | bytes | bytearray):
        return f" {value!r}" if type(value).__module__ == "builtins" else f" {type(value).__mro__[1].__repr__(value)}"
    if isinstance(value, types.FunctionType):
        return f" {value.__name__}"
    if isinstance(value, contextvars.ContextVar):
        return f" {value.get('unset')!r}"
    if isinstance(value, types.GeneratorType):
        return f" at {value.gi_frame.f_lasti if value.gi_frame else 'its end'} {inspect.getgeneratorlocals(value)!r}"
    if isinstance(value, random.Random | np.random.RandomState):
        state = value.getstate() if isinstance(value, random.Random) else value.get_state()
        return f" {hashlib.md5(repr(state).encode()).hexdigest()}"
    if isinstance(value, torch.Generator):
        return f" {hashlib.md5(value.get_state().numpy().tobytes()).hexdigest()}"
    if isinstance(value, collections.deque):
        return f" {value.maxlen}"
    if type(value).__name__ in ("count", "repeat", "Event", "lock"):
        return f" {value!r}" if type(value).__name__ in ("count", "repeat") else ""
    if isinstance(value, pathlib.PurePath):
        return f" {value}"
    if isinstance(value, logging.Logger):
        return f" {value.level} {value.disabled}"
    if type(value).__name__ == "Read" or (type(value).__name__).startswith("Read"):
        return f" {value!r}"
    return ""


def state_of(net: torch.nn.Module, module: types.ModuleType, seen: dict[str, Any]) -> list[tuple[str, Leaf]]:
    """All that can be seen: the module, what is defined beside it, and what a call was given, returned and left."""
    walk = Walk(module)
    walk.visit("net", net)
    for name, value in [*vars(module).items()]:
        if not name.startswith("__") and name not in _HIDDEN and not isinstance(value, types.ModuleType):
            walk.visit(f"mod.{name}", value)
    for name, value in seen.items():
        walk.visit(name, value)
    return walk.leaves


FLOAT32, BFLOAT16 = 1e-5, 2**-8  # what rounding may change, as a part of a tensor's largest value
_HALF = (torch.bfloat16, torch.float16)
_CANCELLED = 1e-6  # of gradients, where that of the loss is around one


def differences(ours: list[tuple[str, Leaf]], theirs: list[tuple[str, Leaf]], rounding: float = FLOAT32) -> list[str]:
    """What differs, a line each: path, what is expected (eager) and what was got."""
    mine, yours = dict(ours), dict(theirs)
    largest = max((_largest(leaf) for path, leaf in theirs if _is_gradient(path)), default=0.0)
    if largest < _CANCELLED:  # eager's have all cancelled, and were as large as what flows in
        largest = 1.0
    found = [f"{path}: expected {_short(yours[path])}, got nothing" for path in yours if path not in mine]
    found += [f"{path}: expected nothing, got {_short(mine[path])}" for path in mine if path not in yours]
    for path, leaf in yours.items():
        # A gradient that cancels to nothing, as before a normalization, has the rounding of what cancels.
        if path in mine and not _equal(mine[path], leaf, rounding, largest if _is_gradient(path) else 0.0):
            found.append(f"{path}: expected {_short(leaf)}, got {_short(mine[path])}")
    return found[:_MOST]


def _is_gradient(path: str) -> bool:
    return ".grad" in path or path.startswith(("gradient", "first gradients"))


def has_half_gradients(leaves: list[tuple[str, Leaf]]) -> bool:
    """Whether a gradient is of half precision, so that it keeps that rounding after `net.float()`."""
    return any(_is_gradient(path) and isinstance(leaf, torch.Tensor) and leaf.dtype in _HALF for path, leaf in leaves)


def _largest(leaf: Leaf) -> float:
    if isinstance(leaf, str) or not leaf.is_floating_point():
        return 0.0
    finite = leaf.double().abs()[leaf.isfinite()]
    return float(finite.max()) if finite.numel() else 0.0


def _equal(a: Leaf, b: Leaf, rounding: float, scale: float) -> bool:
    if isinstance(a, str) or isinstance(b, str):
        return isinstance(a, str) and isinstance(b, str) and a == b
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not a.is_floating_point() or not a.numel():
        return bool(torch.equal(a, b))
    rounding = max(rounding, BFLOAT16 if a.dtype in _HALF else 0.0)
    a, b, scale = a.double(), b.double(), max(scale, _largest(b))
    return bool(torch.allclose(a, b, rtol=10 * rounding, atol=rounding * scale + 1e-7, equal_nan=True))


def _short(leaf: Leaf) -> str:
    return leaf if isinstance(leaf, str) else f"{leaf.flatten()[:8].tolist()}"
