"""Draws the demo's picture: the loss curves, how far they are from eager's, and where each start's time went."""

import math
from pathlib import Path

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
from demo_table import startup_parts
from matplotlib.axes import Axes
from trial_process import Measurement

# Okabe and Ito's palette, told apart by every kind of colour vision; widths and dashes differ as well,
# because curves that agree lie on each other.
_CURVES = [
    {"color": "#56B4E9", "linewidth": 6, "alpha": 0.55},
    {"color": "#D55E00", "linewidth": 2.2},
    {"color": "#000000", "linewidth": 1.6, "linestyle": (0, (1, 2.5))},
    {"color": "#CC79A7", "linewidth": 1.4, "linestyle": "--"},
    {"color": "#009E73", "linewidth": 1.4, "linestyle": "-."},
]
# In the order of startup_parts.
_PARTS = ["#DDDDDD", "#999999", "#F0E442", "#D55E00", "#E69F00", "#CC79A7", "#009E73", "#0072B2"]
_INK = "#333333"
_FLOOR = 1e-9  # where a difference of exactly zero is drawn on the logarithmic axis

STYLE = {
    "font.size": 11,
    "axes.titlesize": 12.5,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": _INK,
    "axes.labelcolor": _INK,
    "axes.axisbelow": True,
    "text.color": _INK,
    "xtick.color": _INK,
    "ytick.color": _INK,
    "grid.color": "#E6E6E6",
    "legend.frameon": False,
}


def _draw_losses(axes: Axes, measurements: list[Measurement]) -> None:
    for measurement, style in zip(measurements, _CURVES, strict=False):
        steps = range(1, len(measurement.losses) + 1)
        axes.plot(steps, measurement.losses, label=measurement.trial.label, **style)
    axes.set_title("Training loss")
    axes.set_ylabel("cross entropy, nats per token")
    axes.grid(axis="y")
    axes.legend(handlelength=3)


def _draw_differences(axes: Axes, eager: Measurement, measurements: list[Measurement]) -> None:
    highest = 0.0
    for measurement, style in zip(measurements, _CURVES, strict=False):
        if measurement is eager:
            continue
        pairs = zip(measurement.losses, eager.losses, strict=True)
        differences = [max(abs(loss - expected) / abs(expected), _FLOOR) for loss, expected in pairs]
        highest = max([highest, *filter(math.isfinite, differences)])
        axes.plot(range(1, len(differences) + 1), differences, **style)
    axes.set_yscale("log")
    ceiling = max(1e-5, 3 * highest)
    axes.set_ylim(_FLOOR / 2, ceiling)
    ticks = [_FLOOR, *(tick for tick in (1e-7, 1e-5, 1e-3, 1e-1) if tick <= ceiling)]
    axes.set_yticks(ticks, ["none", *(f"$10^{{{math.log10(tick):.0f}}}$" for tick in ticks[1:])])
    axes.minorticks_off()
    axes.set_title("Relative difference from eager's loss")
    axes.grid(axis="y")


def _draw_startup(axes: Axes, measurements: list[Measurement]) -> None:
    rows = range(len(measurements))
    parts = [startup_parts(m) for m in measurements]
    left = [0.0] * len(measurements)
    for name, color in zip(parts[0], _PARTS, strict=True):
        widths = [p[name] for p in parts]
        if not any(widths):
            continue
        axes.barh(rows, widths, left=left, height=0.6, color=color, edgecolor="white", linewidth=0.8, label=name)
        left = [start + width for start, width in zip(left, widths, strict=True)]
    for row, total in zip(rows, left, strict=True):
        axes.text(total, row, f"  {total:.2f} s", va="center", fontweight="bold")
    axes.set_yticks(rows, [m.trial.label.replace(", ", ",\n") for m in measurements])
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlim(0, 1.15 * max(left))
    axes.set_title("From the process's start to the end of the first step")
    axes.set_xlabel("seconds")
    axes.grid(axis="x")
    axes.legend(ncols=4, loc="upper center", bbox_to_anchor=(0.45, -0.12), handlelength=1.1, columnspacing=1.4)


def draw(measurements: list[Measurement], path: Path) -> None:
    """Draws the picture and writes it to `path` as a PNG."""
    eager = next((m for m in measurements if m.trial.variant == "eager"), None)
    compares = eager is not None and len(measurements) > 1
    with plt.rc_context(STYLE):
        figure = plt.figure(figsize=(14, 6.4), layout="constrained")
        left, right = figure.add_gridspec(1, 2, width_ratios=[1.15, 1], wspace=0.08)
        curves = left.subgridspec(2 if compares else 1, 1, height_ratios=[2.6, 1] if compares else None)
        losses = figure.add_subplot(curves[0])
        _draw_losses(losses, measurements)
        bottom = losses
        if compares:
            losses.tick_params(labelbottom=False)
            bottom = figure.add_subplot(curves[1], sharex=losses)
            _draw_differences(bottom, eager, measurements)
        bottom.set_xlabel("step")
        _draw_startup(figure.add_subplot(right), measurements)
        trial = measurements[0].trial
        figure.suptitle(f"{trial.model}: {trial.steps} training steps, dropout {trial.dropout:g}", fontsize=14)
        figure.savefig(path, dpi=130)
        plt.close(figure)
