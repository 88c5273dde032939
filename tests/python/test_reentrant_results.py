"""Re-entrant checkpoints with several results: a graph has their gradients, or the call runs in eager."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    """Has a checkpointed block, of whose results `returned` makes those of the module."""

    def __init__(self, block: Callable[..., Any], returned: Callable[..., Any]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.block, self.returned = block, returned
        self.first, self.score, self.value = nn.Linear(8, 8), nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> Any:
        return self.returned(checkpoint(self.block, self, self.first(x), use_reentrant=True))


def attention(net: Net, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    scores = torch.softmax(net.score(x), -1)
    return scores * net.value(x), scores


def alike(net: Net, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    hidden = net.value(net.score(x).tanh())
    return hidden.sin(), hidden.cos()


def with_constant(net: Net, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return net.value(net.score(x)), torch.ones(3)


def with_complex(net: Net, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return net.value(x), torch.complex(net.score(x), x)


def with_dict(net: Net, x: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
    hidden = net.value(net.score(x).tanh())
    return hidden, {"more": hidden.square()}


def as_list(net: Net, x: torch.Tensor) -> list[torch.Tensor]:
    return [net.value(x), net.score(x)]


def as_they_are(results: Any) -> Any:
    return results


def in_one_loss(results: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return results[0].square().sum() + results[1].sin().sum()


def outside(results: tuple[torch.Tensor, dict[str, torch.Tensor]]) -> torch.Tensor:
    return results[0].sum() + results[1]["more"].sum()


CASES: dict[str, tuple[Callable[..., Any], Callable[..., Any], bool]] = {  # whether a graph has it
    "one leads through the other": (attention, as_they_are, False),
    "both in one loss": (attention, in_one_loss, True),
    "both lead to the same": (alike, as_they_are, True),
    "one without a gradient": (with_constant, as_they_are, False),
    "one is complex": (with_complex, as_they_are, False),
    "within a dict": (with_dict, outside, True),
    "only the first is used": (attention, lambda results: results[0], True),
    "only the second is used": (attention, lambda results: results[1], False),
}


def trained(called: nn.Module, module: nn.Module, part: int) -> Any:
    """Trains for three steps by one of the results; returns the gradients of each, and the parameters after the last."""
    optimizer = torch.optim.AdamW(module.parameters(), lr=0.1, weight_decay=0.5)
    found = []
    for seed in range(3):
        optimizer.zero_grad()
        results = called(torch.randn(3, 8, generator=torch.Generator().manual_seed(seed)))
        one = results[part % len(results)] if isinstance(results, tuple) else results
        if one.requires_grad:
            one.retain_grad()
            one.abs().square().sum().backward()
        found.append([one.requires_grad, *(None if each.grad is None else each.grad.clone() for each in module.parameters())])
        optimizer.step()
    return found, [each.detach() for each in module.parameters()]


@pytest.mark.parametrize("part", [0, 1])
@pytest.mark.parametrize("name", CASES)
def test_gradients_are_eagers(name: str, part: int) -> None:
    block, returned, has_graph = CASES[name]
    eager = Net(block, returned)
    module = copy.deepcopy(eager)
    wrapped = rekindle.Module(module, rekindle.Options(start="wait"))
    torch.testing.assert_close(trained(wrapped, module, part), trained(eager, eager, part))
    status = rekindle.status(wrapped)
    assert (status.eager_calls == 0) == has_graph
    assert has_graph or [reason for reason, _ in status.bypass] == ["python_op"]


def test_a_list_has_no_gradients() -> None:
    eager = Net(as_list, lambda results: results[0] + results[1])
    module = copy.deepcopy(eager)
    wrapped = rekindle.Module(module, rekindle.Options(start="wait", fallback="error"))
    x = torch.randn(3, 8)
    assert not eager(x).requires_grad and not wrapped(x).requires_grad
    torch.testing.assert_close(wrapped(x), eager(x))


def test_a_hook_on_a_result_sees_what_comes_to_it_alone() -> None:
    def hooked(called: nn.Module, module: nn.Module) -> Any:
        hidden, scores = called(torch.ones(3, 8))
        scores.register_hook(lambda gradient: None if gradient is None else gradient * 0)
        hidden.sum().backward()
        return [each.grad for each in module.parameters()]

    eager = Net(attention, as_they_are)
    module = copy.deepcopy(eager)
    torch.testing.assert_close(hooked(rekindle.Module(module), module), hooked(eager, eager))
