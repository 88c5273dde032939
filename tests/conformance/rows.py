"""PyTorch's operator database on rows that a mask chooses: none at first, or one, or several; others in later calls.

What ATen does for tensors without elements by a short cut must not be what a graph does for all others, and the other way round.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import opinfo
import rekindle
import torch
from comparison import Outcome, Step, difference, place_of, step
from rekindle.export.unchecked import Allowed, allowed_by
from torch import nn
from torch.utils._pytree import tree_leaves, tree_map

_SEED = 3
_MOST_ROWS = 16  # a larger sample says no more


class Chosen(nn.Module):
    """An operator on the rows that a mask chooses, of all tensors that have as many rows as the mask."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, mask: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        """The operator's tensors, none of them an argument itself."""
        args, kwargs = tree_map(lambda x: x[mask] if _has_rows(x, mask.shape[0]) else x, (args, kwargs))
        return [x.clone() if isinstance(x, torch.Tensor) else x for x in tree_leaves(self.function(*args, **kwargs))]


def _has_rows(x: Any, rows: int) -> bool:
    return isinstance(x, torch.Tensor) and x.dim() > 0 and x.shape[0] == rows and x.layout is torch.strided


def _orders(rows: int) -> tuple[tuple[int, ...], ...]:
    """How many rows each call chooses."""
    return (0, rows, 1, 0), (1, rows, 0), (rows, 1, 0, rows - 1)


def run(
    pattern: str,
    samples: int,
    options: rekindle.Options,
    device: str = "cpu",
    dtype: torch.dtype = torch.float32,
    part: slice = slice(None),
) -> Iterator[Outcome]:
    """One outcome a sample and order, named `operator#number`; the first `samples` that have rows of each operator."""
    for op in opinfo.entries(pattern)[part]:
        if allowed_by(opinfo.function_of(op)) is not Allowed.ANYTHING:
            continue  # fewer rows of some of its tensors would be read beyond their ends
        torch.manual_seed(0)
        found = op.sample_inputs(device, dtype, requires_grad=True)
        with_rows = ((sample, rows) for sample in found if (rows := _rows_of(sample)) is not None)
        for i, (sample, rows) in enumerate(itertools.islice(with_rows, samples)):
            for order in _orders(rows):
                yield _try(f"{opinfo.name_of(op)}#{i}:{order[0]}", Chosen(opinfo.function_of(op)), sample, order, options)


def _rows_of(sample: Any) -> int | None:
    first = next((x for x in tree_leaves((sample.input, sample.args)) if isinstance(x, torch.Tensor)), None)
    return first.shape[0] if first is not None and first.dim() > 0 and 2 < first.shape[0] <= _MOST_ROWS else None


def _try(name: str, module: Chosen, sample: Any, order: tuple[int, ...], options: rekindle.Options) -> Outcome:
    """Calls a module once for each number of rows in `order`; returns the first difference from eager, or where it ran."""
    rows = order[1] if order[0] < order[1] else order[0]
    wrapped, ran = rekindle.Module(module, options), False
    for number, count in enumerate(order):
        chosen = torch.randperm(rows, generator=torch.Generator().manual_seed(number))[:count]
        mask = torch.zeros(rows, dtype=torch.bool).index_fill_(0, chosen, True)
        args = (mask, sample.input, *sample.args)
        theirs, again = (_outcome(module, module, args, sample.kwargs) for _ in range(2))
        if isinstance(theirs, Step) and (not isinstance(again, Step) or difference(theirs, again)):
            continue  # memory that nobody has written
        ours = _outcome(wrapped, module, args, sample.kwargs)
        ran = ran or isinstance(theirs, Step)
        if isinstance(ours, Step) != isinstance(theirs, Step):
            return Outcome(name, place_of(wrapped), False, f"{count} rows of {rows}: {_text(ours)}, in eager {_text(theirs)}")
        if isinstance(ours, Step) and isinstance(theirs, Step) and (why := difference(ours, theirs)):
            return Outcome(name, place_of(wrapped), False, f"{count} rows of {rows} in call {number}: {why}")
    reasons = "; ".join(f"{code}: {text}" for code, text in rekindle.status(wrapped).bypass)
    return Outcome(name, place_of(wrapped) if ran else "skipped", reason=reasons)


def _outcome(called: Any, module: nn.Module, args: Any, kwargs: Any) -> Step | Exception:
    try:
        return step(called, module, args, kwargs, _SEED)
    except Exception as error:
        return error


def _text(found: Step | Exception) -> str:
    return "a result" if isinstance(found, Step) else f"{type(found).__name__}: {found}".splitlines()[0][:160]
