"""Draws arenas as a PNG: offsets over the step, a rectangle per value, and beside it what is alive at the peak."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from rekindle.account.drawing import Drawing
from rekindle.account.sizes import size_text

try:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.collections import PatchCollection
    from matplotlib.figure import Figure
    from matplotlib.patches import Patch, Rectangle
except ImportError as error:
    raise ImportError(
        "pictures of memory need matplotlib, which is not installed; install it (pip install matplotlib), "
        "or print MemoryAccount.text_picture()"
    ) from error

# Okabe and Ito's palette, told apart by every kind of colour vision.
_COLORS = {"saved": "#0072B2", "intermediate": "#E69F00", "scratch": "#CC79A7"}
_INK = "#333333"
_NAMED = 20  # values at the peak that have a bar of their own
_LONGEST = 48  # characters of a name


def save_png(drawings: Sequence[Drawing], path: str | os.PathLike[str]) -> None:
    """Writes the pictures of several arenas, one below the other."""
    figure = Figure(figsize=(14, 5.5 * len(drawings)), layout="constrained")
    FigureCanvasAgg(figure)
    rows = figure.subplots(len(drawings), 2, squeeze=False, width_ratios=(3, 2))
    for drawing, (over_time, at_peak) in zip(drawings, rows, strict=True):
        _draw_arena(over_time, drawing)
        _draw_peak(at_peak, drawing)
    figure.savefig(path, format="png", dpi=120)


def _draw_arena(axes: Any, drawing: Drawing) -> None:
    for use, color in _COLORS.items():
        boxes = [
            Rectangle((value.first, offset), value.last + 1 - value.first, value.bytes)
            for offset, value in drawing.placed
            if value.use == use
        ]
        axes.add_collection(PatchCollection(boxes, facecolor=color, edgecolor="white", linewidth=0.3))
    axes.set_xlim(0, drawing.instructions)
    axes.set_ylim(0, drawing.arena)
    axes.axvline(drawing.forward, color=_INK, linewidth=1, linestyle=":")
    axes.axvline(drawing.peak_at + 0.5, color=_INK, linewidth=1)
    axes.set_yticks([drawing.arena * i / 4 for i in range(5)], [size_text(drawing.arena * i // 4) for i in range(5)])
    axes.set_ylabel("offset in the arena")
    axes.set_xlabel("instruction; the dotted line is where the backward begins, the other one the peak")
    axes.set_title(f"{drawing.title}: arena of {size_text(drawing.arena)}", loc="left")
    axes.legend(handles=[Patch(color=color, label=use) for use, color in _COLORS.items()], loc="upper right")


def _draw_peak(axes: Any, drawing: Drawing) -> None:
    alive = drawing.at_peak
    bars = [(f"{value.name} ({value.where})", value.bytes, _COLORS[value.use]) for value in alive[:_NAMED]]
    if rest := alive[_NAMED:]:
        bars.append((f"{len(rest)} more values", sum(value.bytes for value in rest), _INK))
    places = range(len(bars))
    axes.barh(places, [size for _, size, _ in bars], color=[color for _, _, color in bars])
    axes.set_yticks(places, [name if len(name) <= _LONGEST else f"{name[: _LONGEST - 3]}..." for name, _, _ in bars], fontsize=8)
    axes.invert_yaxis()
    axes.bar_label(axes.containers[0], [size_text(size) for _, size, _ in bars], padding=3, fontsize=8)
    axes.set_xticks([])
    axes.spines[["top", "right", "bottom"]].set_visible(False)
    axes.set_title(f"alive at the peak: {size_text(sum(value.bytes for value in alive))}", loc="left")
