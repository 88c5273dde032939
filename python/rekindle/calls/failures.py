"""Keeps what is known of an error in a graph's run: the call then runs in eager, which decides what its user sees."""

from __future__ import annotations

import re
from dataclasses import dataclass

from torch import nn

from rekindle import _native
from rekindle.errors import FallbackError, first_line, ran_out_of_memory
from rekindle.reasons import Bypass, OutOfMemory, Reason

_PLACE = r"while running node '.*"


@dataclass(frozen=True)
class Failure:
    """Holds what is kept of an error in a graph's run; it holds no frame of the run."""

    kind: type[Exception]  # its class
    message: str  # its first line
    place: str | None  # `while running node ...`, where the error or a note on it says so
    is_want_of_memory: bool

    @staticmethod
    def of(error: Exception) -> Failure:
        """Returns what is kept of an error."""
        texts = [*reversed(getattr(error, "__notes__", ())), str(error)]
        found = next(filter(None, (re.search(_PLACE, str(text)) for text in texts)), None)
        return Failure(type(error), first_line(error), found and found[0], ran_out_of_memory(error))

    def explain(self, error: Exception) -> None:
        """Notes in eager's error where the graph had one of the same class."""
        if self.place is not None and isinstance(error, self.kind):
            error.add_note(self.place)

    def bypass(self) -> Bypass:
        """Returns why the call ran in eager, for a call that eager has no error in."""
        if self.is_want_of_memory:
            return OutOfMemory(f"the graph needs more memory for a call than there was left: {self.message}")
        where = f" {self.place}" if self.place is not None else ""
        return Bypass(
            Reason.GRAPH_FAILED,
            f"the graph raised {self.kind.__name__}: {self.message}{where}, where the forward raises nothing or goes on",
        )


def why_no_graph(error: Exception) -> Bypass:
    """Returns why there is no graph for a call whose look-up, or export, raised `error`."""
    if ran_out_of_memory(error):
        _native.release_idle_arenas()
        return OutOfMemory(f"an export needs memory beside the model's, and there was none left: {first_line(error)}")
    if isinstance(error, Bypass):
        return error.forgotten()
    return Bypass(Reason.EXPORT_FAILED, f"{type(error).__name__}: {first_line(error)}")


def why_not_described(error: Exception) -> Bypass:
    """Returns why a call has no key, where describing its arguments raised `error`."""
    if ran_out_of_memory(error):
        return why_no_graph(error)
    why = f"an argument cannot be described: {type(error).__name__}; pass tensors, plain values, or containers of them"
    return Bypass(Reason.UNSUPPORTED_INPUT, why)


def forbidden(module: nn.Module, bypass: Bypass) -> FallbackError:
    """Returns the error of a call that would run in eager, for `bypass`, where that is not allowed."""
    return FallbackError(
        f"{type(module).__name__} cannot run from a graph: {bypass.text()}; "
        'fallback="error" or REKINDLE_CACHE=strict forbids eager: drop it to go on without the graph'
    )
