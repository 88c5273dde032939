"""Attributes that no graph can set are set in eager, and a refusal keeps their paths."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from module_support import Twins, assert_same
from rekindle.lookup import background
from rekindle.lookup.entry import InvalidEntry
from rekindle.lookup.refusal import Refusal
from rekindle.reasons import SetsAttributes
from set_attributes_support import Layer, Net, Set, attributes
from torch.utils.checkpoint import checkpoint


def _weight(layer: Layer, _: torch.Tensor, y: torch.Tensor) -> None:
    layer.seen = layer.linear.weight


def _reads_before(layer: Layer, _: torch.Tensor, y: torch.Tensor) -> None:
    layer.kept = y.sum() if layer.kept is None else layer.kept.detach() + y.sum()


def _asks_whether_it_is_there(layer: Layer, _: torch.Tensor, y: torch.Tensor) -> None:
    layer.seen = y.detach() * 2 if hasattr(layer, "seen") else y.detach()


def _counts(layer: Layer, _: torch.Tensor, y: torch.Tensor) -> None:
    layer.kept = (layer.kept or 0) + 1


def _deletes(layer: Layer, _: torch.Tensor, y: torch.Tensor) -> None:
    layer.seen = y
    del layer.kept


def _mode(layer: Layer, _: torch.Tensor, y: torch.Tensor) -> None:
    layer.training = not layer.training


def _own_list(layer: Layer, x: torch.Tensor, y: torch.Tensor) -> None:
    layer.seen = layer.linear._forward_hooks


def _local_class(layer: Layer, _: torch.Tensor, y: torch.Tensor) -> None:
    class Local:
        size = y

    layer.kept = Local


def _again_in_the_backward(layer: Layer, x: torch.Tensor, y: torch.Tensor) -> None:
    def inner(x: torch.Tensor) -> torch.Tensor:
        layer.kept = (x * 3).detach()
        return layer.kept * x

    checkpoint(inner, y, use_reentrant=False)


class Keeps(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, layer: Layer) -> torch.Tensor:
        layer.kept = x * 2
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return gradient, None


def _in_a_function(layer: Layer, x: torch.Tensor, y: torch.Tensor) -> None:
    Keeps.apply(y, layer)


REFUSED = [
    _reads_before, _asks_whether_it_is_there, _counts, _deletes, _mode, _own_list, _local_class, _again_in_the_backward,
    _in_a_function, _weight,
]  # fmt: skip


@pytest.mark.parametrize("keep", REFUSED)
def test_what_no_graph_can_set_is_set_in_eager(keep: Set) -> None:
    twins = Twins(Net(keep))
    for _ in range(4):
        x = torch.randn(3, 4)
        for net in (twins.eager, twins.module):
            if keep is _deletes:
                net.first.kept = net.second.kept = None
        theirs, ours = twins.eager(x), twins.wrapped(x)
        assert_same(ours, theirs)
        if keep is not _local_class:
            assert_same(attributes(twins.module), attributes(twins.eager))
        assert twins.module.first.training == twins.eager.first.training
    assert [code for code, _ in twins.status.bypass if code != "opaque_value"]
    assert (twins.status.eager_calls, twins.status.exports) == (4, 0)


def test_that_attributes_are_set_is_kept_and_handed_over_with_their_paths() -> None:
    why = SetsAttributes("the forward changes the attribute Net.kept", ["model.first.kept", "model.second.kept"])
    kept = Refusal.made(why, 1, 1)

    def export(_: Any) -> Any:
        raise why

    head, _, _ = background._reported(export).partition(b"\n")
    for found in (Refusal.parse(kept.section()).bypass(), background._error(json.loads(head))):
        assert isinstance(found, SetsAttributes)
        assert (found.reason, found.message, found.paths) == (why.reason, why.message, why.paths)
    for paths in ([1], "model.first.kept", [None]):
        with pytest.raises(InvalidEntry, match="values of other types"):
            Refusal.parse(json.dumps({**json.loads(kept.section()), "paths": paths}).encode())
