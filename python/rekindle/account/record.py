"""Defines what rekindle.memory returns."""

from __future__ import annotations

import dataclasses
import os
from dataclasses import dataclass
from typing import Any

from rekindle.account.drawing import Drawing
from rekindle.account.sizes import size_text, table
from rekindle.account.subgraphs import Subgraph, subgraph_table
from rekindle.account.text_picture import draw_text
from rekindle.account.values import Budget, Phase, Saved, Uncounted, Value, saved_by_line
from rekindle.memory_plan import write_plan

_SHOWN = 12  # lines that save, in the table
_NAMED = 2  # values of each


def _named(saved: Saved) -> str:
    """Names the largest of the values that a line saves."""
    more = len(saved.values) - _NAMED
    return ", ".join(saved.values[:_NAMED]) + (f" and {more} more" if more > 0 else "")


@dataclass(frozen=True)
class MemoryAccount:
    """Says what memory one training step of a module takes, in bytes; for a call without gradients, what the forward takes.

    A figure that is not known is None, never 0; one that is known in part is the known part, and `at_least` names it. The step is
    one that begins without gradients, as after `optimizer.zero_grad()`. Printed, it is a table.

    model: the class of the module; for a part, its name too
    source: "graph", "parts" for a module of which only submodules run from graphs, or "eager"
    reason: why the module has no graph: reason code and message, as in rekindle.status; None if it has one
    trains: whether the call is recorded for a backward; None in eager
    parameters, gradients, buffers: what the module has now. Memory that several tensors share counts once.
    inputs: the tensors of the call
    optimizer_state: what the optimizer has now; None without an optimizer, or one that holds nothing yet
    results: what the call returns, of memory of its own
    gradients_made: what the backward makes
    saved: what the forward leaves for the backward, parameters and inputs not included; `values` has it one by one
    scratch: the most that one instruction needs beside its results
    constants: tensors that are part of the graph
    written: copies of the buffers and inputs that the forward writes in place
    arena: the one block in which all intermediates lie
    activations: the arena and the largest sum beside it of what is neither a result nor a gradient: what `memory_budget` is for
    budget: how that budget is kept; None without one
    live_peak: the largest sum of what is alive in the arena at one instruction
    forward, backward, optimizer: the three parts of the step; None where unknown, or where there is no such part
    values: every piece of memory that a step makes, in the order in which it is made
    uncounted: values that are in no figure: their sizes depend on data, or they are what PyTorch keeps of an operator for its
        gradient
    subgraphs: what the backward could compute again, by the ops that would run; that which frees the most first
    parts: accounts of the calls of submodules that run from graphs, in their order
    """

    model: str
    source: str
    reason: str | None
    trains: bool | None
    parameters: int
    gradients: int
    buffers: int
    inputs: int
    optimizer_state: int | None = None
    results: int | None = None
    gradients_made: int | None = None
    saved: int | None = None
    scratch: int | None = None
    constants: int | None = None
    written: int | None = None
    arena: int | None = None
    activations: int | None = None
    budget: Budget | None = None
    live_peak: int | None = None
    forward: Phase | None = None
    backward: Phase | None = None
    optimizer: Phase | None = None
    values: tuple[Value, ...] = ()
    uncounted: tuple[Uncounted, ...] = ()
    subgraphs: tuple[Subgraph, ...] = ()
    parts: tuple[MemoryAccount, ...] = ()

    @property
    def fragmentation(self) -> float | None:
        """Returns the arena over the largest sum of live bytes: 1.0 where no byte is lost; None where either is not known."""
        return self.arena / self.live_peak if self.arena and self.live_peak else None

    @property
    def at_least(self) -> frozenset[str]:
        """Returns the names of the fields to which uncounted values would be added."""
        uses = {value.use for value in self.uncounted}
        found = {"results"} if "result" in uses else set()
        found |= {"gradients_made"} if "gradient" in uses else set()
        return frozenset(found | ({"saved"} if any(value.saved for value in self.uncounted) else set()))

    @property
    def growth(self) -> int | None:
        """Returns by how many bytes a process grows in the forward and the backward of a step; None where something is uncounted.

        What operators allocate and free inside of themselves comes on top, such as what oneDNN's convolutions reorder.
        """
        if self.uncounted:
            return None
        phases = [phase for phase in (self.forward, self.backward) if phase is not None]
        return max(phase.total - phase.held for phase in phases) if phases else None

    @property
    def saved_by_line(self) -> list[Saved]:
        """Returns what each line of Python, or node where the graph has no lines, leaves for the backward; the largest first."""
        return saved_by_line(value for account in (self, *self.parts) for value in account.values)

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields, and fragmentation, growth and saved_by_line, as values that json.dumps takes."""
        derived = {
            "fragmentation": self.fragmentation,
            "at_least": sorted(self.at_least),
            "growth": self.growth,
            "saved_by_line": [dataclasses.asdict(saved) for saved in self.saved_by_line],
        }
        return dataclasses.asdict(self) | derived

    def text_picture(self, width: int = 72, height: int = 16) -> str:
        """Draws the arena over the step, in characters: time goes right, offsets go up. Of parts, one below the other.

        width, height: of a drawing, in characters, without its frame. Raises ValueError where there is no arena to draw.
        """
        return "\n\n".join(draw_text(drawing, width, height) for drawing in self._drawings())

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes a PNG: the arena over the step, a rectangle per value, and what is alive at its peak.

        Raises ImportError without matplotlib, ValueError where there is no arena to draw, and OSError.
        """
        from rekindle.account.picture import save_png  # only here is matplotlib needed

        save_png(self._drawings(), path)

    def save_plan(self, path: str | os.PathLike[str]) -> None:
        """Writes what is computed again now as a memory plan, for an editor and then for Options(memory_plan=path).

        Raises ValueError where no backward runs from a graph, and OSError.
        """
        if not self.trains:
            why = f"it runs in eager: {self.reason}" if self.source == "eager" else "the call is not recorded for a backward"
            raise ValueError(f"{self.model} has no memory plan; {why}")
        write_plan(path, self.model, [one.row() for one in self.subgraphs])

    def _drawings(self) -> list[Drawing]:
        drawings = [account._drawing() for account in (self, *self.parts) if account.arena and account.forward is not None]
        if not drawings:
            why = f"it runs in eager: {self.reason}" if self.reason else "no value of its graph lies in an arena"
            raise ValueError(f"{self.model} has no arena to draw; {why}")
        return drawings

    def _drawing(self) -> Drawing:
        assert self.arena is not None and self.forward is not None
        peaks = [phase for phase in (self.forward, self.backward) if phase is not None]
        at = max(peaks, key=lambda phase: phase.live).live_at
        return Drawing(
            self.model, self.arena, self.forward.instructions, sum(phase.instructions for phase in peaks), at, self.values
        )

    def __str__(self) -> str:
        return "\n".join(
            [
                *self._headlines(),
                *table(self._rows()),
                *self._kept(),
                *self._phases(),
                *self._lines(),
                *subgraph_table(self.subgraphs),
                *self._remarks(),
            ]
        )

    def _headlines(self) -> list[str]:
        what = {True: "a training step", False: "a forward without gradients", None: "a call in eager"}[self.trains]
        headline = f"memory of {what} of {self.model} (from: {self.source})"
        return [headline] + ([f"  runs in eager: {self.reason}"] if self.reason else [])

    def _rows(self) -> list[tuple[str, int | None, str]]:
        found: list[tuple[str, int | None, str]] = [
            ("parameters", self.parameters, ""),
            ("gradients", self.gradients, "that are there now"),
            ("buffers", self.buffers, ""),
            ("inputs", self.inputs, ""),
            (
                "optimizer's state",
                self.optimizer_state,
                "" if self.optimizer_state is not None else "none given, or none made yet",
            ),
        ]
        if self.source == "eager":
            return found

        def least(name: str) -> str:
            return "at least" if name in self.at_least and getattr(self, name) is not None else ""

        fragmentation = f"{self.fragmentation:.3f} x the largest sum" if self.fragmentation else ""
        found += [
            ("results", self.results, least("results")),
            ("gradients made", self.gradients_made, least("gradients_made")),
            ("constants", self.constants, ""),
            ("copies of what is written", self.written, ""),
            ("saved for the backward", self.saved, least("saved")),
            ("scratch", self.scratch, "the most of one instruction"),
            ("arena", self.arena, fragmentation),
            ("largest sum of live bytes", self.live_peak, "in the arena"),
            ("activations", self.activations, "the arena, and what operators allocate beside it"),
        ]
        return found

    def _kept(self) -> list[str]:
        if (of := self.budget) is None or self.activations is None:
            return []
        kept = "kept" if self.activations <= of.bytes else "not kept: the least that can be had is taken"
        again = f"{of.instructions} instructions run again, {of.share:.1%} of a step's estimated time"
        return [f"memory budget {size_text(of.bytes)}, {kept}; without it {size_text(of.without)}; {again}"]

    def _phases(self) -> list[str]:
        rows = [(name, phase) for name in ("forward", "backward", "optimizer") if (phase := getattr(self, name)) is not None]
        if not rows:
            return []
        lines = [
            "at the peak of" + (", at the least" if self.uncounted else ""),
            f"  {'':<9} {'held':>10} {'live':>10} {'outside':>10} {'in all':>10}",
        ]
        for name, phase in rows:
            sizes = (phase.held, phase.live, phase.outside, phase.total)
            lines.append(f"  {name:<9} " + " ".join(f"{size_text(size):>10}" for size in sizes))
        return lines

    def _lines(self) -> list[str]:
        found = self.saved_by_line
        if not found:
            return []
        lines = ["saved for the backward, by line"]
        lines += table([(one.where, one.bytes, _named(one)) for one in found[:_SHOWN]])
        rest = found[_SHOWN:]
        if rest:
            lines.append(f"  and {len(rest)} more lines, {size_text(sum(one.bytes for one in rest))}")
        return lines

    def _remarks(self) -> list[str]:
        lines = []
        if self.source == "parts":
            lines.append("what runs in eager between the parts is not counted; the parts:")
            lines += [f"  {size_text(part.arena or 0):>10} arena  {part.model}" for part in self.parts if part.arena is not None]
            lines += [f"  {'-':>10} eager  {part.model}: {part.reason}" for part in self.parts if part.arena is None]
        if self.uncounted:
            lines.append("in no figure, as their sizes depend on data, or PyTorch keeps them of an operator for its gradient:")
            lines += [f"  {what}" for what in self.uncounted]
        return lines
