"""Recurrent networks of packed sequences run in graphs, at any batch, and take no state that is not theirs."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import torch
from module_support import assert_same
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

CASES: dict[str, Callable[[], nn.RNNBase]] = {
    "LSTM": lambda: nn.LSTM(4, 6, batch_first=True),
    "LSTM of two directions": lambda: nn.LSTM(4, 6, batch_first=True, bidirectional=True),
    "LSTM with projections": lambda: nn.LSTM(4, 6, 2, batch_first=True, proj_size=3),
    "GRU": lambda: nn.GRU(4, 6, 2, batch_first=True),
    "GRU of two directions": lambda: nn.GRU(4, 6, batch_first=True, bidirectional=True),
    "RNN": lambda: nn.RNN(4, 6, batch_first=True, nonlinearity="relu"),
}


class Packed(nn.Module):
    """Runs a recurrent network on sequences of several lengths."""

    def __init__(self, rnn: nn.RNNBase, are_sorted: bool = False) -> None:
        super().__init__()
        self.rnn, self.are_sorted = rnn, are_sorted

    def forward(self, x: torch.Tensor, lengths: torch.Tensor, state: Any = None) -> torch.Tensor:
        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=self.are_sorted)
        return pad_packed_sequence(self.rnn(packed, state)[0], batch_first=True)[0]


def _inputs(rnn: nn.RNNBase, batch: int, with_state: bool) -> tuple[Any, ...]:
    x, lengths = torch.randn(batch, 6, 4), torch.tensor([3, 6, 2, 1, 4][:batch])
    if not with_state:
        return x, lengths
    states = rnn.num_layers * (2 if rnn.bidirectional else 1)
    hidden = torch.randn(states, batch, rnn.proj_size or rnn.hidden_size)
    return x, lengths, (hidden, torch.randn(states, batch, rnn.hidden_size)) if isinstance(rnn, nn.LSTM) else hidden


def _step(model: nn.Module, module: nn.Module, inputs: tuple[Any, ...]) -> list[Any]:
    module.zero_grad()
    result = model(*inputs)
    result.square().sum().backward()
    return [result.detach(), *(parameter.grad for parameter in module.parameters())]


@pytest.mark.parametrize("with_state", [False, True], ids=["no state", "state"])
@pytest.mark.parametrize("name", CASES)
def test_packed_sequences_of_any_batch_run_in_a_graph(name: str, with_state: bool) -> None:
    module = Packed(CASES[name]())
    for source in ("export", "local"):
        eager, model = (
            copy.deepcopy(module),
            rekindle.Module(copy.deepcopy(module), rekindle.Options(fallback="error", log="error")),
        )
        for batch in (3, 5, 2):
            inputs = _inputs(eager.rnn, batch, with_state)
            assert_same(_step(model, model.module, inputs), _step(eager, eager, inputs))
        status = rekindle.status(model)
        assert (status.exports, status.hits) == ((1, 0) if source == "export" else (0, 1))
        rekindle.lookup.store.flush()


@pytest.mark.parametrize("name", ["GRU", "RNN"])
def test_a_state_of_another_batch_is_eagers_error(name: str) -> None:
    module = Packed(CASES[name](), are_sorted=True)  # else the state is sorted, too, which looks at its batch
    model = rekindle.Module(module, rekindle.Options(log="error"))
    x, _, state = _inputs(module.rnn, 3, with_state=True)
    lengths = torch.tensor([6, 3, 2])
    model(x, lengths, state)
    for wrong in (state[:, :2], torch.cat([state, state], 1)):
        with pytest.raises(RuntimeError, match="Expected hidden size"):
            model(x, lengths, wrong)


class Attending(Packed):
    """Weighs what the network gives by itself: products of tensors whose sizes are the lengths'."""

    def forward(self, x: torch.Tensor, lengths: torch.Tensor, state: Any = None) -> torch.Tensor:
        y = super().forward(x, lengths, state)
        return ((y @ y.mT).softmax(-1) @ y).logsumexp(1)


@pytest.mark.parametrize("name", CASES)
def test_what_is_padded_again_can_be_multiplied(name: str) -> None:
    module = Attending(CASES[name]())
    model = rekindle.Module(copy.deepcopy(module), rekindle.Options(fallback="error", log="error"))
    for batch in (3, 5, 2):
        inputs = _inputs(module.rnn, batch, with_state=False)
        assert_same(_step(model, model.module, inputs), _step(module, module, inputs))
    assert rekindle.status(model).exports == 1


class Grouped(nn.Module):
    """Views rows that a mask chooses as those of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        chosen = self.linear(x[x[..., 0] > 0]).view(x.shape[0], -1, 6)
        return chosen @ chosen.mT


def test_rows_chosen_by_data_can_be_viewed_by_a_batch_and_multiplied() -> None:
    module = Grouped()
    model = rekindle.Module(copy.deepcopy(module), rekindle.Options(fallback="error", log="error"))
    for batch, length, chosen in ((2, 5, 3), (3, 6, 4)):
        x = torch.rand(batch, length, 4) + 0.1
        x[:, chosen:, 0] *= -1
        assert_same(_step(model, model.module, (x,)), _step(module, module, (x,)))
