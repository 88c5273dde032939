"""Tells from its file name where code comes from."""

from __future__ import annotations

import enum
import os
import sys
import sysconfig
import types

import torch


class Origin(enum.Enum):
    """Names the owners of code. Only USER code is observed; the versions of the others stand for them."""

    USER = 1  # the user's code, with the libraries that the user has installed
    TORCH = 2
    STDLIB = 3
    REKINDLE = 4  # this package
    LIBRARY = 5  # runs for the exporter, or is covered by its version


TORCH_DIRECTORY = os.path.dirname(torch.__file__) + os.sep
_SITE = os.path.dirname(os.path.dirname(torch.__file__)) + os.sep
REKINDLE_DIRECTORY = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_STDLIB = tuple({sysconfig.get_path(name) + os.sep for name in ("stdlib", "platstdlib")})
_LIBRARY_NAMES = ("numpy", "onnx", "onnxscript", "onnx_ir", "google", "ml_dtypes", "typing_extensions")
_LIBRARIES = tuple(_SITE + name + end for name in _LIBRARY_NAMES for end in (os.sep, ".py"))
_ROOTS = {"torch": Origin.TORCH, "rekindle": Origin.REKINDLE} | dict.fromkeys(_LIBRARY_NAMES, Origin.LIBRARY)

# Installed packages whose functions of plain values are pure: what they cache, and in which order they take the items of their
# sets, changes no result.
PURE_LIBRARIES = frozenset({"einops"})

_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE
_COVERED_ROOTS = sys.stdlib_module_names | {"torch"}

_known: dict[str, Origin] = {}


def installed(filename: str) -> bool:
    """Tells whether the file belongs to a package that was installed, not to one that is being worked on."""
    return filename.startswith(_SITE)


def is_covered_class(cls: type) -> bool:
    """Tells whether the versions of Python and torch stand for a class.

    They do not for a class of the user's whose module only shares its name with one of the standard library.
    """
    root = cls.__module__.partition(".")[0]
    if root not in _COVERED_ROOTS:
        return False
    file = getattr(sys.modules.get(root), "__file__", None)
    return file is None or origin_of(file) is not Origin.USER


def is_heap_class(cls: type) -> bool:
    """Tells whether a class was made while Python runs, as by a `class` statement; the others are C code, and never change.

    See Py_TPFLAGS_HEAPTYPE in the documentation of Python's C interface.
    """
    return bool(cls.__flags__ & _HEAP_TYPE)


def is_of_library(cls: type) -> bool:
    """Tells whether a class belongs to Python, torch or what the exporter imports. Such a class comes and goes with imports."""
    root = cls.__module__.partition(".")[0]
    return root in _ROOTS or root in sys.stdlib_module_names


def is_covered_function(function: types.FunctionType) -> bool:
    """Tells whether the versions of Python and torch stand for a function, whatever the function says of itself."""
    return origin_of(function.__code__.co_filename) in (Origin.TORCH, Origin.STDLIB)


def origin_of_frame(frame: types.FrameType) -> Origin:
    """Returns the origin of running code. Generated code, such as a dataclass's `__init__`, belongs to its module."""
    filename = frame.f_code.co_filename
    if filename.startswith("<") and not filename.startswith("<frozen "):
        root = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        return _ROOTS.get(root, Origin.STDLIB if root in sys.stdlib_module_names else Origin.USER)
    return origin_of(filename)


def origin_of(filename: str) -> Origin:
    """Returns the origin of code that was compiled from `filename`."""
    origin = _known.get(filename)
    if origin is None:
        origin = _known[filename] = _origin(filename)
    return origin


def _origin(filename: str) -> Origin:
    if filename.startswith(TORCH_DIRECTORY):
        return Origin.TORCH
    if filename.startswith(REKINDLE_DIRECTORY):
        return Origin.REKINDLE
    if filename.startswith(_LIBRARIES):
        return Origin.LIBRARY
    if filename.startswith("<frozen "):
        return Origin.STDLIB
    if filename.startswith(_STDLIB) and "-packages" + os.sep not in filename:
        return Origin.STDLIB
    return Origin.USER
