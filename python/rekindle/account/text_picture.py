"""Draws an arena for terminals: a column is a time in the step, a row a range of offsets, a letter what is there.

An example, of 8 columns and 2 rows, in which the forward saves one value and the backward needs another beside it:

    |    ii  |
    |ssssssss|
"""

from __future__ import annotations

from rekindle.account.drawing import Drawing
from rekindle.account.sizes import size_text

_LETTERS = {"saved": "s", "intermediate": "i", "scratch": "x"}
_LARGEST = 8  # values that are named


def draw_text(drawing: Drawing, width: int, height: int) -> str:
    """Returns the picture, with what is alive at the peak below. Raises ValueError for a size below 1."""
    if width < 1 or height < 1:
        raise ValueError(f"a picture of {width} x {height} characters has no room; width and height are at least 1")
    cells = [[" "] * width for _ in range(height)]
    for offset, value in drawing.placed:
        columns = range(_first(value.first, drawing.instructions, width), _first(value.last + 1, drawing.instructions, width))
        for row in range(_first(offset, drawing.arena, height), _first(offset + value.bytes, drawing.arena, height)):
            for column in columns:
                cells[row][column] = _LETTERS[value.use]
    lines = [f"{drawing.title}: arena of {size_text(drawing.arena)} over {drawing.instructions} instructions"]
    lines += [f"|{''.join(row)}|" for row in reversed(cells)]
    lines.append(f" {_ruler(drawing, width)}")
    lines.append("s: saved for the backward, i: intermediate, x: scratch; f: forward, b: backward, ^: the peak")
    peak = drawing.at_peak
    lines.append(f"at the peak {size_text(sum(value.bytes for value in peak))} are alive:")
    lines += [f"  {size_text(value.bytes):>10}  {value.use:<12}  {value.name} ({value.where})" for value in peak[:_LARGEST]]
    if len(peak) > _LARGEST:
        rest = sum(value.bytes for value in peak[_LARGEST:])
        lines.append(f"  {size_text(rest):>10}  {len(peak) - _LARGEST} more values")
    return "\n".join(lines)


def _first(position: int, of: int, cells: int) -> int:
    """Returns the first of the cells whose middle is at or after a position; all cells together stand for `of`."""
    return max(0, min(cells, -((of - 2 * position * cells) // (2 * of))))


def _ruler(drawing: Drawing, width: int) -> str:
    middle = _first(drawing.forward, drawing.instructions, width)
    peak = min(width - 1, drawing.peak_at * width // drawing.instructions)
    ruler = "f" * middle + "b" * (width - middle)
    return f"{ruler[:peak]}^{ruler[peak + 1 :]}"
