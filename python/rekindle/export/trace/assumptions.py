"""Answers yes-or-no questions about tensors that a forward asks, and has the graph ask them again.

In installed code, such a question is whether parameters of a distribution are valid, say, or a mask is causal; in any code,
whether to raise (branches.py). The answer is nearly always the same, so that the graph is for that answer, and says at each run
whether it still is right. Another branch in the user's own code is left to eager: it is there to be taken both ways.
"""

from __future__ import annotations

import types
from collections.abc import Sequence
from typing import Any

import torch

from rekindle.export.trace.branches import is_check
from rekindle.export.unchecked import Allowed
from rekindle.process.origin import installed
from rekindle.process.torch_internals import untraced
from rekindle.reasons import TRUTH, Bypass, Reason
from rekindle.sizes.traced_sizes import Guard

_QUESTIONS = {torch.Tensor.__bool__, torch.Tensor.is_nonzero, torch.is_nonzero}


class Assumptions:
    """Collects what one export assumes of values."""

    def __init__(self) -> None:
        self._guards: list[Guard] = []
        self._check: str | None = None  # where the user's own code has one

    def is_question(self, function: Any, asking: types.FrameType) -> bool:
        """Tells whether a call of one of torch's functions is such a question."""
        return function in _QUESTIONS and (installed(asking.f_code.co_filename) or is_check(asking))

    def answer(self, tensor: torch.Tensor, place: str, asking: types.FrameType) -> bool:
        """Returns the truth of a tensor of one element, assumed from here on. Raises what torch does for other tensors."""
        with untraced():
            answer = bool(tensor)
        if not installed(asking.f_code.co_filename):
            self._check = self._check or place
        self._guards.append(Guard(place, TRUTH, int(answer), tensor.detach().reshape(()).ne(0)))
        return answer

    def guards(self, functions: Sequence[Any], allowed: Allowed) -> list[Guard]:
        """Returns what the graph has to find again.

        functions: the autograd Functions that it calls
        allowed: what the forward may be tried on

        Raises Bypass if the graph calls autograd Functions: a call for which an assumption does not hold runs again in eager,
        which would call them twice. So it does for operators that a check may keep from bad numbers.
        """
        if self._check is not None and allowed is not Allowed.ANYTHING:
            message = (
                f"{self._check} asks for the truth of a tensor, and the graph calls an operator that does not check its numbers"
            )
            raise Bypass(Reason.VALUE_SPECIALIZED, message)
        if self._guards and functions:
            message = f"{self._guards[0].where} asks for the truth of a tensor, and the graph calls autograd Functions"
            raise Bypass(Reason.VALUE_SPECIALIZED, message)
        return self._guards
