"""Which attempt of a miss follows which: the plan of each, and where a miss ends."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from rekindle.compare.verification import Gradients
from rekindle.export.request import ExportPlan
from rekindle.miss import attempts
from rekindle.miss.attempts import Attempt, Retry, WrongElsewhere
from rekindle.reasons import Bypass, Disturbed, OtherBranch, Reason, SizedByData
from rekindle.sizes.shapes import Shapes

_ARGUMENTS = [torch.zeros(4, 4)]
_WANTED = ExportPlan(Shapes.of(_ARGUMENTS, dynamic=True, earlier=[[[4, 4]], [[4, 5]]]))
_UNSUPPORTED = Bypass(Reason.UNSUPPORTED_OP, "no such operator")
_DIFFERS = Bypass(Reason.VERIFICATION_FAILED, "output 0 is off")


class _Function(torch.autograd.Function):
    pass


@pytest.fixture
def disturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another thread has run whenever somebody asks."""
    monkeypatch.setattr(attempts, "others_ran_since", lambda before: True)


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other thread runs."""
    monkeypatch.setattr(attempts, "others_ran_since", lambda before: False)


def after(*errors: Any) -> Attempt | None:
    """The attempt that follows a first one which ended with the first error, and so on."""
    attempt: Attempt | None = Attempt.first(_WANTED)
    for error in errors:
        assert attempt is not None
        attempt = attempt.after(error, _ARGUMENTS)
    return attempt


def test_sizes_that_are_equal_are_joined_once_and_then_closed(alone: None) -> None:
    assert _WANTED.shapes.text(0) == "[s0, s1]"
    joined = after(WrongElsewhere("at other sizes", Gradients([], [])))
    assert joined is not None and joined.retry is Retry.JOIN
    assert joined.plan.shapes.text(0) == "[s0, s0]" and not joined.plan.apart
    closed = joined.after(_DIFFERS, _ARGUMENTS)
    assert closed is not None and closed.retry is Retry.CLOSE
    assert closed.plan.shapes == Shapes.of(_ARGUMENTS)
    assert closed.plan.closed_because == f"with open sizes, {_DIFFERS}"
    assert closed.after(_DIFFERS, _ARGUMENTS) is None


@pytest.mark.parametrize("reason", list(Reason))
def test_sizes_are_closed_for_what_open_ones_may_cause_only(alone: None, reason: Reason) -> None:
    found = after(Bypass(reason, "something"))
    expected = {"value_specialized", "unsupported_op", "export_failed", "verification_failed", "python_op"}
    assert (found is not None and found.retry is Retry.CLOSE) == (reason.value in expected)


def test_a_branch_on_data_closes_the_sizes(alone: None) -> None:
    found = after(OtherBranch("model.py:3"))
    assert found is not None and found.retry is Retry.CLOSE


def test_what_depends_on_data_is_followed_with_all_that_was_wanted(alone: None) -> None:
    found = after(_UNSUPPORTED, SizedByData("nonzero"))
    assert found is not None and found.retry is Retry.FOLLOW_DATA
    assert found.plan == ExportPlan(_WANTED.shapes, data_sizes=True)
    assert found.after(SizedByData("nonzero"), _ARGUMENTS) is None
    more = found.after(SizedByData("the autograd Function", _Function), _ARGUMENTS)
    assert more is not None and more.plan == ExportPlan(_WANTED.shapes, data_sizes=True, sized_functions=frozenset({_Function}))
    assert more.after(SizedByData("the autograd Function", _Function), _ARGUMENTS) is None


def test_what_is_known_of_data_is_kept_when_sizes_are_closed(alone: None) -> None:
    found = after(SizedByData("nonzero"), _UNSUPPORTED)
    assert found is not None and found.plan.data_sizes and not found.plan.shapes.symbols


def test_a_disturbed_miss_starts_anew_twice(disturbed: None) -> None:
    found = after(SizedByData("nonzero"), _DIFFERS, _DIFFERS)
    assert found is not None and found.retry is Retry.AGAIN
    assert found.plan == _WANTED and found.round.number == 2
    found = after(*[_DIFFERS, _DIFFERS] * 2)
    assert found is not None and found.retry is Retry.AGAIN and found.round.number == 3
    with pytest.raises(Disturbed, match="output 0 is off") as raised:
        after(*[_DIFFERS, _DIFFERS] * 3)
    assert raised.value.reason is Reason.VERIFICATION_FAILED and raised.value.__cause__ is _DIFFERS


def test_what_nobody_else_can_cause_is_not_tried_again(disturbed: None) -> None:
    assert after(Bypass(Reason.SIDE_EFFECT, "it prints")) is None
    assert after(_UNSUPPORTED, _UNSUPPORTED) is None


def test_a_signal_handler_may_be_why_a_copy_differs(alone: None, monkeypatch: pytest.MonkeyPatch) -> None:
    opaque = Bypass(Reason.OPAQUE_VALUE, "a private copy of the module is not like it")
    assert after(opaque) is None
    first = Attempt.first(_WANTED)
    ran = attempts.signal_handlers.count() + 1
    monkeypatch.setattr(attempts.signal_handlers, "count", lambda: ran)
    found = first.after(opaque, _ARGUMENTS)
    assert found is not None and found.retry is Retry.AGAIN
    assert found.after(opaque, _ARGUMENTS) is None  # none has run since
