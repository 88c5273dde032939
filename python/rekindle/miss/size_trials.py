"""What was found about the sizes that an export leaves open, and the calls at other sizes that it is compared with."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from rekindle.export.request import SizeGuard
from rekindle.miss.perturbation import SecondCall
from rekindle.sizes.shapes import Shapes


@dataclass
class Trials:
    """What a graph with open sizes is tried on.

    shapes: those that the entry is for. exact: those of the call itself. calls: of eager, at other sizes where symbols are
    left, to compare with. answers: the graph of Exported.answers, optimized. closed: symbol -> why it is left no
    more. tied: those closed for what was found about each of them.
    """

    shapes: Shapes
    exact: Shapes
    calls: list[SecondCall]
    answers: bytes | None
    sizes: dict[str, int]
    guards: list[SizeGuard]
    exported_sizes: list[list[int]]
    numbers: list[int]
    closed: dict[str, str] = field(default_factory=dict)
    tied: list[str] = field(default_factory=list)
    first: Shapes | None = None

    def close(self, why: str, symbols: Iterable[str] | None = None) -> None:
        """Fix symbols, or all, at their present sizes."""
        names = list(self.shapes.symbols if symbols is None else symbols)
        self.closed.update(dict.fromkeys(names, why))
        self.tied += names if symbols is not None else []
        self.shapes = self.shapes.fixed({name: self.sizes[name] for name in names})
        if not self.shapes.symbols:
            self.shapes = self.exact

    def merge(self, names: Sequence[str]) -> None:
        """Make one symbol of several."""
        assert self.first is not None
        self.shapes, self.first = self.shapes.merged(names), self.first.merged(names)

    def coinciding(self) -> list[list[str]]:
        """Symbols that have one size at the export."""
        return self.shapes.coinciding(self.sizes)

    def contract(self) -> dict[str, Any]:
        """What a hit needs to know, as JSON. sizes: of the arguments at the export, at which no question needs to be asked.
        numbers: in the result, at these sizes. fixed: [text of the dimension's places, why] for what is no symbol any more."""
        return {
            "sizes": self.exported_sizes,
            "guards": [[guard.where, guard.what, guard.value] for guard in self.guards],
            "numbers": self.numbers,
            "fixed": [[self._places(name), why] for name, why in self.closed.items()],
        }

    def observations(self) -> list[list[str | None]]:
        """What has to hold of the sizes of a call."""
        asked = dict.fromkeys((guard.where, guard.what) for guard in self.guards) if self.shapes.symbols else {}
        return [*self.shapes.observations(), *(["size", where, what, "so"] for where, what in asked)]

    def _places(self, name: str) -> str:
        assert self.first is not None
        if name == "*":
            return "all"
        return ", ".join(f"argument {i} dim {axis}" for i, axis in self.first.places(name))
