"""Sums up nodes by the line of Python that they are from, and what runs in eager by operator."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from rekindle.timing.node_time import NodeTime


@dataclass(frozen=True)
class LineTime:
    """Sums up what one line of Python, or what has no line, takes of a step: seconds, calls of nodes, bytes that they make."""

    where: str
    ops: tuple[str, ...]  # that which takes most comes first
    forward: float
    backward: float
    calls: float
    bytes: int | None

    @property
    def seconds(self) -> float:
        """Returns the time of forward and backward."""
        return self.forward + self.backward

    def title(self, ops: int) -> str:
        """Names the line and so many of its ops, where the line does not begin with one."""
        return self.where if self.where.startswith(self.ops[0]) else f"{self.where}: {', '.join(self.ops[:ops])}"


def lines_of(nodes: Iterable[NodeTime]) -> list[LineTime]:
    """Returns what each line takes, the largest first."""
    groups: dict[str, list[NodeTime]] = defaultdict(list)
    for node in sorted(nodes, key=lambda node: -node.seconds):
        groups[node.where].append(node)
    return sorted((_of_line(where, nodes) for where, nodes in groups.items()), key=lambda line: -line.seconds)


def _of_line(where: str, nodes: Sequence[NodeTime]) -> LineTime:
    """Sums up nodes, which come with the largest first."""
    sizes = [node.bytes for node in nodes if node.bytes is not None]
    return LineTime(
        where,
        tuple(dict.fromkeys(node.op for node in nodes)),
        sum(node.seconds for node in nodes if node.phase == "forward"),
        sum(node.seconds for node in nodes if node.phase == "backward"),
        sum(node.calls for node in nodes),
        sum(sizes) if sizes else None,
    )
