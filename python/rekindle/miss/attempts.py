"""Tells the attempts of a miss: what each leaves open, and which one may follow where one has failed."""

from __future__ import annotations

import enum
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch

from rekindle.compare.verification import Gradients
from rekindle.export.request import ExportPlan
from rekindle.process import signal_handlers
from rekindle.process.process_state import others_ran_since, time_of_others
from rekindle.reasons import Bypass, Disturbed, Reason, SizedByData


class WrongElsewhere(Exception):
    """Says that the graph is right for the call and not for other sizes, where it may be if some sizes stay equal."""

    def __init__(self, message: str, gradients: Gradients | None) -> None:
        super().__init__(message)
        self.gradients = gradients  # eager's, of the call; None where these were not compared


class Retry(enum.Enum):
    """Names why a further attempt may fare better than the one that failed; the first that applies is made."""

    FOLLOW_DATA = "sizes depend on data where they were taken for fixed, and an export can follow them"
    JOIN = "the graph is wrong at other sizes, maybe only where sizes differ that are equal in the call"
    CLOSE = "an export that leaves sizes open met what one with fixed sizes need not meet"
    AGAIN = "another thread or a signal handler ran meanwhile, which may be all that was wrong"


# What an export with fixed sizes may not meet.
_OF_OPEN_SIZES = {
    Reason.VALUE_SPECIALIZED, Reason.UNSUPPORTED_OP, Reason.EXPORT_FAILED, Reason.VERIFICATION_FAILED, Reason.PYTHON_OP,
}  # fmt: skip
# What another thread, or a signal handler, may cause: it draws from a generator that all share, or changes what the module reads.
_OF_OTHERS = {Reason.VERIFICATION_FAILED, Reason.NONDETERMINISTIC, Reason.CHANGED_DURING_EXPORT}
_OF_HANDLERS = {Reason.OPAQUE_VALUE}  # what a private copy is found to have otherwise
_MOST_ROUNDS = 3


@dataclass(frozen=True)
class Round:
    """Numbers a series of attempts that starts from nothing, and knows what ran beside it, which may disturb it."""

    number: int  # from 1
    others: dict[int, int]  # what time_of_others said when it began
    handlers: int  # how many signal handlers had run by then

    @staticmethod
    def begin(number: int) -> Round:
        """Returns a round that begins now."""
        return Round(number, time_of_others(), signal_handlers.count())

    def may_have_caused(self, bypass: Bypass) -> bool:
        """Tells whether what ran since it began may be why an attempt of it failed."""
        if self.handlers != signal_handlers.count() and bypass.reason in _OF_OTHERS | _OF_HANDLERS:
            return True
        return bypass.reason in _OF_OTHERS and others_ran_since(self.others)


@dataclass(frozen=True)
class Attempt:
    """Describes one attempt to make a graph for a call."""

    plan: ExportPlan  # what it leaves open
    wanted: ExportPlan  # what the call wants left open: what a round begins with
    round: Round
    retry: Retry | None = None  # why it is made; None for the first

    @staticmethod
    def first(wanted: ExportPlan) -> Attempt:
        """Returns the attempt that every miss begins with, now."""
        return Attempt(wanted, wanted, Round.begin(1))

    def after(self, error: Bypass | WrongElsewhere, arguments: Sequence[torch.Tensor]) -> Attempt | None:
        """Returns the attempt that is legal where this one ended with `error`; None if there is none: the miss ends with it, too.

        arguments: those of the call

        Raises Disturbed where the last of the rounds may have been disturbed, too.
        """
        for retry, legal in _LEGAL.items():
            if (following := legal(self, error, arguments)) is not None:
                return replace(following, retry=retry)
        return None


_Error = Bypass | WrongElsewhere
_Arguments = Sequence[torch.Tensor]


def _following_data(failed: Attempt, error: _Error, arguments: _Arguments) -> Attempt | None:
    """Returns to all that is wanted, beside what is known by now to depend on data."""
    if not isinstance(error, SizedByData):
        return None
    known = failed.plan.sized_functions
    functions = known if error.function is None else known | {error.function}
    if failed.plan.data_sizes and functions == known:
        return None
    return replace(failed, plan=replace(failed.wanted, data_sizes=True, sized_functions=functions))


def _joined(failed: Attempt, error: _Error, arguments: _Arguments) -> Attempt | None:
    return replace(failed, plan=failed.plan.joined(arguments)) if isinstance(error, WrongElsewhere) else None


def _closed(failed: Attempt, error: _Error, arguments: _Arguments) -> Attempt | None:
    if not isinstance(error, Bypass) or isinstance(error, SizedByData):
        return None
    if not failed.plan.shapes.symbols or error.reason not in _OF_OPEN_SIZES:
        return None
    return replace(failed, plan=failed.plan.closed(arguments, f"with open sizes, {error}"))


def _again(failed: Attempt, error: _Error, arguments: _Arguments) -> Attempt | None:
    if not isinstance(error, Bypass) or not failed.round.may_have_caused(error):
        return None
    if failed.round.number == _MOST_ROUNDS:
        raise Disturbed(error.reason, error.message) from error
    return replace(failed, plan=failed.wanted, round=Round.begin(failed.round.number + 1))


_LEGAL: dict[Retry, Callable[[Attempt, _Error, _Arguments], Attempt | None]] = {
    Retry.FOLLOW_DATA: _following_data,
    Retry.JOIN: _joined,
    Retry.CLOSE: _closed,
    Retry.AGAIN: _again,
}
