"""Sees at an export what is done to containers that the forward has made and an autograd Function is given.

A graph makes such a container anew for each call (functions/containers.py). Where it matters that eager has one container only,
the export is refused.

An example: a forward makes `stash = {}` for a Function that puts a tensor into it and another one that takes it out: the first
call writes, and is refused. A Function that only reads `{"scale": 2.0}` is in the graph.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from torch import nn

from rekindle.functions.containers import Contents, Lasting, writes_to
from rekindle.reasons import Bypass, Reason
from rekindle.sizes.traced_sizes import TracedShape, contains_traced, swapped


def settled(arguments: tuple[Any, ...]) -> tuple[Any, ...]:
    """Returns arguments with numbers in the place of traced sizes; those that have none are the very objects."""
    return tuple(swapped(argument, int) if _is_of_trace(argument) else argument for argument in arguments)


def _is_of_trace(value: Any) -> bool:
    if type(value) in (list, tuple):
        return any(map(_is_of_trace, value))
    if type(value) is dict:
        return any(map(_is_of_trace, value.values()))
    return type(value) is TracedShape or contains_traced(value)


class GivenContainers:
    """Follows the containers that the Functions of one export are given. Make it before the forward runs."""

    def __init__(self, model: nn.Module) -> None:
        self.lasting = Lasting(model)
        self._kept: list[tuple[Contents, str]] = []  # what Functions keep, for their backward; and where it was given

    @contextlib.contextmanager
    def watched(self, function: type, made: list[Contents]) -> Iterator[None]:
        """Watches a call. Raises Bypass(python_op) where it writes to a container, or keeps one that another call keeps.

        made: for each argument what describe_call() says is made anew
        """
        before = [one.references() for one in made]
        yield
        for i, one in enumerate(made):
            if (written := one.written()) is not None:
                raise writes_to(written, function, i)
            if one.references() > before[i]:
                self._keep(one, f"argument {i} of the autograd Function {function.__qualname__}")

    def _keep(self, contents: Contents, what: str) -> None:
        for other, other_what in self._kept:
            if (shared := contents.shared_with(other)) is not None:
                message = (
                    f"{other_what} and {what} keep the same {type(shared).__qualname__}, and their backwards may write to it"
                )
                raise Bypass(Reason.PYTHON_OP, f"{message}; keep it as an attribute of a module, or give each one of its own")
        self._kept.append((contents, what))

    def check(self) -> None:
        """Raises Bypass(python_op) where a container was written after a Function was given it, which may read it later."""
        for contents, what in self._kept:
            if (written := contents.written()) is not None:
                message = f"the forward writes to a {type(written).__qualname__} after {what} was given it"
                raise Bypass(Reason.PYTHON_OP, f"{message}; give the Function a copy")
