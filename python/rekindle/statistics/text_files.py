"""Writes statistics in the layout of ORTModule's subscriber: a text file per tensor, in a folder per step.

step_0/order.txt                        the names of the files below, in the order in which they were written
step_0/Linear_2_0th_output_forward      the first output of the third module
step_0/Linear_2_0th_output_backward     its gradient
step_0/hidden_forward                   inspect_activation("hidden", ...)
"""

from __future__ import annotations

import os
import pathlib
from typing import Any

from rekindle.statistics.summary import Statistics

_PER_LINE = 8


class TextFiles:
    """Writes the text files of one process; parameters and their gradients have none.

    directory: which gets a folder per step
    numbers: the number of each module, as ORTModule counts them: parents before children
    """

    def __init__(self, directory: pathlib.Path, numbers: dict[str, int]) -> None:
        self._directory, self._numbers = directory, numbers

    def write(self, fields: dict[str, Any], statistics: Statistics, samples: list[float]) -> None:
        """Writes one tensor's file, and its name into order.txt. Raises OSError if it cannot."""
        if fields["phase"] not in ("forward", "backward"):
            return
        title, depth = self._title(fields)
        name = f"{title}_{fields['phase']}"
        folder = self._directory / f"step_{fields['step']}"
        folder.mkdir(parents=True, exist_ok=True)
        with open(folder / "order.txt", "a", encoding="utf-8") as order:
            order.write(f"{name}\n")
        heading = f"{'>' * depth}{title} {fields['phase']} run"
        (folder / name).write_text(_text(heading, fields, statistics, samples), encoding="utf-8")

    def _title(self, fields: dict[str, Any]) -> tuple[str, int]:
        name, again = fields["name"], f"_{fields['call']}" if fields["call"] else ""
        if fields["output"] is None:
            return "".join("_" if letter in (os.sep, "\0") else letter for letter in name) + again, 0
        depth = name.count(".") + 1 if name else 0
        return f"{fields['module']}_{self._numbers[name]}_{fields['output']}th_output{again}", depth


def _text(heading: str, fields: dict[str, Any], statistics: Statistics, samples: list[float]) -> str:
    zeros = round(statistics.zeros * statistics.count)
    negative, positive = (sum(row[i] for row in statistics.histogram) for i in (1, 2))
    shape = list(fields["shape"])
    rows = [samples[i : i + _PER_LINE] for i in range(0, len(samples), _PER_LINE)]
    shown = "\n".join(", ".join(f"{value: .6e}" for value in row) for row in rows)
    return (
        f"{heading} shape: torch.Size({shape}) dtype: torch.{fields['dtype']} size: torch.Size([{statistics.count}]) \n"
        f"min: {statistics.min} max: {statistics.max}, mean: {statistics.mean}, std: {statistics.std} \n"
        f"nan: {statistics.nans}, inf: {statistics.infs}\n"
        f"samples(top 128): [{shown}]\n"
        f"neg: {negative}, pos: {positive}, zero: {zeros},\n"
        f"{'=' * 16}\n"
    )
