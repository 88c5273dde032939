"""Defines the exceptions that Rekindle raises of its own accord. Errors of the user's model are raised as they are."""

from __future__ import annotations

import torch


class RekindleError(RuntimeError):
    """Stands above the other exceptions, as their base class."""


class OptionError(RekindleError, ValueError):
    """Says that an option or environment variable has a name or value that does not exist."""


class FallbackError(RekindleError):
    """Says that a call would have run in eager, and that `fallback="error"` or `REKINDLE_CACHE=strict` forbids that."""


class UnsupportedEnvironmentError(RekindleError, ImportError):
    """Says that this Python or torch cannot run Rekindle."""


class PythonOpError(RekindleError, ValueError):
    """Says that a declaration about an autograd Function means nothing, or that a call of the Function has disproved it."""


class StatisticsError(RekindleError, OSError):
    """Says that statistics could not be written, or computed; its cause says why."""


# What torch's own checks raise: kernels, and sessions that make a plan.
OF_TORCH = (RuntimeError, IndexError, ValueError, TypeError)


# What torch says where the CPU has no memory for it, in a RuntimeError.
_OF_THE_CPU = ("DefaultCPUAllocator: can't allocate memory", "DefaultCPUAllocator: not enough memory", "std::bad_alloc")


def ran_out_of_memory(error: BaseException | None) -> bool:
    """Tells whether an error, or what led to it, is that a device, or the process, has no memory left."""
    while error is not None and not _is_want_of_memory(error):
        error = error.__cause__ or error.__context__
    return error is not None


def _is_want_of_memory(error: BaseException) -> bool:
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    return isinstance(error, RuntimeError) and any(text in str(error) for text in _OF_THE_CPU)


def first_line(error: BaseException) -> str:
    """Returns the first line of what an error says: torch's go on with traces of C++."""
    return (str(error).splitlines() or [""])[0]
