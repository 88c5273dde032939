"""rekindle.verify(model, *args, **kwargs): one call in eager and one through the graph, compared."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from rekindle.module import Module, status, unwrap


@dataclass
class Row:
    """One result of both runs. `difference`: the largest absolute one; `scale`: the largest magnitude in eager's."""

    what: str
    kind: str
    equal: bool
    difference: float = 0.0
    scale: float = 0.0


@dataclass
class Comparison:
    """What rekindle.verify found. True when everything agrees; prints as a table.

    source: where the graph came from, or "eager" when the call has none: see `status(model).bypass` for why.
    """

    source: str
    rows: list[Row] = field(default_factory=list)

    def __bool__(self) -> bool:
        return all(row.equal for row in self.rows)

    @property
    def differences(self) -> list[Row]:
        """The rows that do not agree."""
        return [row for row in self.rows if not row.equal]

    def __str__(self) -> str:
        width = max((len(row.what) for row in self.rows), default=0)
        lines = [
            f"{'' if row.equal else 'DIFFERS':<8}{row.kind:<9}{row.what:<{width}}  {row.difference:9.2e} of {row.scale:9.2e}"
            for row in self.rows
        ]
        verdict = "agrees with eager" if self else f"{len(self.differences)} of {len(self.rows)} results differ from eager"
        return "\n".join([*lines, f"{verdict} (graph: {self.source})"])


def verify(model: Module, *args: Any, **kwargs: Any) -> Comparison:
    """Compare `model(*args, **kwargs)` with the same call of the module in eager.

    Compared are the results and their strides, the gradients of every parameter and of every floating-point input for
    random cotangents, the buffers and the state of the random generators after the call: each on its own scale, as a new graph
    is before it is used. What is farther from eager's than usual has to be explained by eager's own rounding, for which the
    module runs some times more. Parameters, `.grad`, buffers, the inputs and the random states are afterwards what they were
    before; what else the forward changes is changed once for each run. Raises TypeError for a module that is not wrapped, and
    what the call raises.
    """
    if not isinstance(model, Module):
        raise TypeError(f"rekindle.verify takes a rekindle.Module, not a {type(model).__name__}")
    from rekindle.compared_runs import compared_runs  # with what else only exports and comparisons need

    module = unwrap(model)
    rows = compared_runs(model, module, args, kwargs)
    return Comparison(status(model).source, rows)
