"""Buffers that a forward writes: the graph leaves in them what eager does, and computes with what they held before."""

from __future__ import annotations

import copy
import pathlib

import pytest
import rekindle
import torch
from module_support import Twins, assert_same, rows
from rekindle import _native
from rekindle.lookup.store import flush
from torch import nn


class Norms(nn.Module):
    """One batch norm used twice in a forward, and one after it."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.BatchNorm1d(4), nn.BatchNorm1d(4, momentum=0.3)
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(self.linear(x)).relu()
        return self.last(self.linear(self.first(x)))


class InstanceNorms(nn.Module):
    """Statistics of each sample, averaged over the batch into the running ones."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 12)
        self.norm = nn.InstanceNorm1d(3, affine=True, track_running_stats=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.linear(x).view(-1, 3, 4)).relu()


class Totals(nn.Module):
    """Adds up in place, with the new sum in its result."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("total", torch.zeros(4))
        self.register_buffer("calls", torch.tensor(0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total += x.detach().sum(0)
        self.calls.add_(1)
        return self.linear(x) * self.total


class Averages(nn.Module):
    """A moving average of what it computes, written in a no_grad region; the old average scales the result."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("average", torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        result = y * self.average.clone()
        with torch.no_grad():
            self.average.mul_(0.9).add_(y.mean(0), alpha=0.1)
        return result


class KeepsGraph(nn.Module):
    """Writes what requires a gradient: eager's autograd graph then grows from call to call."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("last", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        self.last.copy_(y.sum(0))
        return y


@pytest.mark.parametrize("kind", [Norms, InstanceNorms, Totals, Averages], ids=lambda kind: kind.__name__)
def test_written_buffers_are_eagers(kind: type[nn.Module], tmp_path: pathlib.Path) -> None:
    torch.manual_seed(0)
    twins = Twins(kind(), fallback="error", cache_dir=tmp_path)
    for step in range(3):
        twins.call(rows(step))
    assert (twins.status.source, twins.status.exports) == ("export", 1)
    for model in (twins.eager, twins.wrapped):
        model.eval()
    twins.call(rows(3))
    for model in (twins.eager, twins.wrapped):
        model.train()
    with torch.no_grad():
        twins.call(rows(4))
    twins.call(rows(5))


def test_a_hit_writes_buffers_too(tmp_path: pathlib.Path) -> None:
    for source in ("export", "local"):
        torch.manual_seed(0)
        twins = Twins(Norms(), fallback="error", cache_dir=tmp_path)
        twins.call(rows(1))
        twins.call(rows(2))
        assert twins.status.source == source
        flush()


def test_backwards_after_several_forwards_see_each_forwards_own_buffers() -> None:
    twins = Twins(Averages(), fallback="error")

    def two_forwards(model: nn.Module) -> torch.Tensor:
        first, second = model(rows(1)), model(rows(2))
        (first.square().sum() + second.square().sum()).backward()
        return first + second

    for _ in range(2):
        theirs, ours = twins.both(two_forwards)
        torch.testing.assert_close(ours, theirs)
        twins.compare()


def test_a_differentiable_backward_repeats_the_forward_with_the_buffers_it_had() -> None:
    twins = Twins(Averages(), fallback="error")

    def penalized(model: nn.Module) -> torch.Tensor:
        y = model(rows(1)).square().sum()
        [gradient] = torch.autograd.grad(y, [model.linear.weight], create_graph=True)
        (y + gradient.square().sum()).backward()
        return gradient.detach()

    for _ in range(2):
        theirs, ours = twins.both(penalized)
        torch.testing.assert_close(ours, theirs)
        twins.compare()


def test_a_buffer_that_keeps_the_autograd_graph_stays_in_eager() -> None:
    model = rekindle.Module(KeepsGraph())
    model(rows(1)).sum().backward()
    assert [code for code, _ in rekindle.status(model).bypass] == ["buffer_mutated"]


@pytest.mark.parametrize("sizes", [(2, 3, 4), (0, 3, 4)])
@pytest.mark.parametrize(
    "norm", [nn.BatchNorm1d(4), nn.BatchNorm1d(4, momentum=None), nn.InstanceNorm1d(4, affine=True, track_running_stats=True)]
)
def test_a_norm_of_other_channels_raises_what_eager_does(norm: nn.Module, sizes: tuple[int, ...]) -> None:
    """What a trace runs in a norm's place takes more than the norm, and would write to other statistics."""
    twins = Twins(nn.Sequential(nn.Linear(4, 4), norm), log="error")
    errors: list[str] = []
    for _ in range(2):
        for module in (twins.eager, twins.wrapped):
            try:
                with torch.no_grad():
                    module(torch.zeros(sizes))
                errors.append("")
            except (RuntimeError, ValueError) as error:
                errors.append(str(error))
    assert len(set(errors)) == 1 and (errors[0] or sizes[0] == 0)
    for name, theirs in twins.eager.state_dict().items():
        assert_same(twins.module.state_dict()[name], theirs, name)


def test_a_batch_norm_is_written_within_the_native_call_and_counted_as_eager_counts() -> None:
    plain = nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3))
    wrapped = rekindle.Module(copy.deepcopy(plain), rekindle.Options(fallback="error"))
    x = rows()
    before = [[buffer._version for buffer in model.buffers()] for model in (plain, wrapped)]
    for _ in range(3):
        torch.testing.assert_close(wrapped(x), plain(x))
    assert next(iter(wrapped._runtime._kinds)).graphs[0].served is not None
    mine, theirs = (
        [buffer._version - then for buffer, then in zip(model.buffers(), versions, strict=True)]
        for model, versions in zip((wrapped, plain), reversed(before), strict=True)
    )
    assert mine == theirs
    assert sum(mine) > 0


def test_a_result_that_cannot_be_built_leaves_buffers_as_they_were() -> None:
    wrapped = rekindle.Module(nn.BatchNorm1d(3), rekindle.Options(fallback="error"))
    x = torch.randn(4, 3)
    wrapped(x)
    graph = next(iter(wrapped._runtime._kinds)).graphs[0]
    writes = _native.StateWrites(graph.contract.writes, graph.contract.silent_writes, graph.contract.saved_writes)
    served = graph.session.served_call(graph.state, graph.used, graph.record, writes, {"output": 99})
    before = [buffer.clone() for buffer in wrapped.buffers()]
    with pytest.raises(IndexError):
        served([x])
    torch.testing.assert_close(list(wrapped.buffers()), before, rtol=0, atol=0)


def test_writes_that_fail_leave_all_as_it_was() -> None:
    first = torch.zeros(3)
    with torch.inference_mode():
        second = torch.zeros(2)  # nobody may write it outside of this mode
    given = [torch.ones(3), torch.ones(2)]
    with pytest.raises(RuntimeError, match="inference"):
        _native.StateWrites([0, 1]).write([first, second], [first.clone(), second.clone()], given)
    assert first.sum() == 0
    with pytest.raises(RuntimeError):
        _native.StateWrites([0, 1]).write(
            [first, torch.zeros(2)], [first.clone(), torch.zeros(2)], [torch.ones(3), torch.ones(5)]
        )
    assert first.sum() == 0


class Leaf(nn.Module):
    """Scales by a buffer that requires a gradient."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("scale", torch.full((4,), 0.5).requires_grad_())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.linear(x)) * self.scale


@pytest.mark.parametrize("differentiable", [False, True])
def test_a_buffer_that_requires_a_gradient_gets_eagers(differentiable: bool) -> None:
    twins = Twins(Leaf())
    for step in range(3):
        for module, called in ((twins.eager, twins.eager), (twins.module, twins.wrapped)):
            called(rows(step).requires_grad_(differentiable)).square().sum().backward()
            assert module.scale.grad is not None
        torch.testing.assert_close(twins.module.scale.grad, twins.eager.scale.grad)
    assert twins.status.source == "export" and twins.status.bypass == []
