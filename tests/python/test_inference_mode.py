"""Calls in torch.inference_mode: graphs of their own, whose results are tensors of inference mode, as in eager."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest
import rekindle
import torch
from module_support import assert_same
from torch import nn


class Net(nn.Module):
    """Returns a new tensor, a view of it, its argument, a view of that, and a buffer that it writes."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.linear = nn.BatchNorm1d(4), nn.Linear(4, 3)
        self.register_buffer("total", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> Any:
        y = self.norm(x)
        self.total.add_(y.detach().mean(0))
        z = self.linear(y)
        return z, z[:1], x, x.t(), self.total


def _kinds(result: Any) -> list[Any]:
    return [(x.is_inference(), x.requires_grad, x.stride(), x.is_contiguous()) for x in result]


def _versions(net: nn.Module) -> list[int]:
    return [buffer._version for buffer in net.buffers()]


def _steps(before: list[int], after: list[int]) -> list[int]:
    return [b - a for a, b in zip(before, after, strict=True)]


def _pair() -> tuple[Net, Net, rekindle.Module]:
    torch.manual_seed(0)
    eager = Net()
    own = copy.deepcopy(eager)
    return eager, own, rekindle.Module(own)


def test_results_and_writes_are_eagers_between_steps_of_training() -> None:
    for source in ("export", "local"):
        eager, own, wrapped = _pair()
        for step in range(4):
            for net in (eager, own):
                net.train(step % 2 == 0)
            x = torch.randn(3 + step, 4)
            with torch.inference_mode():
                for given in (x, x.clone()):  # a plain tensor, and one of inference mode
                    before = _versions(eager), _versions(own)
                    theirs, mine = eager(given), wrapped(given)
                    assert_same(mine, theirs)
                    assert _kinds(mine) == _kinds(theirs)
                    assert _steps(before[1], _versions(own)) == _steps(before[0], _versions(eager))
                    assert mine[2] is given
            results = [called(x)[0].square().sum() for called in (eager, wrapped)]
            for result in results:
                result.backward()
            assert_same(own.linear.weight.grad, eager.linear.weight.grad)
        status = rekindle.status(wrapped)
        assert (status.eager_calls, status.bypass) == (0, [])
        assert status.exports == (0 if source == "local" else 6)  # two modes, and three kinds of calls
        rekindle.lookup.store.flush()


def test_results_cannot_be_differentiated_nor_written_outside_as_in_eager() -> None:
    _, own, wrapped = _pair()
    with torch.inference_mode():
        found = wrapped(torch.randn(3, 4))[0]
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside InferenceMode"):
        found.add_(1)
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved"):
        own.linear.weight.sum().mul(found)


class Doubles(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.add_(1) * 2


def test_an_argument_of_inference_mode_is_written_within_it_alone() -> None:
    wrapped = rekindle.Module(Doubles())
    with torch.inference_mode():
        x = torch.ones(3)
        assert wrapped(x).tolist() == [4.0] * 3
        assert x.tolist() == [2.0] * 3
    with torch.no_grad(), pytest.raises(RuntimeError, match="Inplace update to inference tensor outside InferenceMode"):
        wrapped(x)


class Asks(nn.Module):
    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        asked = torch.is_inference_mode_enabled() if self.how == "mode" else y.is_inference()
        return y + 1 if asked else y


@pytest.mark.parametrize("how", ["mode", "tensor"])
def test_a_forward_that_asks_for_the_mode_is_answered_as_in_eager(how: str) -> None:
    wrapped = rekindle.Module(Asks(how), rekindle.Options(log="off"))
    for mode in (True, False, True):
        with torch.inference_mode(mode):
            x = torch.ones(3)
            assert torch.equal(wrapped(x), Asks(how)(x))


class Drops(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(self.linear(x), 0.5, self.training)


def test_random_numbers_are_eagers() -> None:
    eager = Drops()
    wrapped = rekindle.Module(copy.deepcopy(eager))
    x = torch.randn(5, 4)
    found = []
    for called in (eager, wrapped):
        torch.manual_seed(3)
        with torch.inference_mode():
            found.append([called(x) for _ in range(3)])
    assert_same(found[1], found[0])


@functools.lru_cache
def _table(size: int) -> torch.Tensor:
    return torch.arange(float(size))


class Tabled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * _table(4)


def test_a_cached_answer_that_is_first_asked_for_in_inference_mode_is_a_tensor_of_it() -> None:
    errors = []
    for wrap in (lambda model: model, lambda model: rekindle.Module(model, rekindle.Options(log="off"))):
        _table.cache_clear()
        model = wrap(Tabled())
        with torch.inference_mode():
            model(torch.ones(2, 4))
        assert _table(4).is_inference()
        with pytest.raises(RuntimeError) as caught:
            model(torch.ones(2, 4))
        errors.append(str(caught.value))
    assert errors[0] == errors[1]
