"""A forward with several results writes a buffer that some of its backwards read: only these refuse a later write to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import torch
from rekindle import _native
from saved_writes_support import Writing
from torch import nn


class Doubling(torch.autograd.Function):
    """Tells nobody what it saves but the engine."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, mean: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(mean)
        return x * mean

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        return gradients[0] * ctx.saved_tensors[0], None


def _two_results(self: Any, x: torch.Tensor) -> Any:
    self.mean.mul_(0.5).add_(1)
    y = self.linear(x)
    return y * self.mean, y.sin()


def _view_and_function(self: Any, x: torch.Tensor) -> Any:
    self.mean.mul_(0.5).add_(1)
    self.calls += 1
    y, z = self.linear(x), torch.zeros(2, 3)
    z[1:] = (y * self.calls)[1:]
    return z.sin(), Doubling.apply(y, self.mean)


def _three_results(self: Any, x: torch.Tensor) -> Any:
    y = self.norm(self.linear(x))
    self.mean.add_(1)
    return y, self.norm.weight * self.mean, self.linear.bias.exp()


SEVERAL = {"two results": _two_results, "a view and a Function": _view_and_function, "three results": _three_results}


def _several_history(name: str, of: str, differentiated: Any, wrap: Callable[[nn.Module], Any]) -> list[Any]:
    torch.manual_seed(1)
    inner = Writing(SEVERAL[name])
    model, found = wrap(inner), []
    for _ in range(3):
        results = model(torch.randn(2, 3))
        if (written := dict(inner.named_buffers()).get(of)) is not None:
            written.add_(1)
        chosen, parameters = differentiated(results, inner)
        try:
            found += torch.autograd.grad(sum(one.sum() for one in chosen), parameters, allow_unused=True)
        except RuntimeError as error:
            found.append(str(error)[:90])
    return found


CHOSEN: dict[str, Callable[[Any, Any], Any]] = {
    "all": lambda results, inner: (results, [*inner.parameters()]),
    "first": lambda results, inner: (results[:1], [*inner.parameters()]),
    "last": lambda results, inner: (results[-1:], [*inner.parameters()]),
    "of the bias": lambda results, inner: (results, [inner.linear.bias]),
    "of the norm": lambda results, inner: (results[1:], [inner.norm.weight]),
}


@pytest.mark.parametrize("of", ["", "mean", "calls", "norm.running_mean", "norm.num_batches_tracked"])
@pytest.mark.parametrize("name", SEVERAL)
def test_a_write_matters_to_the_backwards_that_read_it_only(name: str, of: str) -> None:
    options = rekindle.Options(log="error", cache="off")
    for chosen in CHOSEN.values():
        if chosen is CHOSEN["of the norm"] and name != "three results":
            continue
        wrapped: list[Any] = []
        expected = _several_history(name, of, chosen, lambda module: module)
        ours = _several_history(name, of, chosen, lambda module, to=wrapped: to.append(rekindle.Module(module, options)) or to[0])
        assert rekindle.status(wrapped[0]).eager_calls == 0, rekindle.status(wrapped[0]).bypass
        for mine, theirs in zip(ours, expected, strict=True):
            if isinstance(theirs, torch.Tensor) and isinstance(mine, torch.Tensor):
                torch.testing.assert_close(mine, theirs)
            else:
                assert mine == theirs


@pytest.mark.parametrize("noted", [True, False])
def test_a_write_of_rekindles_own_is_no_later_write_and_is_counted_once_for_all_views(noted: bool) -> None:
    memory = torch.zeros(4)
    one, other = memory[:2], memory[2:]
    wrapped = rekindle.Module(nn.Linear(2, 2), rekindle.Options(log="error", cache="off"))
    result = wrapped(torch.ones(2))
    _native.StateWrites([0], [], [(0, [0], [0, 1, 2])]).write([one], [one.clone()], [result, torch.ones(2)])
    before = [(one, one._version), (other, other._version)]
    one.add_(0)
    if noted:
        _native.note_own_writes(before)
        result.sum().backward(retain_graph=True)
        one.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.sum().backward()
