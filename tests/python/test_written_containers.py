"""Tensors that a forward puts into containers and objects are put there, whether or not they hold what was there before."""

from __future__ import annotations

import collections
import copy
import types
from typing import Any

import pytest
import rekindle
import torch
from torch import nn

_SIZE = 3


class Keeps(nn.Module):
    """Keeps what it computes, in a way of `keep`."""

    def __init__(self, keep: str) -> None:
        super().__init__()
        self.linear = nn.Linear(_SIZE, _SIZE)
        self.keep = keep
        self.items, self.by_name, self.recent = [None], {}, collections.deque(maxlen=1)
        self.nested: dict[str, list[Any]] = {"of": [None]}
        self.object = types.SimpleNamespace(value=None)
        if keep == "hook":
            self.linear.register_forward_hook(self._hook)

    def _hook(self, module: nn.Module, inputs: Any, result: torch.Tensor) -> None:
        self.by_name["activation"] = result.detach()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = self.linear(x)
        kept = result.detach() * 2
        if self.keep == "item":
            self.items[0] = kept
        elif self.keep == "key":
            self.by_name["kept"] = kept
        elif self.keep == "update":
            self.by_name.update(kept=kept)
        elif self.keep == "cleared":
            self.items.clear()
            self.items.append(kept)
        elif self.keep == "deque":
            self.recent.append(kept)
        elif self.keep == "nested":
            self.nested["of"][0] = kept
        elif self.keep == "object":
            self.object.value = kept
        return result

    def kept(self) -> list[Any]:
        return [*self.items, *self.by_name.values(), *self.recent, *self.nested["of"], self.object.value]


@pytest.mark.parametrize("keep", ["item", "key", "update", "cleared", "deque", "nested", "object", "hook"])
def test_what_is_kept_of_the_same_batch_again_is_kept_of_the_next(keep: str) -> None:
    torch.manual_seed(0)
    eager = Keeps(keep)
    ours = copy.deepcopy(eager)
    wrapped = rekindle.Module(ours, rekindle.Options(log="off"))
    batches = [torch.randn(4, _SIZE) for _ in range(3)]
    for i in (0, 0, 0, 1, 2, 1):
        torch.testing.assert_close(wrapped(batches[i]), eager(batches[i]))
        for mine, theirs in zip(ours.kept(), eager.kept(), strict=True):
            torch.testing.assert_close(mine, theirs)


class State(nn.Module):
    """Goes on from what it kept last, while it trains."""

    def __init__(self, holder: str) -> None:
        super().__init__()
        self.linear = nn.Linear(_SIZE, _SIZE)
        self.holder = holder
        self.by_name, self.items = {"state": torch.zeros(_SIZE)}, [torch.zeros(_SIZE)]
        self.object = types.SimpleNamespace(state=torch.zeros(_SIZE))
        self.recent = collections.deque([torch.zeros(_SIZE)], maxlen=2)

    def state(self) -> torch.Tensor:
        found = {"key": self.by_name["state"], "item": self.items[0], "object": self.object.state, "deque": self.recent[-1]}
        return found[self.holder]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result = self.linear(x) + self.state()
        if self.training:
            new = 0.5 * self.state() + result.detach().mean(0)
            if self.holder == "key":
                self.by_name["state"] = new
            elif self.holder == "item":
                self.items[0] = new
            elif self.holder == "object":
                self.object.state = new
            else:
                self.recent.append(new)
        return result


# Of each call: rows, whether it trains, and whether its argument requires a gradient.
_CALLS = [(4, True, False), (7, True, False), (4, False, False), (4, True, True), *[(4, True, False)] * 4]


@pytest.mark.parametrize("holder", ["key", "item", "object", "deque"])
def test_a_state_goes_on_through_calls_of_several_kinds(holder: str) -> None:
    torch.manual_seed(0)
    eager = State(holder)
    ours = copy.deepcopy(eager)
    wrapped = rekindle.Module(ours, rekindle.Options(log="off"))
    for rows, trains, differentiated in _CALLS:
        x = torch.randn(rows, _SIZE)
        for model in (wrapped, eager):
            model.train(trains)
            with torch.set_grad_enabled(trains):
                result = model(x.clone().requires_grad_(differentiated))
            if trains:
                result.square().sum().backward()
        torch.testing.assert_close(ours.state(), eager.state())
        for mine, theirs in zip(ours.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, theirs.grad)
