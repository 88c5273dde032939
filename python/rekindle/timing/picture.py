"""Draws the lines of Python that take most of a step, forward and backward, as a PNG."""

from __future__ import annotations

import os
from collections.abc import Sequence

from rekindle.timing.line_time import LineTime

try:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
except ImportError as error:
    raise ImportError(
        "pictures of profiles need matplotlib, which is not installed; install it (pip install matplotlib), or print the profile"
    ) from error

# Of Okabe and Ito's palette, told apart by every kind of colour vision.
_COLORS = {"forward": "#0072B2", "backward": "#E69F00"}
_NAMED = 25  # lines that have a bar of their own
_LONGEST = 64  # characters of a name


def save_png(title: str, lines: Sequence[LineTime], path: str | os.PathLike[str]) -> None:
    """Writes a bar per line, the first on top."""
    lines = lines[:_NAMED]
    names = [line.title(2) for line in lines]
    figure = Figure(figsize=(12, 1.5 + 0.3 * len(lines)), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots()
    forward = [1e3 * line.forward for line in lines]
    axes.barh(range(len(lines)), forward, color=_COLORS["forward"], label="forward")
    backward = [1e3 * line.backward for line in lines]
    axes.barh(range(len(lines)), backward, left=forward, color=_COLORS["backward"], label="backward")
    axes.set_yticks(
        range(len(lines)), [name if len(name) <= _LONGEST else f"{name[: _LONGEST - 3]}..." for name in names], fontsize=8
    )
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds of a step")
    axes.set_title(title, loc="left")
    axes.legend(loc="lower right")
    figure.savefig(path, format="png", dpi=120)
