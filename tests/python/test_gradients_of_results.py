"""Gradients of results on which other results depend: who retains, hooks or asks for one gets eager's."""

from __future__ import annotations

import copy
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import torch
from module_support import assert_same, rows
from torch import nn
from torch.utils.checkpoint import checkpoint

Results = tuple[torch.Tensor, ...]


class Chain(nn.Module):
    """Two results on the way to a third, and one beside them; `loss` is made of all."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> Results:
        h = self.a(x)
        g = torch.tanh(h)
        y = self.b(g)
        beside = x.detach() * self.b.bias
        return h, g, y, beside, (y * y).sum() + beside.sum() + torch.relu(h).flatten().sum()


class Features(nn.Module):
    """A result that is a view of what the graph computes."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(4, 4), nn.Linear(20, 3)

    def forward(self, x: torch.Tensor) -> Results:
        features = torch.relu(self.a(x)).flatten(0)
        return features, self.b(features)


def retained(results: Results) -> list[Any]:
    for result in results:
        result.retain_grad()
    results[-1].sum().backward()
    return [result.grad for result in results]


def retained_twice(results: Results) -> list[Any]:
    results[0].retain_grad()
    results[1].sum().backward(retain_graph=True)
    first = results[0].grad.clone()
    (results[-1].sum() + results[0].square().sum()).backward()
    return [first, results[0].grad]


def hooked(results: Results) -> list[Any]:
    seen: list[Any] = []
    results[0].register_hook(lambda gradient: (seen.append(gradient.clone()), 2 * gradient)[1])
    results[-2].register_hook(lambda gradient: seen.append(gradient.clone()))
    (results[-1].sum() + 3 * results[0].sum()).backward()
    return seen


def hooked_beside(results: Results) -> list[Any]:
    """A hook of a result that no backward comes to does not run."""
    seen: list[Any] = []
    results[-1].register_hook(lambda gradient: seen.append(gradient))
    results[0].sum().backward()
    return seen


def hooked_at_the_node(results: Results) -> list[Any]:
    assert results[0].grad_fn is not None
    results[0].grad_fn.register_prehook(lambda gradients: (2 * gradients[0],))
    results[-1].sum().backward()
    return []


def stopped(results: Results) -> list[Any]:
    results[0].register_hook(torch.zeros_like)
    results[-1].sum().backward()
    return []


def asked(results: Results) -> list[Any]:
    return [*torch.autograd.grad(results[-1].sum(), results[:2], allow_unused=True)]


def asked_first(results: Results) -> list[Any]:
    found = [*torch.autograd.grad(results[-1].sum(), results[0], retain_graph=True)]
    results[-1].sum().backward()
    return found


def differentiated_again(results: Results) -> list[Any]:
    (found,) = torch.autograd.grad(results[-1].square().sum(), results[0], create_graph=True)
    found.square().sum().backward()
    return [found.detach()]


def mapped(results: Results) -> list[Any]:
    cotangents = torch.stack([torch.ones_like(results[-1]), torch.zeros_like(results[-1])])
    return [*torch.autograd.grad(results[-1], results[0], cotangents, is_grads_batched=True)]


def asked_too_late(results: Results) -> list[Any]:
    results[-1].sum().backward()
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(results[-1].sum(), results[0])
    return []


WAYS = [
    retained, retained_twice, hooked, hooked_beside, hooked_at_the_node, stopped, asked, asked_first, differentiated_again,
    mapped, asked_too_late,
]  # fmt: skip


@pytest.mark.parametrize("make", [Chain, Features])
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_gradient_of_a_result_is_eagers(
    make: Callable[[], nn.Module], way: Callable[[Results], list[Any]], tmp_path: pathlib.Path
) -> None:
    torch.manual_seed(0)
    model = make()
    found, gradients = [], []
    for kind in ("eager", "cold", "warm"):
        model.zero_grad()
        wrapped = model if kind == "eager" else rekindle.Module(model, rekindle.Options(cache_dir=str(tmp_path)))
        found.append([way(wrapped(rows(step))) for step in range(2)])
        gradients.append({name: parameter.grad for name, parameter in model.named_parameters()})
        if kind != "eager":
            assert rekindle.status(wrapped).source == {"cold": "export", "warm": "local"}[kind], rekindle.status(wrapped).bypass
            rekindle.lookup.store.flush()
    for ours, grads in zip(found[1:], gradients[1:], strict=True):
        assert_same(ours, found[0])
        assert_same(grads, gradients[0])


def test_what_was_written_since_cannot_be_asked_for() -> None:
    model = Chain()
    wrapped = rekindle.Module(model)
    results = wrapped(rows())
    with torch.no_grad():
        model.b.weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        torch.autograd.grad(results[2].sum(), results[0])


def test_results_that_share_nothing_are_differentiable_twice() -> None:
    """What a cotangent does not reach has no gradient, with create_graph as without."""
    model = Chain()
    wrapped = rekindle.Module(model)
    for kind in (model, wrapped):
        *_, beside, _ = kind(rows())
        found = torch.autograd.grad(beside.sum(), list(model.parameters()), create_graph=True, allow_unused=True)
        assert [gradient is None for gradient in found] == [True, True, True, False]


class Halves(nn.Module):
    """A result depends on another that is a view of what it shares memory with."""

    def __init__(self, forward: Callable[[Any, torch.Tensor], Results]) -> None:
        super().__init__()
        self.a, self.b, self.do = nn.Linear(4, 4), nn.Linear(2, 2), forward

    def forward(self, x: torch.Tensor) -> Results:
        return self.do(self, x)


def _halves(self: Any, x: torch.Tensor) -> Results:
    u, v = self.a(x).split(2, 1)
    return u, v, self.b(u)


def _view_of_a_view(self: Any, x: torch.Tensor) -> Results:
    h = self.a(x)
    u = h[:, :2]
    return h, u, u[1:]


def _overlapping(self: Any, x: torch.Tensor) -> Results:
    y = torch.tanh(self.a(x))
    u = y[:, 2:]
    return u, y[1:], self.b(u)


def _side_by_side(self: Any, x: torch.Tensor) -> Results:
    h = self.a(x)
    u, v = h.split(2, 1)
    return u, v, self.b(torch.tanh(h)[:, :2])


HALVES = {"halves": _halves, "view of a view": _view_of_a_view, "overlapping": _overlapping, "beside": _side_by_side}


@pytest.mark.parametrize("differentiate", [retained, stopped, asked])
@pytest.mark.parametrize("name", HALVES)
def test_a_view_that_another_result_is_computed_from(name: str, differentiate: Callable[[Results], list[Any]]) -> None:
    torch.manual_seed(0)
    module = Halves(HALVES[name])
    wrapped = rekindle.Module(module, rekindle.Options(log="error", cache="off"))
    for _ in range(2):
        theirs = differentiate(module(rows()))
        assert_same(differentiate(wrapped(rows())), theirs)
    assert (rekindle.status(wrapped).eager_calls == 0) == (name == "beside")


class Checkpointed(nn.Module):
    """Returns scores beside a loss, through a checkpoint that runs a backward of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.body, self.head = nn.Linear(4, 8), nn.Sequential(nn.Linear(8, 8), nn.Tanh()), nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> Results:
        scores = self.head(checkpoint(self.body, self.first(x), use_reentrant=True))
        return scores, torch.logsumexp(scores, 1).mean()


@pytest.mark.parametrize("what", ["retained", "hooked", "anomaly"])
def test_results_of_a_reentrant_checkpoint(what: str) -> None:
    torch.manual_seed(0)
    module = Checkpointed()
    wrapped = rekindle.Module(copy.deepcopy(module), rekindle.Options(log="error", cache="off"))
    found = []
    for model in (module, wrapped):
        with torch.autograd.set_detect_anomaly(what == "anomaly", check_nan=True):
            scores, loss = model(rows())
            if what == "retained":
                scores.retain_grad()
            elif what == "hooked":
                scores.register_hook(lambda gradient: gradient * 2)
            (scores.mean() + loss).backward()
        found.append([scores.grad if what == "retained" else None, *(one.grad for one in model.parameters())])
    assert_same(found[1], found[0])
    assert rekindle.status(wrapped).eager_calls == 0
