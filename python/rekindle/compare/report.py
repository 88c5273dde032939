"""Reports what rekindle.verify finds: a row for each result, and all of them as a table."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Row:
    """Describes one result of both runs."""

    what: str  # names it
    kind: str  # "result", "gradient", "buffer" or "random"
    equal: bool
    difference: float = 0.0  # the largest absolute one
    scale: float = 0.0  # the largest magnitude in eager's


@dataclass
class Comparison:
    """Holds what rekindle.verify found. True when everything agrees; prints as a table."""

    source: str  # where the graph came from, or "eager" when the call has none: see `status(model).bypass` for why
    rows: list[Row] = field(default_factory=list)

    def __bool__(self) -> bool:
        return all(row.equal for row in self.rows)

    @property
    def differences(self) -> list[Row]:
        """Returns the rows that do not agree."""
        return [row for row in self.rows if not row.equal]

    def __str__(self) -> str:
        width = max((len(row.what) for row in self.rows), default=0)
        lines = [
            f"{'' if row.equal else 'DIFFERS':<8}{row.kind:<9}{row.what:<{width}}  {row.difference:9.2e} of {row.scale:9.2e}"
            for row in self.rows
        ]
        verdict = "agrees with eager" if self else f"{len(self.differences)} of {len(self.rows)} results differ from eager"
        return "\n".join([*lines, f"{verdict} (graph: {self.source})"])
