"""A module that is subscribed to runs from a graph as without, its numbers unchanged, and its tensors are those of eager."""

from __future__ import annotations

import copy
import pathlib

import pytest
import rekindle
import torch
from module_support import assert_same
from rekindle.statistics import StatisticsSubscriber, inspect_activation, subscribe
from statistics_support import Net, made, recorded, records, train
from torch import nn
from torch.utils.checkpoint import checkpoint


def _close(one: list[dict], other: list[dict]) -> None:
    assert [[r[k] for k in ("step", "phase", "name", "output", "call", "dtype", "shape")] for r in one] == [
        [r[k] for k in ("step", "phase", "name", "output", "call", "dtype", "shape")] for r in other
    ]
    for mine, theirs in zip(one, other, strict=True):
        scale = max(mine["norm"], 1e-3)
        for field in ("min", "max", "mean", "std", "norm"):
            assert mine[field] == pytest.approx(theirs[field], rel=1e-4, abs=1e-5 * scale), (mine["name"], field)


def test_without_a_subscription_the_very_tensor_is_returned() -> None:
    x = torch.randn(3)
    assert inspect_activation("x", x) is x


def test_tensor_and_gradient_pass_bit_for_bit(tmp_path: pathlib.Path) -> None:
    expected = train(made(), 3)
    net = made()
    with subscribe(net, StatisticsSubscriber(tmp_path)):
        found = train(net, 3)
    for mine, theirs in zip(found, expected, strict=True):
        assert torch.equal(mine, theirs)


@pytest.mark.parametrize("order", ("wrapped first", "subscribed first"))
def test_a_wrapped_module_stays_in_the_graph(tmp_path: pathlib.Path, order: str) -> None:
    eager = recorded(made(), tmp_path / "eager", steps=3)
    for source in ("export", "local"):
        net = made()
        model = rekindle.Module(net) if order == "wrapped first" else None
        handle = subscribe(model or net, StatisticsSubscriber(tmp_path / source))
        model = model or rekindle.Module(net)
        train(model, 3)
        handle.remove()
        status = rekindle.status(model)
        assert (status.source, status.bypass, status.eager_calls) == (source, [], 0)
        assert status.exports == (1 if source == "export" else 0)
        _close(records(tmp_path / source), eager)
        rekindle.lookup.store.flush()


def test_inlined_functions_leave_those_that_show_tensors_calls(tmp_path: pathlib.Path) -> None:
    eager = recorded(made(), tmp_path / "eager", steps=2)
    model = rekindle.Module(made(), rekindle.Options(inline_functions=True))
    _close(recorded(model, tmp_path / "graph", steps=2), eager)
    assert (rekindle.status(model).eager_calls, rekindle.status(model).bypass) == (0, [])


def test_results_of_a_wrapped_module_are_those_without_a_subscription(tmp_path: pathlib.Path) -> None:
    plain, observed = rekindle.Module(made()), rekindle.Module(made())
    expected = train(plain, 3)
    with subscribe(observed, StatisticsSubscriber(tmp_path)):
        assert_same(train(observed, 3), expected)
    assert_same(train(observed, 2), train(plain, 2))


class Inspecting(nn.Module):
    """Has nothing that a hook is on."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return inspect_activation("product", x * self.weight).sum()


def test_the_graph_follows_the_subscription(tmp_path: pathlib.Path) -> None:
    model = rekindle.Module(made(Inspecting))
    for turn in range(2):
        train(model)
        with subscribe(model, StatisticsSubscriber(tmp_path / str(turn))):
            train(model)
        assert [r["phase"] for r in records(tmp_path / str(turn)) if r["name"] == "product"] == ["forward", "backward"]
    status = rekindle.status(model)
    assert (status.exports, status.eager_calls, status.bypass) == (2, 0, [])


def test_a_graph_without_a_subscription_calls_nothing(tmp_path: pathlib.Path) -> None:
    model = rekindle.Module(made(Inspecting))
    other = made()
    with subscribe(other, StatisticsSubscriber(tmp_path)):
        train(other)
    train(model)
    before = rekindle.status(model).exports
    calls = []
    original = rekindle.statistics.inspection.Inspect.forward
    rekindle.statistics.inspection.Inspect.forward = staticmethod(lambda *given: calls.append(given) or original(*given))
    try:
        train(model)
    finally:
        rekindle.statistics.inspection.Inspect.forward = staticmethod(original)
    assert calls == [] and rekindle.status(model).exports == before


def test_other_sizes_have_the_same_graph(tmp_path: pathlib.Path) -> None:
    model = rekindle.Module(made())
    with subscribe(model, StatisticsSubscriber(tmp_path)):
        for rows in (6, 3, 9):
            model(torch.randn(rows, 4)).backward()
    assert (rekindle.status(model).exports, rekindle.status(model).bypass) == (1, [])
    shapes = [r["shape"] for r in records(tmp_path) if (r["name"], r["phase"]) == ("hidden", "forward")]
    assert shapes == [[6, 4], [3, 4], [9, 4]]


def test_modes_are_told_apart(tmp_path: pathlib.Path) -> None:
    model = rekindle.Module(made())
    with subscribe(model, StatisticsSubscriber(tmp_path)):
        model.eval()
        with torch.no_grad():
            model(torch.randn(6, 4))
        model.train()
        train(model)
    steps = [(r["step"], r["training"], r["gradients"]) for r in records(tmp_path, "step")]
    assert steps == [(0, False, False), (1, True, True)]
    assert {r["phase"] for r in records(tmp_path) if r["step"] == 0} == {"parameter", "forward"}
    assert rekindle.status(model).bypass == []


class Branching(Net):
    """Cannot be one graph: its parts can."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.body(x)
        return (self.last(y) if y.sum() > -1e9 else y).square().mean()


def test_parts_of_a_module_in_eager_are_observed(tmp_path: pathlib.Path) -> None:
    expected = recorded(made(Branching), tmp_path / "eager", steps=2)
    model = rekindle.Module(made(Branching))
    _close(recorded(model, tmp_path / "parts", steps=2), expected)
    assert {part.source for part in rekindle.status(model).parts if part.name} == {"export"}


class Checkpointed(Net):
    """Computes its body again in the backward."""

    reentrant = False

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(checkpoint(self.body, x.requires_grad_(), use_reentrant=self.reentrant)).square().mean()


class Reentrant(Checkpointed):
    """The same by the other kind of checkpoint."""

    reentrant = True


@pytest.mark.parametrize("kind", (Checkpointed, Reentrant))
def test_a_checkpoint_is_recorded_once(tmp_path: pathlib.Path, kind: type[nn.Module]) -> None:
    found = recorded(made(kind), tmp_path / "eager")
    keys = [(r["phase"], r["name"], r["call"]) for r in found]
    assert len(set(keys)) == len(keys)
    assert sorted(r["name"] for r in found if r["phase"] == "forward") == sorted(
        r["name"] for r in found if r["phase"] == "backward"
    )


def test_calls_of_copies_are_no_steps(tmp_path: pathlib.Path) -> None:
    net = made()
    with subscribe(net, StatisticsSubscriber(tmp_path)):
        train(copy.deepcopy(net))
        train(net)
    assert len(records(tmp_path, "step")) == 1


def test_an_error_of_the_forward_ends_its_step(tmp_path: pathlib.Path) -> None:
    net = made()
    with subscribe(net, StatisticsSubscriber(tmp_path)):
        with pytest.raises(RuntimeError):
            net(torch.randn(6, 5))
        train(net)
    assert rekindle.statistics.inspection.running.observers == []
    assert {r["step"] for r in records(tmp_path) if r["phase"] == "backward"} == {1}


def test_names_that_are_none_are_refused(tmp_path: pathlib.Path) -> None:
    with subscribe(made(), StatisticsSubscriber(tmp_path)), pytest.raises(TypeError, match="takes a name and a tensor"):
        inspect_activation(torch.ones(1), "name")
