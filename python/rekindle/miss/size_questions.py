"""Answers what a traced forward asked of sizes at other sizes, from the graph, without its data.

An example: the forward asked `if x.shape[0] > 3`, which was true. For a meta tensor of 2 rows in the place of x, `numbers` is
None: the graph is not for it.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from rekindle import _native
from rekindle.export.request import Call
from rekindle.export.torchscript import adapter
from rekindle.export.traced import Traced
from rekindle.functions.binding import bind
from rekindle.functions.calls import Call as FunctionCall
from rekindle.graphs.answers import numbers_of
from rekindle.miss.sized import LeftOpen


class SizeQuestions:
    """Holds the questions of one trace, if there are any."""

    def __init__(self, call: Call, traced: Traced, left: LeftOpen) -> None:
        self._call, self._traced = call, traced
        self.graph: bytes | None = None  # optimized
        graph = traced.graph
        if graph.answers is not None:
            self.graph = _native.build_joint(
                adapter.with_shapes(graph.answers, left.shapes), [False] * len(graph.used), left.sizes
            )
            self._session = _native.SizeQuestions(self.graph)

    def set_functions(self, functions: Sequence[FunctionCall]) -> None:
        """Lets the graph's autograd Functions return tensors of the sizes that these calls say."""
        if self.graph is not None:
            self._session.set_functions([bind(call, self._call.module) for call in functions])

    def numbers(self, arguments: Sequence[torch.Tensor]) -> list[int] | None:
        """Returns the numbers in the graph's result for meta tensors in the place of the arguments.

        None where a question has another answer than in the call: the graph is not for them.
        """
        if self.graph is None:
            return []
        expected = [guard.value for guard in self._traced.sizes.guards]
        every = [*arguments, *self._call.parameters.values(), *self._call.buffers.values()]
        return numbers_of(self._session, expected, [every[i] for i in self._traced.graph.used])
