"""Plain tensors whose numbers change between calls: inputs of one graph, unless the forward asks for a number."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from module_support import Twins, rows
from torch import nn

STEPS = 12


class Weighted(nn.Module):
    """Weighs its loss by plain tensors: an attribute, one in a list and one in a dict."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.beta = torch.tensor(1.0)
        self.scales = [torch.ones(4), torch.ones(4)]
        self.table = {"shift": torch.zeros(4)}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.beta * (self.linear(x) * self.scales[1] + self.table["shift"]).square().mean()


def set_anew(model: Weighted, step: int) -> None:
    model.beta = torch.tensor(1.0 - step / 20)


def fill(model: Weighted, step: int) -> None:
    model.beta.fill_(1.0 - step / 20)


def set_in_containers(model: Weighted, step: int) -> None:
    model.scales[1] = torch.full((4,), 1.0 + step)
    model.table["shift"].add_(step)


@pytest.mark.parametrize("change", [set_anew, fill, set_in_containers], ids=lambda change: change.__name__)
def test_one_graph_serves_all_numbers(change: Callable[[Weighted, int], None]) -> None:
    twins = Twins(Weighted())
    for step in range(STEPS):
        twins.both(lambda model, step=step: change(model, step))
        twins.call(rows(step))
    assert twins.status.exports == 2  # the first has the numbers as constants
    assert twins.status.bypass == [] and twins.status.eager_calls == 0


def test_a_module_made_later_finds_both_graphs(cache_dir: str) -> None:
    for exports in (2, 0):
        twins = Twins(Weighted(), cache_dir=cache_dir)
        for step in range(4):
            twins.both(lambda model, step=step: set_anew(model, step))
            twins.call(rows(step))
        assert twins.status.exports == exports


class Asking(Weighted):
    """Asks for the number."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).square().mean() * self.beta.item()


def test_a_number_that_the_forward_asks_for_has_a_graph_for_each_value() -> None:
    twins = Twins(Asking())
    for step in (0, 1, 2, 1, 0, 2):
        twins.both(lambda model, step=step: set_anew(model, step))
        twins.call(rows(step))
    assert twins.status.exports == 3 and twins.status.eager_calls == 0


class Branching(Weighted):
    """Branches on the number."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        return (y.square() if self.beta > 0.7 else y.abs()).mean()


def test_a_branch_on_a_number_is_that_of_eager() -> None:
    twins = Twins(Branching())
    for step in range(STEPS):
        twins.both(lambda model, step=step: set_anew(model, step))
        twins.call(rows(step))


class Counting(Weighted):
    """Writes to the tensor."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.beta.add_(1)
        return self.linear(x).mean() * self.beta


def test_a_tensor_that_the_forward_writes_to_is_written_by_the_graph() -> None:
    twins = Twins(Counting())
    for step in range(STEPS):
        twins.call(rows(step))
        assert twins.eager.beta == twins.wrapped.beta == step + 2


def test_other_sizes_and_dtypes_have_graphs_of_their_own() -> None:
    twins = Twins(Weighted())
    for step, value in enumerate([1.0, 0.9, 0.8, [0.7], [0.6, 0.5, 0.4, 0.3], 0.2, True]):
        twins.both(lambda model, value=value: setattr(model, "beta", torch.tensor(value)))
        twins.eager.zero_grad()
        twins.wrapped.zero_grad()
        theirs, ours = twins.both(lambda model, step=step: model(rows(step)))
        torch.testing.assert_close(ours, theirs)


def test_a_module_that_is_another_at_each_call_is_told_what_changes() -> None:
    twins = Twins(Weighted())
    for step in range(STEPS):
        twins.both(lambda model, step=step: setattr(model, "beta", 1.0 - step / 20))
        twins.call(rows(step))
    [(code, message)] = twins.status.bypass
    assert code == "state_mutated" and "model.beta: 0." in message and "keep what changes in a buffer" in message


class Named(Weighted):
    """Reads a long text."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x).mean() * len(self.text)


def test_of_a_long_value_that_changes_a_message_has_the_begin() -> None:
    twins = Twins(Named())
    for step in range(STEPS):
        twins.both(lambda model, step=step: setattr(model, "text", f"{step}" + 5000 * "x"))
        twins.call(rows(step))
    [(code, message)] = twins.status.bypass
    assert code == "state_mutated" and "model.text: " in message and len(message) < 500
