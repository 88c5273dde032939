"""A few random programs, and all that failed once, do what their unwrapped twins do when numbers at the edges come."""

from __future__ import annotations

import collections
import math
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import programs
import pytest
import torch
from random_operations import _unary
from stepwise_compare import Seen
from suite_checks import assert_mended, assert_right
from values_found import FOUND, plain
from values_judge import differences
from values_numbers import COTANGENTS, INTEGERS, LAYOUTS, MASKS, NUMBERS
from values_program import Program, Step, draw
from values_suite import SUITE

_SEEDS = (4, 5, 7, 10)


def test_programs_do_what_their_twins_do_in_graphs() -> None:
    assert_right(SUITE, map(draw, _SEEDS), most_in_eager=0.2)


@pytest.mark.parametrize("name", FOUND)
def test_what_failed_once_does_no_more(name: str) -> None:
    assert "eager" not in assert_mended(SUITE, FOUND[name]).sources


@pytest.mark.parametrize(
    ("told", "step", "nearly", "right"),
    [
        ("result 0: inf instead of", Step("hundredfold"), lambda x: x.exp().sum(-1).log(), lambda x: x.logsumexp(-1)),
        ("result 0: 0.0 instead of nan", Step("spike of nan"), lambda x: torch.where(x > 0, x, 0.0), torch.relu),
        ("gradient 0: nan instead of 0.0", Step("zeros"), lambda x: x.square().sum(-1).sqrt(), lambda x: x.norm(dim=-1)),
        ("gradient 0: nan instead of 0.0", Step(cotangent="infinities"), lambda x: x * 0, lambda x: x.clone().fill_(0)),
    ],
)
def test_a_graph_that_is_nearly_right_is_found(
    monkeypatch: pytest.MonkeyPatch, told: str, step: Step, nearly: Any, right: Any
) -> None:
    for name, function in (("nearly", nearly), ("right", right)):
        monkeypatch.setitem(programs._KNOWN, name, _unary(function))
    sides = [plain(name).module() for name in ("nearly", "right")]
    monkeypatch.setattr(Program, "module", lambda _: sides.pop(0))
    outcome = SUITE.attempt(plain("right", step))
    assert outcome.step == 0 and outcome.sources == ["export", "export"]
    assert outcome.wrong[0].startswith(told)


def _judged(ours: torch.Tensor, x: torch.Tensor, function: Any) -> list[str]:
    def again(context: AbstractContextManager[Any]) -> Seen:
        with context:
            return {"result": function(x)}

    return differences({"result": ours}, again(nullcontext()), again)


def test_only_what_rounding_and_order_leave_alone_is_judged() -> None:
    x = torch.tensor([[3e38, 3e38, -3e38], [1.0, 2.0, 3.0], [1.0, 1e-8, -1.0], [math.nan, 1.0, 1.0]])
    sums = x.sum(-1)
    assert not _judged(sums, x, lambda x: x.sum(-1))
    assert not _judged(torch.tensor([3e38, 6.0, 1e-8, math.nan]), x, lambda x: x.sum(-1))
    for place, value in ((1, 6.001), (1, math.inf), (2, math.nan), (3, 1.0)):
        other = sums.clone()
        other[place] = value
        (told,) = _judged(other, x, lambda x: x.sum(-1))
        assert f"at ({place},)" in told
    assert _judged(x.exp() + 1, x, torch.exp) and _judged(x > 0.5, x, lambda x: x > 1.5)
    assert _judged(x.double(), x, torch.clone) and _judged(x[:1], x, torch.clone)


def test_a_program_is_made_plainer_while_it_fails() -> None:
    program = next(draw(seed) for seed in range(1000) if any(line.operation == "raw exp" for line in draw(seed).lines))
    small = SUITE.shrink(program, lambda each: any(line.operation == "raw exp" for line in each.lines))
    assert [line.operation for line in small.lines] == ["raw exp"] and small.steps in ((), (Step(seed=small.steps[0].seed),))


def test_every_kind_of_number_is_drawn_and_every_operation() -> None:
    drawn: dict[str, set[Any]] = collections.defaultdict(set)
    for seed in range(400):
        program = draw(seed)
        for step in program.steps:
            for name in ("numbers", "integers", "masks", "layout", "cotangent", "weight"):
                drawn[name].add(getattr(step, name))
        drawn["operations"] |= {line.operation for line in program.lines}
    for name, table in (("numbers", NUMBERS), ("integers", INTEGERS), ("masks", MASKS), ("layout", LAYOUTS), ("weight", NUMBERS)):
        assert drawn[name] == {*table}
    assert drawn["cotangent"] == {*COTANGENTS}
    assert len(drawn["operations"]) > 0.7 * len(programs._KNOWN)
