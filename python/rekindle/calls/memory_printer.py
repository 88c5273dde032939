"""Prints what some calls of a module take of memory: the option print_memory."""

from __future__ import annotations

import itertools
import sys
from typing import Any

from torch import nn

from rekindle.process.exporting import exporting


class MemoryPrinter:
    """Stands before the `call` of a Runtime, and prints an account to stderr before the calls that it is asked for.

    Calls of the module are counted from 1; those that an export makes of a wrapped module in the tree of another are not.
    """

    def __init__(self, module: nn.Module, runtime: Any, calls: tuple[int, ...]) -> None:
        self._module = module
        self._runtime = runtime
        self._calls = calls
        self._numbers = itertools.count(1)

    def __call__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Returns the result of a call."""
        serve = type(self._runtime).call
        if not exporting.active:
            number = next(self._numbers)
            if number in self._calls:
                from rekindle.calls.accounting import account  # with what else only exports and comparisons need

                print(f"rekindle: call {number}, {account(self._module, self._runtime, args, kwargs)}", file=sys.stderr)
        return serve(self._runtime, args, kwargs)
