"""Errors in a graph's run: the call runs in eager, which decides what its user sees."""

from __future__ import annotations

import re
from dataclasses import dataclass

from torch import nn

from rekindle.errors import FallbackError, first_line
from rekindle.reasons import Bypass, Reason

_PLACE = re.compile(r"while running node '.*")


@dataclass(frozen=True)
class Failure:
    """What is kept of an error in a graph's run. place: `while running node ...`, where it has one. Holds no frame of the run."""

    kind: type[Exception]
    message: str
    place: str | None

    @staticmethod
    def of(error: Exception) -> Failure:
        """The failure that an error is."""
        texts = [*reversed(getattr(error, "__notes__", ())), str(error)]
        found = next(filter(None, (_PLACE.search(str(text)) for text in texts)), None)
        return Failure(type(error), first_line(error), found and found[0])

    def explain(self, error: Exception) -> None:
        """Note in eager's error where the graph had the same one."""
        if self.place is not None and isinstance(error, self.kind):
            error.add_note(self.place)

    def bypass(self) -> Bypass:
        """Why the call ran in eager, where there is no error."""
        where = f" {self.place}" if self.place is not None else ""
        return Bypass(
            Reason.GRAPH_FAILED,
            f"the graph raised {self.kind.__name__}: {self.message}{where}, where the forward raises nothing or goes on",
        )


def forbidden(module: nn.Module, bypass: Bypass) -> FallbackError:
    """What a call raises that would run in eager where that is not allowed."""
    return FallbackError(
        f"{type(module).__name__} cannot run from a graph: {bypass.text()}; "
        'fallback="error" or REKINDLE_CACHE=strict forbids eager: drop it to go on without the graph'
    )
