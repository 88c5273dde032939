"""Holds what one node of a graph, or one operator in eager, takes of a training step.

An example: NodeTime("forward", "Linear", "h1", "model.py:12 in forward", calls=1.0, seconds=0.002, bytes=1048576).
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class NodeTime:
    """Says what one node of a graph, or one operator in eager, takes of a step.

    phase: "forward" or "backward"
    op: the op type of the node, such as "Linear"; in eager the operator, such as "aten::mm"
    value: the name in the graph of what the node makes first; empty in eager
    source: the line of Python that the node is from, as "model.py:31 in forward"; empty where it is not known, and in eager
    calls: in one step, the mean over the steps
    seconds: in one step, the median over the steps; on CUDA what its kernels take, on the CPU what it takes there
    bytes: of all that it makes, a step's; None where that is not known, and in eager
    """

    phase: str
    op: str
    value: str
    source: str
    calls: float
    seconds: float
    bytes: int | None = None

    @property
    def in_graph(self) -> bool:
        """Tells whether it is a node of a graph."""
        return "::" not in self.op

    @property
    def where(self) -> str:
        """Names the line of Python or, where there is none, the node or the operator."""
        return self.source or (f"{self.op} {self.value}".strip() if self.in_graph else f"{self.op} in eager")
