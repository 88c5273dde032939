"""Lets recurrent networks of packed sequences into a graph: what they take for granted of their states is asked at each run.

An example: `nn.GRU` compares `int(batch_sizes[0])`, which data decide on, with the batch of the state, to raise an error that
names both. It is told the numbers of this call; the graph has the question whether the two are equal, and is for calls where they
are. Of `nn.LSTM`, and in the operators themselves, nobody compares: a state that is too short is read beyond its end.
"""

from __future__ import annotations

import types
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from rekindle.process.torch_internals import disabled_torch_function, untraced

if TYPE_CHECKING:
    from rekindle.export.trace.open_sizes import OpenSizes

_RECURRENT = {torch.lstm, torch.gru, torch.rnn_tanh, torch.rnn_relu}
_ASKS_FOR_BATCH = {nn.RNNBase.get_expected_hidden_size.__code__, nn.LSTM.get_expected_cell_size.__code__}
_COMPARES = nn.RNNBase.check_hidden_size.__code__


def compares_state(function: Any, caller: types.FrameType) -> bool:
    """Tells whether torch.nn asks, of a packed sequence, for the batch that a state has to have, or that it has."""
    if function == torch.Tensor.__int__:
        return caller.f_code in _ASKS_FOR_BATCH
    if function != torch.Tensor.size or caller.f_code is not _COMPARES or caller.f_back is None:
        return False
    return caller.f_back.f_locals.get("batch_sizes") is not None


def ask_of_states(sizes: OpenSizes, function: Any, args: Any) -> None:
    """Asks, before a recurrent network of a packed sequence runs, for a state of its batch for each layer and direction."""
    if function not in _RECURRENT or len(args) < 9 or not isinstance(args[3], (list, tuple)):
        return  # the weights are the fourth after a packed sequence only
    batch_sizes, given, layers, is_bidirectional = args[1], args[2], int(args[5]), args[8]
    with untraced():
        value = int(batch_sizes[0])
    with disabled_torch_function():
        batch = sizes.size_of_data(value, batch_sizes[0])
    for state in given if isinstance(given, (list, tuple)) else [given]:
        shape = sizes.shape(state)
        _ = shape[0] == layers * (2 if is_bidirectional else 1) and shape[1] == batch
