"""An error while a graph runs: eager runs the call again from where it began, and decides what the user sees."""

from __future__ import annotations

from typing import Any

import pytest
import rekindle
import torch
import torch.nn.functional as F
from module_support import Twins, assert_same, rows
from torch import nn

GOOD, BAD = torch.eye(4), -torch.eye(4)


class Jitter(nn.Module):
    """Draws, counts in a buffer, and goes on where a matrix is not positive definite."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.eye(4))
        self.register_buffer("calls", torch.zeros(()))

    def factor(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.cholesky(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        noise = torch.rand(4)
        self.calls += 1
        try:
            factor = self.factor(x @ self.weight)
        except RuntimeError:
            factor = x.exp() * self.weight
        return factor * noise


class Careless(Jitter):
    """The same, where the error is the caller's."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return self.factor(x @ self.weight) * torch.rand(4)


class Fragile(torch.autograd.Function):
    """Fails where the graph cannot know it."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        if float(x.detach().abs().max()) > 100:
            raise ArithmeticError("too large")
        return 2 * x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return 2 * gradient


class Caught(nn.Module):
    """Goes on without a Function that fails."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = F.dropout(self.linear(x), 0.5)
        self.seen.add_(y.detach().mean(0))
        try:
            return Fragile.apply(y)
        except ArithmeticError:
            return y * 0.5


@pytest.mark.parametrize(("module", "good", "bad"), [(Caught, rows(), 1e6 * rows()), (Jitter, GOOD, BAD)])
def test_an_error_that_the_forward_catches_after_the_export(
    module: type[nn.Module], good: torch.Tensor, bad: torch.Tensor
) -> None:
    torch.manual_seed(3)
    twins = Twins(module())
    for given in (good, good, bad, good, bad, good):
        twins.call(given)
    status = twins.status
    assert (status.source, status.exports, status.eager_calls) == ("export", 1, 2)
    assert twins.reasons() == ["graph_failed"]
    assert "while running node" in status.bypass[0][1]
    assert rekindle.cache.stats()["bypass_codes"] == {"graph_failed": 2}


def test_a_graph_that_fails_again_and_again_is_left() -> None:
    twins = Twins(Caught())
    twins.call(rows())
    for _ in range(10):
        twins.call(1e6 * rows())
    assert twins.status.eager_calls == 10
    twins.call(rows())
    assert twins.status.eager_calls == 11, "that kind of call stays in eager"
    twins.call(rows(count=3))
    assert twins.status.exports <= 2


@pytest.mark.parametrize("options", [{}, {"fallback": "error"}])
def test_an_error_of_the_user_is_eagers_with_what_was_done_before(options: dict[str, str]) -> None:
    twins = Twins(Careless(), **options)
    twins.call(GOOD)
    errors = []

    def fail(model: Any) -> None:
        with pytest.raises(RuntimeError) as caught:
            model(BAD)
        errors.append(caught.value)

    twins.both(fail)
    theirs, ours = errors
    assert type(ours) is type(theirs) and str(ours) == str(theirs)
    assert ours.__context__ is None and ours.__cause__ is None
    assert "while running node" in ours.__notes__[0]
    twins.compare()  # what the buffer was told before
    assert float(twins.module.calls) == 2
    twins.call(GOOD)
    assert (twins.status.source, twins.status.eager_calls, twins.reasons()) == ("export", 0, [])


def test_an_error_of_a_graph_alone_is_forbidden_with_fallback_error() -> None:
    twins = Twins(Caught(), fallback="error")
    twins.call(rows())
    with pytest.raises(rekindle.errors.FallbackError, match="graph_failed: the graph raised ArithmeticError"):
        twins.wrapped(1e6 * rows())


@pytest.mark.parametrize("native", [True, False])
def test_arguments_and_buffers_are_written_all_or_not_at_all(native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(5, 4))

        def forward(self, x: torch.Tensor, noise: bool = True) -> torch.Tensor:
            self.total += x
            x.mul_(2)
            return x + torch.rand(5, 4)

    twins = Twins(Writes())
    twins.both(lambda model: model(rows()))
    from rekindle.results.rebuilding import Structure

    def broken(*_: Any) -> Any:
        raise RuntimeError("no result")

    graph = next(iter(twins.wrapped._runtime._kinds)).graphs[0]
    assert graph.served is not None
    bound = (graph.state, graph.used, graph.record, graph._state_writes)
    with monkeypatch.context() as patch:
        patch.setattr(Structure, "rebuild", broken)
        patch.setattr(graph, "served", graph.session.served_call(*bound, {"output": 99}) if native else None)
        given = []

        def call(model: Any) -> Any:
            given.append(rows())
            return model(given[-1])

        theirs, ours = twins.both(call)
    assert_same(ours, theirs)
    assert_same(given[1], given[0])
    twins.compare()
    assert twins.reasons() == ["graph_failed"]


def test_an_export_that_goes_wrong_is_no_error_of_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    import rekindle.miss.pipeline

    def broken(*_: Any) -> Any:
        raise LookupError("a defect")

    monkeypatch.setattr(rekindle.miss.pipeline, "export_entry", broken)
    twins = Twins(nn.Sequential(nn.Linear(4, 3), nn.ReLU()))
    twins.call(rows())
    assert twins.reasons() == ["export_failed"]


class Overwrites(nn.Module):
    """Writes to the input that the backward of a layer reads."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.linear(x)
        x.mul_(0.9)
        return hidden.tanh()


def test_a_backward_that_raises_in_eager_is_told_from_a_defect_of_the_graph() -> None:
    twins = Twins(Overwrites())
    for model in (twins.eager, twins.wrapped):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            model(rows()).sum().backward()
    ((reason, message),) = twins.status.bypass
    assert reason == "verification_failed" and message.startswith(
        "eager's own backward raises RuntimeError: one of the variables"
    )


class Picky(nn.Linear):
    """Refuses a batch of three."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if len(x) == 3:
            raise ValueError("three are a crowd")
        return super().forward(x)


def test_an_error_of_the_forward_is_told_from_one_of_the_exporter() -> None:
    twins = Twins(Picky(4, 4))
    with pytest.raises(ValueError, match="three are a crowd"):
        twins.wrapped(rows(count=3))
    assert twins.status.bypass == [("export_failed", "the forward raised ValueError: three are a crowd")]
    twins.call(rows(count=2))
    assert twins.status.source == "export"
