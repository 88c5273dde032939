"""Checks of a suite of random programs that its quick tests share."""

from __future__ import annotations

import collections
from collections.abc import Iterable
from typing import Any

import torch
from stepwise_programs import Suite


def assert_right(suite: Suite, programs: Iterable[Any], most_in_eager: float) -> None:
    """Runs programs; fails for one that is wrong, or where more than a share of their calls run in eager."""
    outcomes = [assert_mended(suite, program) for program in programs]
    sources = collections.Counter(source for outcome in outcomes for source in outcome.sources)
    assert sources["eager"] < most_in_eager * (sources.total() - sources["raised"])


def assert_mended(suite: Suite, program: Any) -> Any:
    """Runs a program, such as one that failed once; fails if it is wrong, and shows it. Returns its outcome."""
    torch.set_num_threads(1)
    outcome = suite.attempt(program)
    assert not outcome.wrong, suite.text_of(program, outcome)
    return outcome
