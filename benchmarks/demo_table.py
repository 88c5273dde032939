"""Makes the demo's table: one column per run, one row per measured thing, and where the first step's time went."""

from collections.abc import Callable

from trial_process import PHASES, Measurement

_NONE = "-"


def startup_parts(measurement: Measurement) -> dict[str, float]:
    """Returns the seconds of the parts of a start, in order; they sum up to `start_seconds`."""
    phases = measurement.status["phases"] if measurement.status else {}
    parts = {
        "imports, data": measurement.start_seconds - measurement.first_step_seconds,
        "model, optimizer": measurement.first_step["construct"] + measurement.first_step["wrap"],
    }
    parts |= {name: phases.get(phase, 0.0) for phase, name in PHASES.items()}
    parts["first run"] = measurement.start_seconds - sum(parts.values())
    return parts


def _seconds(value: float) -> str:
    return f"{value:.2f}" if value > 0 else _NONE


def table(measurements: list[Measurement]) -> str:
    """Returns the table as text."""
    parts = [startup_parts(m) for m in measurements]
    rows: list[tuple[str, list[str]]] = [("", [m.trial.label for m in measurements])]

    def row(name: str, cell: Callable[[Measurement], str]) -> None:
        rows.append((name, [cell(m) for m in measurements]))

    row("graph came from", lambda m: m.status["source"] if m.status else _NONE)
    row("time to first step, s", lambda m: f"{m.first_step_seconds:.2f}")
    for name in list(parts[0])[1:]:
        rows.append((f"  {name}", [_seconds(p[name]) for p in parts]))
    row("  with the process's start, s", lambda m: f"{m.start_seconds:.2f}")
    row("step, median, ms", lambda m: f"{1000 * m.step_seconds:.1f}")
    row("peak memory, MiB", lambda m: f"{m.peak_mib:.0f}")
    row("  growth since the imports", lambda m: f"{m.peak_growth_mib:.0f}")
    row("first loss", lambda m: f"{m.losses[0]:.6f}")
    row("last loss", lambda m: f"{m.losses[-1]:.6f}")

    name_width = max(len(name) for name, _ in rows)
    widths = [max(len(cells[i]) for _, cells in rows) for i in range(len(measurements))]
    lines = [
        f"{name:{name_width}}  " + "  ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        for name, cells in rows
    ]
    lines.insert(1, "-" * len(lines[0]))
    return "\n".join(lines)
