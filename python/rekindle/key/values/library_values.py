"""Adds the leaves of values of torch and NumPy; see `walker.Walker`."""

from __future__ import annotations

import dataclasses
import re
import sys
from typing import Any

import numpy
import torch
import torch.distributed
import torch.nn.attention
import torch.utils.hooks

from rekindle.key.values.cells import ARRAY, ITEMS, OBJECT, TENSOR, seen_only
from rekindle.key.values.names import parts_of_operator
from rekindle.key.values.tensors import content_text, describe
from rekindle.key.values.walker import IMMUTABLE, Kind, Walker, add_text, handles, opaque
from rekindle.process.digest import digest128
from rekindle.process.torch_internals import CustomOperator

_PLACES = r" # [^\n]*"  # where the source of a node is; compiled when it is used
_OUTSIDE_OF_GRAPHS = ("prim::Print", "aten::warn", "= ^", "<Tensor>")  # Python code, and numbers that the text does not show
_TEXTS = (torch.dtype, torch.layout, torch.memory_format, torch.qscheme, torch.finfo, torch.iinfo)

handles(*_TEXTS, cells=IMMUTABLE)(add_text)


@handles(torch.Tensor, torch.nn.Parameter, torch.nn.Buffer, cells=(TENSOR, OBJECT))
def _tensor(walker: Walker, path: str, value: torch.Tensor) -> None:
    binds = walker.devices.may_bind if path in walker.changing else walker.devices.binds
    if walker.bound is not None and binds(value):
        walker.leaves.append((path, f"bound {describe(value, walker.devices)}"))
        walker.bound.append((path, value))
        return
    walker.leaves.append((path, content_text(path, value, walker.content_limit)))
    walker.tensors.append((path, value))


@handles(torch.nn.attention.SDPBackend, cells=IMMUTABLE, attributes=False)
def _backend(walker: Walker, path: str, value: Any) -> None:
    walker.leaves.append((path, f"SDPBackend {value.name}"))


@handles(torch.device, cells=IMMUTABLE)
def _device(walker: Walker, path: str, value: torch.device) -> None:
    walker.leaves.append((path, f"device {walker.devices.name(value)}"))


@handles(torch.utils.hooks.RemovableHandle, cells=IMMUTABLE, attributes=False)
def _hook_handle(walker: Walker, path: str, value: Any) -> None:
    """Adds that it is one. Its number counts all hooks that the process has ever had; the hook is where it is called."""
    walker.leaves.append((path, "hook handle"))


@handles(torch.jit.ScriptFunction, cells=IMMUTABLE, attributes=False)
def _script_function(walker: Walker, path: str, value: Any) -> None:
    """Adds a function that torch.jit.script has compiled, by its graph; raises Bypass for one that prints: no graph does."""
    graph = re.sub(_PLACES, "", str(value.inlined_graph))
    if (does := next((name for name in _OUTSIDE_OF_GRAPHS if name in graph), None)) is not None:
        raise opaque(path, value, f" with {does}")
    walker.leaves.append((path, f"script function {value.name} {digest128(graph.encode())}"))


@handles(torch.Size, cells=IMMUTABLE)
def _size(walker: Walker, path: str, value: torch.Size) -> None:
    walker.leaves.append((path, f"Size {list(value)}"))


@handles(torch._ops.OpOverload, torch._ops.OpOverloadPacket, cells=IMMUTABLE, attributes=False)
def _operator(walker: Walker, path: str, value: Any) -> None:
    """Adds an operator by name: what implements it is a field of its own."""
    walker.leaves.append((path, f"torch operator {value}"))


# What torch adds as it runs is its own business.
_REGISTRATIONS = (dataclasses.replace(OBJECT, put_back=None), dataclasses.replace(ITEMS, put_back=None))


@handles(CustomOperator, cells=_REGISTRATIONS[:1], attributes=False, shared=True)
def _custom_op(walker: Walker, path: str, value: CustomOperator) -> None:
    """Adds an operator defined in Python: its schema, kernels, shapes and derivative."""
    walker.leaves.append((path, f"custom operator {value._qualname}{value._schema}"))
    for part in vars(value).values():
        if type(part) is dict:
            walker.watch(part, _REGISTRATIONS[1])
    for name, part in parts_of_operator(value).items():
        walker.walk(f"{path}.{name}", part)


def _ops_namespace(walker: Walker, path: str, value: Any) -> None:
    walker.leaves.append((path, f"torch namespace {value.__name__}"))


def _process_group(walker: Walker, path: str, value: Any) -> None:
    """Adds the ranks and the backend of a group, not which of the ranks this process is, so that ranks share graphs."""
    from torch.distributed import get_backend, get_process_group_ranks

    walker.leaves.append((path, f"process group {get_process_group_ranks(value)} {get_backend(value)}"))


@handles(numpy.ndarray, cells=(ARRAY,))
def _ndarray(walker: Walker, path: str, value: Any) -> None:
    if value.dtype.hasobject or value.nbytes > 1 << 20:
        raise opaque(path, value, f" of dtype {value.dtype} and {value.nbytes} bytes, which is not digested")
    layout = f"{_dtype_text(value.dtype)} {list(value.shape)}"
    if not value.flags.c_contiguous:
        layout += f" strides {list(value.strides)}"
    if not value.flags.writeable:
        layout += " readonly"
    walker.leaves.append((path, f"ndarray {layout} {digest128(value.tobytes())}"))


def _dtype_text(dtype: Any) -> str:
    """Returns a text for the type of an array's items; of a type with fields, all of them."""
    return dtype.str if dtype.names is None and dtype.subdtype is None else repr(dtype)


def _dtype(walker: Walker, path: str, value: Any) -> None:
    walker.leaves.append((path, f"{type(value).__name__} {value.str} {value!r}"))
    if value.metadata:
        walker.walk(f"{path}.metadata", dict(value.metadata))


def _numpy_scalar(walker: Walker, path: str, value: Any) -> None:
    walker.leaves.append((path, f"numpy {value.dtype.str} {value.tobytes().hex()}"))


def _ufunc(walker: Walker, path: str, value: Any) -> None:
    """Adds a function of NumPy or SciPy by name; raises Bypass for one that was made of a Python function."""
    owners = [numpy, numpy.linalg, numpy.fft, sys.modules.get("scipy.special"), sys.modules.get("numpy._core.umath")]
    if isinstance(value, numpy.ufunc) and all(getattr(owner, value.__name__, None) is not value for owner in owners):
        raise opaque(path, value)
    walker.leaves.append((path, f"numpy function {value.__name__}"))


_NAMED = Kind(_ufunc, IMMUTABLE, False)
_NAMESPACES = (torch._ops._OpNamespace, torch._ops._Ops, torch._classes._ClassNamespace)
_DTYPE_NAMES = seen_only(lambda value: (value.names,))


def find(cls: type) -> Kind | None:
    """Returns the kind of a class of torch's or NumPy's that is one of a family, or None."""
    if issubclass(cls, torch.Tensor):  # content_text refuses what is not plain
        return Kind(_tensor, (TENSOR, OBJECT), True, attributes=True)
    if torch.distributed.is_available() and issubclass(cls, torch.distributed.ProcessGroup):
        return Kind(_process_group, IMMUTABLE, False)
    if issubclass(cls, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return Kind(_operator, IMMUTABLE, False)
    if issubclass(cls, _NAMESPACES):
        return Kind(_ops_namespace, IMMUTABLE, False)
    if issubclass(cls, numpy.generic) and not issubclass(cls, numpy.object_ | numpy.void) and cls.__module__ == "numpy":
        return Kind(_numpy_scalar, IMMUTABLE, False)
    if issubclass(cls, numpy.dtype):
        return Kind(_dtype, (_DTYPE_NAMES,), False)
    if cls is numpy.ufunc or cls.__name__ == "_ArrayFunctionDispatcher":
        return _NAMED
    return None
