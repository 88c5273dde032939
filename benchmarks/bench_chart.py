"""Draws the picture of a run of the benchmark: per model, where each start went, and the parts of a step."""

import statistics
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from demo_chart import STYLE
from figures import PARTS, STARTUP, by_cell, values
from matplotlib.axes import Axes
from subjects import SUBJECTS
from targets import Round

_STARTS = dict(zip(STARTUP, plt.get_cmap("tab20").colors, strict=False))
_STEPS = dict(zip(PARTS, ("#56B4E9", "#0072B2", "#999999"), strict=True))


def _bars(axes: Axes, rounds: list[Round], group: str, colors: dict[str, Any], factor: float) -> list[str]:
    """Draws a bar of parts per subject that has them, and its sum; returns the subjects."""
    names = [name for name in SUBJECTS if values(rounds, name, group)]
    left = [0.0] * len(names)
    for part, color in colors.items():
        found = [[figure.get(part, 0.0) for figure in values(rounds, name, group)] for name in names]
        widths = [factor * statistics.median(numbers) for numbers in found]
        if any(widths):
            axes.barh(names, widths, left=left, height=0.65, color=color, label=part)
            left = [start + width for start, width in zip(left, widths, strict=True)]
    for row, total in enumerate(left):
        axes.text(total, row, f"  {total:.3g}", va="center", fontsize=9)
    axes.set_xlim(0, 1.15 * max(left, default=1.0) or 1.0)
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.grid(axis="x")
    return names


def draw(result: dict[str, Any], path: Path) -> None:
    """Draws the picture and writes it to `path` as a PNG. Raises ValueError where a run has no figures."""
    cells = by_cell(result["records"])
    if not cells:
        raise ValueError("a run without figures has no picture: see what the report says is not available")
    with plt.rc_context(STYLE):
        figure, grid = plt.subplots(len(cells), 2, figsize=(15, 4.2 * len(cells)), layout="constrained", squeeze=False)
        for ((model, threads), rounds), (start, step) in zip(cells.items(), grid, strict=True):
            _bars(start, rounds, "startup", _STARTS, 1)
            start.set_title(f"{model}, threads: {threads}: process start to first step, s")
            names = _bars(step, rounds, "parts", _STEPS, 1000)
            step.set_title("a step, ms")
            if "floor" in names:
                floor = 1000 * statistics.median(values(rounds, "floor", "step_seconds"))
                step.axvline(floor, color="#D55E00", linestyle="--", linewidth=1.2)
        for axes in grid[-1]:
            axes.legend(ncols=4, loc="upper center", bbox_to_anchor=(0.45, -0.1), handlelength=1.1)
        figure.savefig(path, dpi=110)
        plt.close(figure)
