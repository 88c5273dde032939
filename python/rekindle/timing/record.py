"""Defines what rekindle.profile returns."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from rekindle.account.record import MemoryAccount
from rekindle.account.sizes import size_text
from rekindle.timing.line_time import LineTime, lines_of
from rekindle.timing.node_time import NodeTime
from rekindle.timing.trace import write_trace

_SHOWN = 20  # lines of the table


@dataclass(frozen=True)
class Profile:
    """Says where the time of one training step of a module goes; for a call without gradients, that of its forward.

    Printed, it is a table of the lines that take most.

    model: the class of the module
    source: "graph", "parts" for a module of which only submodules run from graphs, or "eager"
    reason: why the module has no graph; None if it has one
    device: where the module's tensors are, as "cuda:0"
    steps: how many steps each figure is the median of
    forward, backward: seconds, of steps that nothing recorded; `backward` is None where no result has a gradient
    nodes: the nodes of graphs and the operators in eager, in the order in which they run, of steps that torch.profiler recorded,
        which takes time of its own
    memory: what the step takes of memory, and its arena's picture
    """

    model: str
    source: str
    reason: str | None
    device: str
    steps: int
    forward: float
    backward: float | None
    nodes: tuple[NodeTime, ...]
    memory: MemoryAccount
    _events: Sequence[Any] = field(default=(), repr=False, compare=False)
    _began: int = 0  # nanoseconds since 1970 at which the events begin

    @property
    def seconds(self) -> float:
        """Returns the time of a step, without the optimizer's."""
        return self.forward + (self.backward or 0.0)

    @property
    def by_line(self) -> list[LineTime]:
        """Returns what each line of Python takes, the largest first; what runs in eager by operator."""
        return lines_of(self.nodes)

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields and by_line as values that json.dumps takes."""
        plain = {one.name: getattr(self, one.name) for one in dataclasses.fields(self) if not one.name.startswith("_")}
        return plain | {
            "nodes": [dataclasses.asdict(node) for node in self.nodes],
            "memory": self.memory.to_dict(),
            "by_line": [dataclasses.asdict(line) for line in self.by_line],
        }

    def save_trace(self, path: str | os.PathLike[str]) -> None:
        """Writes what was recorded, in Chrome's trace format, which chrome://tracing and https://ui.perfetto.dev show.

        The process number is this process's rank, so that `rekindle profile merge` puts ranks side by side. Raises OSError.
        """
        write_trace(path, self.model, self._events, self._began)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a PNG of the lines that take most. Raises ImportError without matplotlib, and OSError."""
        from rekindle.timing.picture import save_png  # only here is matplotlib needed

        title = f"{self.model} (from: {self.source}): {_ms(self.seconds)} ms on {self.device}"
        save_png(title, self.by_line, path)

    def __str__(self) -> str:
        what = "a forward without gradients" if self.backward is None else "a training step"
        title = f"profile of {what} of {self.model} (from: {self.source}), median of {self.steps} on {self.device}"
        lines = [title] + ([f"  runs in eager: {self.reason}"] if self.reason else [])
        lines.append(f"  forward {_ms(self.forward)} ms" + (f", backward {_ms(self.backward)} ms" if self.backward else ""))
        of_graphs = sum(node.seconds for node in self.nodes if node.in_graph)
        recorded = sum(node.seconds for node in self.nodes)
        if recorded:
            lines.append(f"  in graphs {of_graphs / recorded:.1%} of what was recorded")
        return "\n".join([*lines, *self._table(recorded)])

    def _table(self, recorded: float) -> list[str]:
        found = self.by_line
        lines = [f"  {'forward':>9} {'backward':>9} {'share':>6} {'calls':>6} {'makes':>10}  line: ops   (ms of a step)"]
        for line in found[:_SHOWN]:
            share = f"{line.seconds / recorded:.1%}" if recorded else "-"
            size = "-" if line.bytes is None else size_text(line.bytes)
            figures = f"{_ms(line.forward):>9} {_ms(line.backward):>9} {share:>6} {line.calls:>6.3g} {size:>10}"
            lines.append(f"  {figures}  {line.title(3)}")
        if rest := found[_SHOWN:]:
            lines.append(f"  and {len(rest)} more, {_ms(sum(line.seconds for line in rest))} ms")
        return lines


def _ms(seconds: float) -> str:
    return f"{1e3 * seconds:.3f}"
