"""Exceptions that Rekindle raises of its own accord. Errors of the user's model are raised as they are."""

from __future__ import annotations


class RekindleError(RuntimeError):
    """Base class."""


class OptionError(RekindleError, ValueError):
    """An option or environment variable with a name or value that does not exist."""


class FallbackError(RekindleError):
    """A call would have run in eager, and `fallback="error"` or `REKINDLE_CACHE=strict` forbids that."""


class UnsupportedEnvironmentError(RekindleError, ImportError):
    """This Python or torch cannot run Rekindle."""


class PythonOpError(RekindleError, ValueError):
    """A declaration about an autograd Function that means nothing, or that a call of the Function has disproved."""


# What torch's own checks raise: kernels, and sessions that make a plan.
OF_TORCH = (RuntimeError, IndexError, ValueError, TypeError)


def first_line(error: BaseException) -> str:
    """Of what an error says: torch's go on with traces of C++."""
    return (str(error).splitlines() or [""])[0]
