"""Questions about values in a forward: a check that fails raises what eager raises, and a branch runs in eager."""

from __future__ import annotations

import pytest
import rekindle
import torch
import torch.nn.functional as F
from dynamic_idioms import Checked
from module_support import Twins
from rekindle.errors import FallbackError
from torch import nn


class Observed(nn.Module):
    """Asks buffers whether to observe and whether to quantize."""

    def __init__(self) -> None:
        super().__init__()
        observer = torch.ao.quantization.MovingAverageMinMaxObserver
        self.fake = torch.ao.quantization.FakeQuantize.with_args(observer=observer, quant_min=0, quant_max=255)()
        self.layer = nn.Linear(6, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(self.fake(x))


def test_a_check_that_fails_raises_what_the_library_raises() -> None:
    class Loss(nn.Module):
        def forward(self, x: torch.Tensor, variance: torch.Tensor) -> torch.Tensor:
            return F.gaussian_nll_loss(x + F.dropout(x), torch.zeros_like(x), variance)

    twins = Twins(Loss())
    x, good, bad = torch.randn(3), torch.ones(3), torch.tensor([1.0, -1.0, 1.0])
    for variance in (good, bad, good, bad):
        if variance is good:
            twins.call(x, variance)
            continue
        for model in (twins.eager, twins.wrapped):
            torch.manual_seed(5)
            with pytest.raises(ValueError, match="negative"):
                model(x, variance)
    assert twins.status.eager_calls == 2
    assert "asks for the truth of a tensor" in twins.status.bypass[0][1]


def test_a_check_of_the_users_own_is_in_the_graph() -> None:
    ids, scale = torch.tensor([[1, 8, 3], [0, 2, 2]]), torch.ones(3)
    for exports in (1, 0):
        twins = Twins(Checked())
        twins.wrapped.load_state_dict(twins.eager.state_dict())
        for bad, error in ((ids + 1, AssertionError), (ids, ValueError)):
            twins.call(ids, scale)
            twins.call(ids[:, :2].contiguous(), scale)
            for model in (twins.eager, twins.wrapped):
                torch.manual_seed(5)
                with pytest.raises(error, match=r"no token 9|not finite"):
                    model(bad, scale / 0 if error is ValueError else scale)
        twins.call(ids, scale)
        assert (twins.status.exports, twins.status.eager_calls) == (exports, 2)
        rekindle.cache.stats()


def test_a_branch_that_raises_in_some_cases_is_no_check() -> None:
    class Clipped(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if x.max() > 9:
                if x.sum() > 0:
                    raise ValueError("too large")
                return x.clamp(-9, 9)
            return x * 2

    twins = Twins(Clipped())
    for x in (torch.ones(3), torch.tensor([10.0, -20.0, 1.0])):
        twins.call(x)
    assert twins.status.exports == 0


def test_without_eager_another_branch_is_an_error() -> None:
    model = rekindle.Module(Observed(), rekindle.Options(fallback="error"))
    model(torch.randn(4, 6))
    with pytest.raises(FallbackError, match="asks for the truth of a tensor"):
        model(torch.randn(4, 6))  # the observer has seen a first call


def test_a_variant_whose_assumptions_fail_again_and_again_is_dropped() -> None:
    twins = Twins(Observed())
    for _ in range(12):
        twins.call(torch.randn(4, 6))
    assert twins.status.eager_calls == 11
    assert twins.status.source == "eager"
    assert "asks for the truth of a tensor" in twins.status.bypass[0][1]


def test_a_question_of_the_users_own_code_is_a_branch() -> None:
    class Branch(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 if x.sum() > 0 else x

    twins = Twins(Branch())
    twins.call(torch.ones(3))
    twins.call(-torch.ones(3))
    assert twins.reasons() == ["value_specialized"]
    assert twins.status.exports == 0
