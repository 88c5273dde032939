"""Tells whether a graph is right for the sizes and the data of a call, by the answers to what its forward asked.

An example: a forward asks `if x.sum() > 0`, and the answer was true at the export. The graph has the answer as an output; at a
call where it is false, `check_answers` raises OtherBranch.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from rekindle import _native
from rekindle.errors import OF_TORCH, first_line
from rekindle.reasons import SMALL, TRUTH, Bypass, OtherBranch, Reason, SmallByData


def check_answers(guards: list[list[Any]], writes: int, outputs: Sequence[torch.Tensor]) -> None:
    """Raises Bypass when the data of a call answers a question otherwise than when the graph was made.

    guards: [where, what, answer] each
    writes: how many outputs follow the one with the answers
    """
    if not guards:
        return
    for (where, what, value), now in zip(guards, outputs[-1 - writes].tolist(), strict=True):
        if now != value and what == TRUTH:
            raise OtherBranch(where)
        if now != value and what.startswith(SMALL):
            raise SmallByData(f"{where} makes a tensor with another size than the graph is for, {what}: it depends on data")
        if now != value:
            raise Bypass(
                Reason.VALUE_SPECIALIZED,
                f"{where} asks for a size that depends on data ({what}), and the graph is for that answer only; "
                "use torch.where, or give torch the size without asking for it",
            )


def is_for_small_sizes(guards: list[list[Any]]) -> bool:
    """Tells whether a graph is for sizes of 0 that depend on data, which most calls have otherwise; `guards`: as above."""
    return any(what.startswith(SMALL) for _, what, _ in guards)


def not_for_this_data(guards: list[list[Any]], error: Exception) -> Bypass:
    """Says why a graph in which sizes depend on data does not run for a call; `guards`: as in check_answers."""
    places = "; ".join(dict.fromkeys(f"{where} asks for one ({what})" for where, what, _ in guards[:8]))
    return Bypass(
        Reason.VALUE_SPECIALIZED,
        f"the graph is not for this call's data{places and ': '}{places}; {type(error).__name__}: {first_line(error)}",
    )


def numbers_of(guards: Any, expected: list[int], inputs: list[torch.Tensor]) -> list[int] | None:
    """Returns the numbers that follow the expected answers of a graph of questions about sizes.

    None if it answers otherwise, or cannot be run at the sizes of the inputs.
    """
    try:
        found = list(guards.answers(inputs))
    except OF_TORCH as error:
        _native.log_debug(f"sizes do not fit a graph: {type(error).__name__}: {first_line(error)}")
        return None
    return found[len(expected) :] if found[: len(expected)] == expected else None
