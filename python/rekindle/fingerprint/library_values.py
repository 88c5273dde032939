"""Handlers for values of torch, NumPy and the standard library; see `values.Walker`."""

from __future__ import annotations

import collections
import contextlib
import ctypes
import datetime
import decimal
import fractions
import inspect
import operator
import os
import pathlib
import random
import re
import sys
import types
import uuid
from typing import Any

import torch
import torch.distributed
from torch._library.custom_ops import CustomOpDef

from rekindle.fingerprint.binaries import build_id
from rekindle.fingerprint.containers import items
from rekindle.fingerprint.digest import digest128
from rekindle.fingerprint.resolve import parts_of_operator
from rekindle.fingerprint.tensors import content_text
from rekindle.fingerprint.values import Handler, Walker, attribute_path, handlers, label, opaque

_TORCH_TEXT_TYPES = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.qscheme, torch.finfo, torch.iinfo)
_TUPLE_FIELD = type(collections.namedtuple("_", "field").field)  # type: ignore[attr-defined]
_REDUCED_TYPES = (operator.itemgetter, operator.attrgetter, operator.methodcaller, _TUPLE_FIELD)
_CAPSULE = type(datetime.datetime_CAPI)  # type: ignore[attr-defined]


def _tensor(walker: Walker, path: str, value: torch.Tensor) -> None:
    if walker.seen(path, value):
        return
    walker.tensors.append((path, value))
    walker.leaves.append((path, content_text(path, value)))
    tensor_attributes(walker, path, value)


def tensor_attributes(walker: Walker, path: str, tensor: torch.Tensor) -> None:
    """Leaves of what was set on a tensor as on any Python object."""
    walker.containers.append(tensor.__dict__)
    for name, value in tensor.__dict__.items():
        walker.walk(attribute_path(path, name), value)


def _text(walker: Walker, path: str, value: Any) -> None:
    walker.leaves.append((path, f"{type(value).__name__} {value}"))


def _typing(walker: Walker, path: str, value: Any) -> None:
    walker.leaves.append((path, f"typing {value!r}"))


def _reduced(walker: Walker, path: str, value: Any) -> None:
    walker.leaves.append((path, f"{type(value).__module__}.{type(value).__name__}"))
    walker.walk(f"{path}.arguments", value.__reduce__()[1])


def _capsule(walker: Walker, path: str, value: Any) -> None:
    if walker.deep_classes:
        raise opaque(path, value)
    walker.leaves.append((path, "PyCapsule"))  # a table of C functions that the class's library put there


def _generator(walker: Walker, path: str, value: Any) -> None:
    """The process's own generators are named only: a recorder notices if the forward draws from them."""
    numpy = sys.modules.get("numpy")
    if value is not random._inst and (numpy is None or value is not numpy.random.mtrand._rand):  # type: ignore[attr-defined]
        raise opaque(path, value)
    walker.leaves.append((path, f"global generator {type(value).__name__}"))


def _pattern(walker: Walker, path: str, value: re.Pattern) -> None:
    walker.leaves.append((path, f"pattern {value.flags} {value.pattern!r}"))


def _namespace(walker: Walker, path: str, value: types.SimpleNamespace) -> None:
    if walker.seen(path, value):
        return
    walker.containers.append(vars(value))
    items(walker, path, "namespace", vars(value).items())


def _context_manager(walker: Walker, path: str, value: Any) -> None:
    """A `contextlib.contextmanager` not entered yet, as decorators keep it: what makes its generator."""
    if inspect.getgeneratorstate(value.gen) != inspect.GEN_CREATED:
        raise opaque(path, value, " that was entered already")
    walker.leaves.append((path, type(value).__name__))
    for name in ("func", "args", "kwds"):
        walker.walk(f"{path}.{name}", getattr(value, name))


def _environ(walker: Walker, path: str, value: Any) -> None:
    walker.leaves.append((path, "environ"))  # single variables are recorded as they are read


def _operator(walker: Walker, path: str, value: Any) -> None:
    walker.leaves.append((path, f"torch operator {value}"))


def _ops_namespace(walker: Walker, path: str, value: Any) -> None:
    walker.leaves.append((path, f"torch namespace {value.__name__}"))


def _custom_op(walker: Walker, path: str, value: CustomOpDef) -> None:
    """An operator defined in Python: its schema, kernels, shapes and derivative."""
    if walker.seen(path, value):
        return
    walker.leaves.append((path, f"custom operator {value._qualname}{value._schema}"))
    for name, part in parts_of_operator(value).items():
        walker.walk(f"{path}.{name}", part)


def _process_group(walker: Walker, path: str, value: Any) -> None:
    """Who is in it, and what talks; not which of them this process is, so that ranks share graphs."""
    from torch.distributed import get_backend, get_process_group_ranks

    walker.leaves.append((path, f"process group {get_process_group_ranks(value)} {get_backend(value)}"))


def _c_library(walker: Walker, path: str, value: ctypes.CDLL) -> None:
    walker.leaves.append((path, f"C library {value._name} {build_id(value._name)}"))


def _c_function(walker: Walker, path: str, value: Any) -> None:
    """A function of a C library, which is covered where the library is; a Python callback has no name."""
    if not hasattr(value, "__name__"):
        raise opaque(path, value)
    walker.leaves.append((path, f"C function {value.__name__} {value.argtypes!r} {value.restype!r}"))


def _ndarray(walker: Walker, path: str, value: Any) -> None:
    if walker.seen(path, value):
        return
    if value.dtype.hasobject or value.nbytes > 1 << 20:
        raise opaque(path, value, f" of dtype {value.dtype} and {value.nbytes} bytes, which is not digested")
    walker.tensors.append((path, value))
    layout = f"{value.dtype.str} {list(value.shape)}"
    if not value.flags.c_contiguous:
        layout += f" strides {list(value.strides)}"
    walker.leaves.append((path, f"ndarray {layout} {digest128(value.tobytes())}"))


def _numpy_scalar(walker: Walker, path: str, value: Any) -> None:
    walker.leaves.append((path, f"numpy {value.dtype.str} {value.tobytes().hex()}"))


def find(value: Any) -> Handler | None:
    """The handler of a library type, or None."""
    return _find_of_torch(value) or _find_of_numpy(value) or _find_other(value)


def _find_of_torch(value: Any) -> Handler | None:
    if isinstance(value, torch.Tensor):
        return _tensor
    if isinstance(value, torch.Size):
        return _size
    if isinstance(value, _TORCH_TEXT_TYPES):
        return _text
    if torch.distributed.is_available() and isinstance(value, torch.distributed.ProcessGroup):
        return _process_group
    if isinstance(value, CustomOpDef):
        return _custom_op
    if isinstance(value, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return _operator
    if isinstance(value, torch._ops._OpNamespace | torch._ops._Ops | torch._classes._ClassNamespace):
        return _ops_namespace
    return None


def _find_other(value: Any) -> Handler | None:
    cls = type(value)
    if isinstance(value, ctypes.CDLL):
        return _c_library
    if isinstance(value, ctypes._CFuncPtr):
        return _c_function
    if isinstance(value, pathlib.PurePath | uuid.UUID | decimal.Decimal | fractions.Fraction):
        return _text
    if isinstance(value, datetime.date | datetime.time | datetime.timedelta):
        return _typing
    if isinstance(value, _REDUCED_TYPES):
        return _reduced
    if isinstance(value, random.Random) or label(cls) == "numpy.random.mtrand.RandomState":
        return _generator
    if cls.__name__ == "cython_function_or_method":
        return handlers[types.WrapperDescriptorType]  # compiled: named, and covered by its package's version
    if cls is _CAPSULE:
        return _capsule
    if isinstance(value, re.Pattern):
        return _pattern
    if cls is types.SimpleNamespace:
        return _namespace
    if isinstance(value, contextlib._GeneratorContextManager):
        return _context_manager
    if isinstance(value, type(os.environ)):
        return _environ
    if cls.__module__ in ("typing", "typing_extensions"):
        return _typing
    return None


def _size(walker: Walker, path: str, value: torch.Size) -> None:
    walker.leaves.append((path, f"Size {list(value)}"))


def _find_of_numpy(value: Any) -> Handler | None:
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    if type(value) is numpy.ndarray:
        return _ndarray
    if isinstance(value, numpy.generic) and not isinstance(value, numpy.object_ | numpy.void):
        return _numpy_scalar
    if isinstance(value, numpy.dtype):
        return _text
    if isinstance(value, numpy.ufunc):
        return _ufunc
    if type(value).__name__ == "_ArrayFunctionDispatcher":
        return _ufunc
    return None


def _ufunc(walker: Walker, path: str, value: Any) -> None:
    walker.leaves.append((path, f"numpy function {value.__name__}"))
