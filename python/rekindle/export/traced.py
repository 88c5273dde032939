"""Holds what an export gives: the first record of a miss. Those that follow are made from it, and nothing changes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from rekindle.export.unchecked import Allowed
from rekindle.process.random_states import RandomStates
from rekindle.sizes.shapes import Place


@dataclass(frozen=True)
class SizeGuard:
    """Holds a question that a forward asked about sizes."""

    where: str  # `file.py:12 in forward`
    what: str  # it asked
    value: int  # the answer


@dataclass(frozen=True)
class TracedGraph:
    """Holds the forward as a graph, as the exporter wrote it."""

    model: bytes = field(repr=False)  # ONNX
    used: list[int]  # its inputs as positions among a call's tensors; those that nothing reads are left out
    # ONNX of the graph that answers the guards as one integer vector, from the same inputs, and then gives the result's numbers;
    # None without both.
    answers: bytes | None = field(repr=False)
    functions: list[dict[str, Any]]  # the custom autograd Functions that it calls, by number (see functions/calls.py)
    function_sizes: list[Any] = field(repr=False)  # of each of these calls, see functions/result_sizes.py


@dataclass(frozen=True)
class Result:
    """Holds what the forward returned."""

    structure: Any  # how it is rebuilt from the outputs (see results/contract.py)
    # The distinct output tensors that eager computed during the export; then those of `Effects`. With their autograd graph,
    # unless that was let go.
    outputs: list[torch.Tensor] = field(repr=False)
    numbers: list[int]  # those in it that depend on sizes
    objects: list[Any] = field(repr=False)  # those in it that have to be new ones at each call


@dataclass(frozen=True)
class Effects:
    """Says which outputs of the graph are none of the forward's result."""

    kept: int  # how many are there only to keep what nothing reads, or answer questions about data: the last but for `writes`
    writes: list[int]  # the tensors of the call, by position, whose new contents are the last outputs
    attributes: list[tuple[str, str]]  # that it sets, as (module, name): see WithAttributes of results/structure.py


@dataclass(frozen=True)
class AskedSizes:
    """Holds what the forward asked of sizes."""

    fixed: dict[Place, str]  # dimensions of arguments for whose size the graph is only, with the line of code that asked for it
    guards: list[SizeGuard]  # other questions
    strides: str | None  # the place that asks for strides, where an argument is not contiguous
    # Questions whose answers depend on data, so that they are known when the graph has run: one vector before the outputs of
    # `Effects.writes`, if there are any; some are about the truth of a tensor (trace/assumptions.py).
    data_guards: list[SizeGuard]
    sized_by_data: bool  # whether sizes depend on data


@dataclass(frozen=True)
class EagerRun:
    """Holds what eager ran with during the export."""

    given: list[torch.Tensor] = field(repr=False)  # the call's private tensors, as they were before
    random_states: tuple[RandomStates, RandomStates] = field(repr=False)  # before and after
    autocast_dtypes: frozenset[torch.dtype]  # those in which autocast computed some of it
    allowed: Allowed  # what the forward may be tried on besides the call


@dataclass(frozen=True)
class Traced:
    """Holds what an export gives."""

    graph: TracedGraph
    result: Result
    effects: Effects
    sizes: AskedSizes
    run: EagerRun

    @property
    def inputs(self) -> list[torch.Tensor]:
        """Returns what the graph is run with, in order."""
        return [self.run.given[i] for i in self.graph.used]

    def without_autograd_graph(self) -> Traced:
        """Returns the same without what eager has saved for a backward, which is as much as a training step holds at its peak."""
        return replace(self, result=replace(self.result, outputs=without_autograd_graph(self.result.outputs)))


def without_autograd_graph(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Returns tensors with the same memory and the same need of gradients that no backward leads from."""
    return [tensor.detach().requires_grad_(tensor.requires_grad) for tensor in tensors]
