"""Attributes that a forward sets and does not read before are set by its graph, too."""

from __future__ import annotations

import copy
import gc
import pathlib
import types
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import python_process
import rekindle
import torch
from module_support import Twins, assert_same
from rekindle.lookup.entry import InvalidEntry
from rekindle.lookup.entry_check import check_fit
from set_attributes_support import Layer, Net, Set, attributes
from torch import nn


def _loss(layer: Layer, _: torch.Tensor, y: torch.Tensor) -> None:
    layer.kept = y.square().mean()


def _detached(layer: Layer, _: torch.Tensor, y: torch.Tensor) -> None:
    layer.seen = y.detach()


def _two(layer: Layer, x: torch.Tensor, y: torch.Tensor) -> None:
    layer.zeta, layer.alpha = y + x, y * 2


def _containers(layer: Layer, x: torch.Tensor, y: torch.Tensor) -> None:
    layer.kept = []
    layer.kept.append(y.exp())
    layer.kept.append({"x": x, "row": y[0], "rows": x.shape[0], "name": "tanh"})


def _by_setattr(layer: Layer, _: torch.Tensor, y: torch.Tensor) -> None:
    setattr(layer, "".join(["ke", "pt"]), y)


def _and_reads(layer: Layer, _: torch.Tensor, y: torch.Tensor) -> None:
    layer.kept = y.sum()
    layer.kept = layer.kept + y.mean()


def _without_grad(layer: Layer, _: torch.Tensor, y: torch.Tensor) -> None:
    with torch.no_grad():
        layer.kept = y.std()


def _nothing(layer: Layer, _: torch.Tensor, y: torch.Tensor) -> None:
    layer.kept = None
    layer.size = len(y)


def _in_training(layer: Layer, _: torch.Tensor, y: torch.Tensor) -> None:
    if layer.training:
        layer.kept = y.norm()


SETS = [
    _loss, _detached, _two, _containers, _by_setattr, _and_reads, _without_grad, _nothing, _in_training,
]  # fmt: skip


def _tensors(found: Any) -> list[torch.Tensor]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(found) if isinstance(leaf, torch.Tensor)]


def _trained(net: nn.Module, called: Callable[..., Any], x: torch.Tensor) -> Any:
    """Trains on all that a call gives, and returns it."""
    y = called(x)
    found = attributes(net)
    sum((leaf.sum() for leaf in [y, *_tensors(found)] if leaf.requires_grad), torch.zeros(())).backward()
    return y, found


def _compare(twins: Twins, x: torch.Tensor) -> None:
    theirs, ours = _trained(twins.eager, twins.eager, x), _trained(twins.module, twins.wrapped, x)
    assert_same(ours, theirs)
    assert [leaf.requires_grad for leaf in _tensors(ours[1])] == [leaf.requires_grad for leaf in _tensors(theirs[1])]
    twins.compare()


@pytest.mark.parametrize("keep", SETS)
def test_a_graph_sets_what_eager_sets(keep: Set) -> None:
    twins = Twins(Net(keep), fallback="error")
    for rows in (3, 3, 5, 2, 3):
        _compare(twins, torch.randn(rows, 4))
    assert twins.status.exports == 1
    for net in (twins.eager, twins.wrapped):
        net.eval()
    x = torch.randn(3, 4)
    assert_same((twins.wrapped(x), attributes(twins.module)), (twins.eager(x), attributes(twins.eager)))


def test_results_that_are_set_are_the_same_tensors() -> None:
    twins = Twins(Net(_by_setattr), fallback="error")
    for _ in range(3):
        y = twins.wrapped(torch.randn(3, 4))
        assert twins.module.second.kept is y


def test_what_was_set_is_not_kept_alive_once_it_is_set_anew() -> None:
    net = Net(_loss)
    wrapped = rekindle.Module(net)
    found = []
    for _ in range(5):
        wrapped(torch.randn(3, 4))
        found.append(weakref.ref(net.first.kept))
    gc.collect()
    assert [reference() is None for reference in found] == [True] * 4 + [False]


def test_a_graph_sets_attributes_of_what_is_wrapped_itself() -> None:
    eager = Net(_loss)
    own = copy.deepcopy(eager)
    own.first = rekindle.Module(own.first)  # type: ignore[assignment]
    wrapped = rekindle.Module(own, rekindle.Options(fallback="error"))
    for _ in range(3):
        x = torch.randn(3, 4)
        assert_same((wrapped(x), own.first.kept, own.second.kept), (eager(x), eager.first.kept, eager.second.kept))


def _set_none(net: Any) -> None:
    net.first.kept = None


def _deleted(net: Any) -> None:
    del net.second.kept


def _set_text(net: Any) -> None:
    net.first.kept = "text"


@pytest.mark.parametrize("change", [_set_none, _deleted, _set_text])
def test_what_the_user_does_to_it_costs_no_export(change: Callable[[Any], None]) -> None:
    twins = Twins(Net(_loss), fallback="error")
    for _ in range(3):
        _compare(twins, torch.randn(3, 4))
        change(twins.eager)
        change(twins.module)
    assert twins.status.exports == 1


def test_gradients_of_gradients_leave_what_the_call_has_set() -> None:
    twins = Twins(Net(_loss), fallback="error")
    for _ in range(3):
        x = torch.randn(3, 4)
        results = []
        for net, called in ((twins.eager, twins.eager), (twins.module, twins.wrapped)):
            given = x.clone().requires_grad_()
            y = called(given)
            kept = net.second.kept
            (first,) = torch.autograd.grad((y.sum() + kept).square(), given, create_graph=True)
            assert net.second.kept is kept
            results.append((y, kept, first, torch.autograd.grad(first.square().sum(), given)[0]))
        assert_same(*results)


@pytest.mark.parametrize("place", [("third", "kept"), ("first", "_parameters"), ("first", "training"), ("", "__dict__")])
def test_an_entry_that_sets_what_is_no_attribute_is_none(place: tuple[str, str]) -> None:
    twins = Twins(Net(_loss), fallback="error")
    twins.wrapped(torch.randn(3, 4))
    (graph,) = twins.wrapped._runtime._kinds.graphs()
    contract = types.SimpleNamespace(attributes=[*graph.contract.attributes, place], check_fit=graph.contract.check_fit)
    subject, x = twins.wrapped._runtime._subject, torch.randn(3, 4)
    call = subject.call((x,), {}, [x], subject.fingerprint((x,), {}))
    check_fit(graph.contract, graph.session, call)
    with pytest.raises(InvalidEntry, match="which the module does not have"):
        check_fit(contract, graph.session, call)


_MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.loss = nn.Linear(4, 4), None

    def forward(self, x):
        y = self.linear(x)
        self.loss, self.seen = y.square().mean(), y.detach()
        return y
"""
_SCRIPT = """
import rekindle, torch
from kept_model import Net
torch.manual_seed(0)
net = Net()
model = rekindle.Module(net)
for rows in (3, 3, 5):
    y = model(torch.ones(rows, 4))
    assert torch.equal(net.seen, y.detach()) and net.loss.requires_grad
    torch.testing.assert_close(net.loss, y.square().mean())
status = rekindle.status(model)
print(status.exports, status.eager_calls, status.hits)
"""


def test_the_first_call_of_another_process_finds_the_graph(tmp_path: pathlib.Path) -> None:
    (tmp_path / "kept_model.py").write_text(_MODEL)
    (tmp_path / "run.py").write_text(_SCRIPT)
    found = []
    for _ in range(2):
        run = python_process.run("run.py", cwd=tmp_path, check=True)
        found.append(run.stdout.split())
    assert found == [["1", "0", "0"], ["0", "0", "1"]]
