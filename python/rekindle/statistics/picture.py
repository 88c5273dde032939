"""Draws where two runs differ, as a PNG: a row per tensor, a column per step, in the colour of how far the norms are apart."""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any

import numpy

try:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
except ImportError as error:
    raise ImportError(
        "pictures of runs need matplotlib, which is not installed; install it (pip install matplotlib), or use rekindle diff"
    ) from error

# Of one step: (phase, name, output, call).
Row = tuple[str, str, int | None, int]

_ORDER = {"parameter": 0, "forward": 1, "backward": 2, "gradient": 2}
_SMALLEST = 1e-9  # relative difference that has the darkest colour, as equal norms have
_MOST_NAMES = 60


def norms_apart(a: pathlib.Path, b: pathlib.Path) -> tuple[list[Row], list[int], numpy.ndarray[Any, Any]]:
    """Returns the tensors in the order of execution, the steps of both files, and how far the norms are apart.

    That is the difference over the larger norm: NaN where a run lacks the tensor, infinite where one norm is.
    """
    one, other = _norms(a), _norms(b)
    steps = sorted({step for step, _ in one} & {step for step, _ in other})
    rows = sorted(dict.fromkeys(row for _, row in one), key=lambda row: _ORDER[row[0]])
    return rows, steps, numpy.array([[_apart(one.get((s, row)), other.get((s, row))) for s in steps] for row in rows], ndmin=2)


def save_png(a: str | os.PathLike[str], b: str | os.PathLike[str], path: str | os.PathLike[str]) -> None:
    """Writes the picture of two files `rank_<n>.jsonl`. Raises ValueError if they have no step in common."""
    rows, steps, apart = norms_apart(pathlib.Path(a), pathlib.Path(b))
    if not rows or not steps:
        raise ValueError(f"{a} and {b} have no step in common; are they runs of one model?")
    figure = Figure(figsize=(4 + min(len(steps), 60) * 0.2, 2 + min(len(rows), _MOST_NAMES) * 0.18), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    shown = numpy.log10(numpy.clip(apart, _SMALLEST, 1.0))
    image = axes.imshow(shown, aspect="auto", cmap="cividis", interpolation="nearest", vmin=numpy.log10(_SMALLEST), vmax=0)
    stride = -(-len(rows) // _MOST_NAMES)
    axes.set_yticks(range(0, len(rows), stride), [f"{phase} {name}" for phase, name, *_ in rows[::stride]], fontsize=6)
    axes.set_xticks(range(0, len(steps), -(-len(steps) // 12)), steps[:: -(-len(steps) // 12)])
    axes.set_xlabel("step")
    axes.set_title("difference of norms over the larger one", loc="left", fontsize=9)
    figure.colorbar(image, label="power of ten")
    figure.savefig(path, format="png", dpi=120)


def _norms(file: pathlib.Path) -> dict[tuple[int, Row], float]:
    found = {}
    for line in file.read_text(encoding="utf-8").splitlines():
        record = json.loads(line)
        if record["kind"] == "tensor":
            row = record["phase"], record["name"], record["output"], record["call"]
            found[record["step"], row] = numpy.inf if record["norm"] is None else record["norm"]
    return found


def _apart(a: float | None, b: float | None) -> float:
    if a is None or b is None:
        return numpy.nan
    if a == b:
        return 0.0
    return abs(a - b) / max(a, b) if numpy.isfinite([a, b]).all() else numpy.inf
