"""Collectives of autograd Functions: an export asks no other rank, and a graph runs them as eager does, in its order."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import rekindle
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from rekindle.process.collectives import answered_here
from torch import nn
from torch.multiprocessing.spawn import spawn
from torch.testing._internal.distributed.fake_pg import FakeStore

_RANKS = 2


class Summed(torch.autograd.Function):
    """Sums over the ranks, in the backward, too; a call that meets another one's gives another number."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, tag: int) -> torch.Tensor:
        ctx.tag = tag
        total = x * (tag + 1)
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        total = gradients[0] * (ctx.tag + 1)
        dist.all_reduce(total)
        return total, None


class Branches(nn.Module):
    """Has three collectives of one size that do not depend on each other, and one whose result nobody reads."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        Summed.apply(x, 6)
        late = Summed.apply(self.c(x), 2)
        one, other = Summed.apply(self.a(x).sin(), 0), Summed.apply(self.b(x), 1)
        return late + other * one.tanh()


class Plain(nn.Module):
    """Runs a collective in its forward."""

    def __init__(self, collective: Callable[[torch.Tensor, Any], Any]) -> None:
        super().__init__()
        self.linear, self.collective, self.group = nn.Linear(4, 4), collective, dist.group.WORLD

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        self.collective(y.detach(), self.group)
        return y


def _trained(model: nn.Module, steps: int) -> list[torch.Tensor]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = []
    for step in range(steps):
        generator = torch.Generator().manual_seed(10 * step + dist.get_rank())
        loss = (model(torch.randn(3 + step % 2, 4, generator=generator)) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.detach())
    return found + [parameter.detach().clone() for parameter in model.parameters()]


def _compare(rank: int, directory: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{directory}/meet", rank=rank, world_size=_RANKS)
    for number, (wrapped_ranks, warm_ranks) in enumerate(COMBINATIONS):
        options = rekindle.Options(log="error", cache_dir=os.path.join(directory, f"cache{rank}-{number}"))
        if rank in warm_ranks:
            _fill(options)
        dist.barrier()
        expected = _trained(_branches(), 4)
        model = rekindle.Module(_branches(), options) if rank in wrapped_ranks else _branches()
        torch.testing.assert_close(_trained(model, 4), expected)
        if rank in wrapped_ranks:
            assert rekindle.status(model).eager_calls == 0, rekindle.status(model).bypass
    dist.barrier()
    os._exit(0)  # threads of gloo's may outlive their group, which ends a process by abort


def _branches() -> nn.Module:
    torch.manual_seed(0)
    return Branches()


def _fill(options: rekindle.Options) -> None:
    """Fills the cache of one rank, of which no other rank hears."""
    model = rekindle.Module(_branches(), options)
    for rows in (3, 4):
        with answered_here():
            model(torch.randn(rows, 4)).sum().backward()
    rekindle.lookup.store.flush()


# The ranks that are wrapped, and those whose caches are full.
COMBINATIONS: list[tuple[tuple[int, ...], tuple[int, ...]]] = [((0,), (0,)), ((1,), ()), ((0, 1), (0,)), ((0, 1), (1,))]


def test_ranks_meet_in_the_same_collective_whatever_each_finds(tmp_path: pathlib.Path) -> None:
    spawn(_compare, (str(tmp_path),), nprocs=_RANKS)


@pytest.fixture
def group_of_four() -> Iterator[None]:
    """Makes this process rank 1 of 4, whose others do not exist: a collective that gets out of it does nothing."""
    dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=4)
    yield
    dist.destroy_process_group()


def _own() -> torch.Tensor:
    return torch.arange(8.0)


def _into(count: int, collective: Callable[[torch.Tensor], Any]) -> torch.Tensor:
    made = torch.zeros(count)
    collective(made)
    return made


def _lists(collective: Callable[[list[torch.Tensor]], Any], count: int = 4, size: int = 8) -> torch.Tensor:
    made = [torch.zeros(size) for _ in range(count)]
    collective(made)
    return torch.stack(made)


def _in_place(collective: Callable[[torch.Tensor], Any]) -> torch.Tensor:
    made = _own()
    collective(made)
    assert made._version == 0
    return made


OF_FOUR = torch.arange(8.0)
ANSWERS: dict[str, tuple[Callable[[], torch.Tensor], torch.Tensor]] = {
    "sum": (lambda: _in_place(dist.all_reduce), 4 * OF_FOUR),
    "product": (lambda: _in_place(lambda x: dist.all_reduce(x, dist.ReduceOp.PRODUCT)), OF_FOUR**4),
    "maximum": (lambda: _in_place(lambda x: dist.all_reduce(x, dist.ReduceOp.MAX)), OF_FOUR),
    "mean": (lambda: _in_place(lambda x: dist.all_reduce(x, dist.ReduceOp.AVG)), OF_FOUR),
    "later": (lambda: _in_place(lambda x: dist.all_reduce(x, async_op=True).wait()), 4 * OF_FOUR),
    "broadcast": (lambda: _in_place(lambda x: dist.broadcast(x, 0)), OF_FOUR),
    "reduce here": (lambda: _in_place(lambda x: dist.reduce(x, 1)), 4 * OF_FOUR),
    "reduce there": (lambda: _in_place(lambda x: dist.reduce(x, 0)), OF_FOUR),
    "all_gather": (lambda: _lists(lambda made: dist.all_gather(made, _own())), OF_FOUR.repeat(4, 1)),
    "all_gather_into": (lambda: _into(32, lambda made: dist.all_gather_into_tensor(made, _own())), OF_FOUR.repeat(4)),
    "gather": (lambda: _lists(lambda made: dist.gather(_own(), made, 1)), OF_FOUR.repeat(4, 1)),
    "scatter": (lambda: _into(2, lambda made: dist.scatter(made, [*_own().chunk(4)], 1)), OF_FOUR[2:4]),
    "reduce_scatter": (lambda: _into(2, lambda made: dist.reduce_scatter(made, [*_own().chunk(4)])), 4 * OF_FOUR[2:4]),
    "reduce_scatter_tensor": (lambda: _into(2, lambda made: dist.reduce_scatter_tensor(made, _own())), 4 * OF_FOUR[2:4]),
    "all_to_all": (lambda: _lists(lambda made: dist.all_to_all(made, [*_own().chunk(4)]), size=2), OF_FOUR[2:4].repeat(4, 1)),
    "all_to_all_single": (lambda: _into(8, lambda made: dist.all_to_all_single(made, _own())), OF_FOUR[2:4].repeat(4)),
    "uneven all_to_all": (
        lambda: _into(6, lambda made: dist.all_to_all_single(made, _own(), [3, 1, 0, 2], [1, 3, 4, 0])),
        torch.tensor([1.0, 2.0, 3.0, 1.0, 1.0, 2.0]),
    ),
    "received": (lambda: _into(3, lambda made: dist.recv(made, 0)), torch.tensor([0.5, 0.625, 0.75])),
    "barrier": (lambda: _into(1, lambda made: dist.barrier()), torch.zeros(1)),
    "sent": (lambda: _in_place(lambda x: dist.send(x, 0)), OF_FOUR),
    "functional": (lambda: functional.all_reduce(_own(), "sum", dist.group.WORLD) + 0, 4 * OF_FOUR),
}  # fmt: skip


@pytest.mark.parametrize("name", ANSWERS)
def test_a_collective_is_answered_as_if_all_ranks_had_the_same(name: str, group_of_four: None) -> None:
    ask, expected = ANSWERS[name]
    with answered_here():
        torch.testing.assert_close(ask(), expected)


def test_objects_are_gathered_and_nothing_is_answered_outside(group_of_four: None) -> None:
    found: list[Any] = [None] * 4
    with answered_here():
        dist.all_gather_object(found, {"a": 1})
        with answered_here():
            pass
        assert torch.equal(_in_place(dist.all_reduce), 4 * OF_FOUR)
    assert found == [{"a": 1}] * 4
    assert torch.equal(_in_place(dist.all_reduce), OF_FOUR)  # the group of nobody does nothing


def test_every_collective_of_torch_is_known(group_of_four: None) -> None:
    names = {schema.name for schema in torch._C._jit_get_all_schemas() if schema.name.startswith("c10d::")}
    known = pathlib.Path(__file__).parents[2].joinpath("python/process/collectives.cc").read_text()
    assert {name for name in names if f'{{"{name.removeprefix("c10d::")}", ' not in known} == set()


COLLECTIVES: dict[str, Callable[[torch.Tensor, Any], Any]] = {
    "all_reduce": lambda x, group: dist.all_reduce(x),
    "broadcast": lambda x, group: dist.broadcast(x, 0),
    "barrier": lambda x, group: dist.barrier(),
    "send": lambda x, group: dist.send(x, 0),
    "of the group": lambda x, group: group.allreduce([x]).wait(),
    "functional": lambda x, group: functional.all_reduce(x, "sum", group),
}


@pytest.mark.parametrize("name", COLLECTIVES)
def test_a_collective_that_a_graph_would_leave_out_keeps_the_forward_in_eager(name: str, group_of_four: None) -> None:
    model = rekindle.Module(Plain(COLLECTIVES[name]), rekindle.Options(log="error", cache="off"))
    model(torch.randn(2, 4))
    code, message = rekindle.status(model).bypass[0]
    assert code == "side_effect"
    assert "runs a collective" in message
    assert "test_collectives" in message
