"""Answers questions about the process that a forward may ask: some can be asked again, the others differ from run to run."""

from __future__ import annotations

import contextvars
import decimal
import sys
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

import numpy
import torch

from rekindle.key.values.walker import value_text
from rekindle.recording.warnings_shown import filters_now


def _filter(entry: Any) -> tuple[Any, ...]:
    action, text, category, module, line = entry
    return action, getattr(text, "pattern", text), category, getattr(module, "pattern", module), line


def _einops_backends() -> str | None:
    """Returns what stands for the objects by which einops computes with tensors and with arrays; None where it is not loaded.

    einops asks itself in every one of its functions, and goes through the classes that there are for the answer.
    """
    backends = sys.modules.get("einops._backends")
    if backends is None:
        return None
    return ", ".join(value_text("backend", backends.get_backend(made)) for made in (torch.empty(0), numpy.empty(0)))


def _decimal_context() -> str:
    """Describes how decimal numbers are rounded; not what was: rounding one sets a flag, and is no change of the context."""
    context = decimal.getcontext().copy()
    context.clear_flags()
    return repr(context)


# Answered by torch, Python or einops without running code of the user's: the answer is an observation.
_REPEATABLE: dict[tuple[str, str], Callable[[], Any]] = {
    ("torch.distributed", "is_initialized"): torch.distributed.is_initialized
    if torch.distributed.is_available()
    else torch.distributed.is_available,
    ("torch.cuda", "is_available"): lambda: torch.cuda.is_available(),
    ("torch.cuda", "device_count"): lambda: torch.cuda.device_count(),
    ("warnings", "filters"): lambda: repr(list(map(_filter, filters_now()))),
    ("decimal", "context"): _decimal_context,
    ("einops", "get_backend"): _einops_backends,
    ("numpy", "geterr"): lambda: (*numpy.geterr().items(), numpy.getbufsize()),
}
# Where the answers to questions are kept, so that a guard need not ask.
KEPT: dict[tuple[str, str], contextvars.ContextVar[Any]] = {}
if hasattr(numpy, "_core") and hasattr(numpy._core.umath, "_extobj_contextvar"):
    KEPT["numpy", "geterr"] = numpy._core.umath._extobj_contextvar
# What functions of Rekindle's own read for their callers, as (module, global), by the name and the end of the file's name.
_READ_BY_OURS = {
    ("inspect_activation", "statistics/inspection.py"): ("rekindle.statistics.inspection", "is_subscribed"),
}
# Python functions, by the end of their file's name.
_ASKED = {("distributed_c10d.py", "is_initialized"): ("torch.distributed", "is_initialized")}
_ASKED |= {("einops/_backends.py", "get_backend"): ("einops", "get_backend")}
_ASKED |= {("_ufunc_config.py", name): ("numpy", "geterr") for name in ("geterr", "getbufsize")}
_ASKED |= {("cuda/__init__.py", name): ("torch.cuda", name) for name in ("is_available", "device_count")}
_DIFFERENT = {
    "threading.py": {"current_thread", "active_count", "enumerate", "get_ident"},
    "torch/random.py": {"initial_seed", "get_rng_state"},
    "_ufunc_config.py": {"geterrcall"},
    "arrayprint.py": {"get_printoptions"},
}
_OF_THE_JOB = "distributed_c10d.py"


def read_by_ours(code: CodeType) -> tuple[str, str] | None:
    """Returns the global, as (module, name), by which a function of Rekindle's decides what its caller computes, or None."""
    for (name, file), read in _READ_BY_OURS.items():
        if code.co_name == name and code.co_filename.endswith(file):
            return read
    return None


def asked(code: CodeType) -> tuple[str, str] | None:
    """Returns the repeatable question, as (module, name), that a Python function answers, or None."""
    for (file, name), question in _ASKED.items():
        if code.co_name == name and code.co_filename.endswith(file):
            return question
    return None


def behind(frame: FrameType, caller: FrameType) -> tuple[str, str] | None:
    """Returns the repeatable question that code between `caller` and `frame`, which it has called, is answering, or None.

    An example: torch.cuda.is_available opens a driver's library; what asks for it depends on the answer, not on the library.
    """
    one: FrameType | None = frame
    while one is not None and one is not caller:
        if (question := asked(one.f_code)) is not None:
            return question
        one = one.f_back
    return None


def answer(module: str, name: str) -> str | None:
    """Returns the present answer to a repeatable question, as its repr; None for any other question."""
    ask = _REPEATABLE.get((module, name))
    return None if ask is None else repr(ask())


def differs(code: CodeType) -> bool:
    """Tells whether a Python function of a library tells of this process what another one, or a later call, would not repeat."""
    name = code.co_name
    if code.co_filename.endswith(_OF_THE_JOB):  # "WORLD" is a property
        return (name.startswith(("get_", "is_", "_get_")) and not name.endswith("_available")) or not name.islower()
    return any(name in names and code.co_filename.endswith(file) for file, names in _DIFFERENT.items())
