"""Sums up what the backward of a step can compute again, by kind of subgraph.

An example: Subgraph("Linear+Tanh", count=24, recomputed=12, bytes=50331648, time_share=0.081, source="model.py:7 in forward"): at
24 places the backward reads a tanh of a linear layer, and at 12 of them it computes both again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from rekindle.account.sizes import size_text

_SHOWN = 8  # kinds, in the table
_WIDTH = 40  # of a kind, in the table


@dataclass(frozen=True)
class Subgraph:
    """Describes the places of a graph at which the same ops would run again for values that the backward reads.

    kind: these ops in their order, joined by "+"
    count: places
    recomputed: of these, how many the plan at hand computes again
    bytes: what all places together free if they are
    time_share: what that takes, as a share of a step's time; estimated. Of several graphs, the largest share of one.
    source: the line of Python of the first place; empty where the graph has none
    """

    kind: str
    count: int
    recomputed: int
    bytes: int
    time_share: float
    source: str

    @property
    def bytes_each(self) -> int:
        """Returns what a place frees, in the mean."""
        return self.bytes // self.count

    def row(self) -> dict[str, Any]:
        """Returns the line of a memory plan that says what is computed again now."""
        return {
            "subgraph": self.kind,
            "count": self.count,
            "recompute": self.recomputed,
            "bytes": self.bytes,
            "time_share": round(self.time_share, 6),
        }


def subgraphs_of(plan: Any) -> tuple[Subgraph, ...]:
    """Returns the kinds of a _native.MemoryAccount, that which frees the most first."""
    return tuple(Subgraph(of.kind, of.count, of.recomputed, of.bytes, of.share, of.source) for of in plan.subgraphs)


def summed_up(each: Iterable[Iterable[Subgraph]]) -> tuple[Subgraph, ...]:
    """Adds up the kinds of several graphs. Nothing says how the times of graphs compare."""
    sums: dict[str, Subgraph] = {}
    for one in (one for of_graph in each for one in of_graph):
        if (known := sums.get(one.kind)) is None:
            sums[one.kind] = one
        else:
            sums[one.kind] = replace(
                known,
                count=known.count + one.count,
                recomputed=known.recomputed + one.recomputed,
                bytes=known.bytes + one.bytes,
                time_share=max(known.time_share, one.time_share),
            )
    return tuple(sorted(sums.values(), key=lambda one: (-one.bytes, one.kind)))


def subgraph_table(found: tuple[Subgraph, ...]) -> list[str]:
    """Returns the lines of the account that list them; none where there are none."""
    if not found:
        return []
    shown = found[:_SHOWN]
    names = [one.kind if len(one.kind) <= _WIDTH else one.kind[: _WIDTH - 3] + "..." for one in shown]
    width = max(map(len, names))
    lines = [
        "what the backward can compute again, by the ops that run for it",
        f"  {'':<{width}} {'now':>5} {'of':>5} {'frees':>10} {'each':>10} {'time':>6}  the first",
    ]
    for name, one in zip(names, shown, strict=True):
        sizes = f"{size_text(one.bytes):>10} {size_text(one.bytes_each):>10}"
        lines.append(
            f"  {name:<{width}} {one.recomputed:>5} {one.count:>5} {sizes} {one.time_share:>6.1%}  {one.source}".rstrip()
        )
    if rest := found[_SHOWN:]:
        lines.append(f"  and {len(rest)} more kinds, {size_text(sum(one.bytes for one in rest))}")
    return lines
