"""Provides StatisticsSubscriber: where statistics are written, and of which steps."""

from __future__ import annotations

import os
import pathlib
import shutil

import torch

from rekindle import _native
from rekindle.process.place_in_job import place_in_job
from rekindle.statistics.text_files import TextFiles
from rekindle.statistics.writer import Writer

FORMAT, VERSION = "rekindle.statistics", 1


class StatisticsSubscriber:
    """Says where the statistics of a module go, and of which steps; `subscribe` begins.

    directory: gets `rank_<n>.jsonl`, a line per tensor, and `step_<n>/`, in a job of several processes `rank_<n>/step_<n>/`, with
        a text file per output. It is made if it is not there
    start_step, end_step: the first step, and the first that is left out again; None: from the first, to the last. Step n is the
        module's call number n, from 0
    override: whether what an earlier run has left in the directory is removed; other files there are never touched
    bucket_size: elements taken at a time, 8 bytes each, a few times over; None: what suits the device
    text_files: whether there are files in ORTModule's layout; they take an open and a close per tensor

    Raises FileExistsError where an earlier run has left files, OSError for a directory that cannot be written, and ValueError for
    steps or sizes that mean nothing.
    """

    max_bytes = 1 << 30  # of rank_<n>.jsonl; what follows is left out, with a warning

    def __init__(
        self,
        directory: str | os.PathLike[str],
        start_step: int | None = None,
        end_step: int | None = None,
        override: bool = False,
        bucket_size: int | None = None,
        text_files: bool = True,
    ) -> None:
        first = start_step or 0
        if first < 0 or (end_step is not None and end_step <= first):
            raise ValueError(
                f"start_step={start_step} and end_step={end_step} hold no step; the first is 0, the last end_step - 1"
            )
        if bucket_size is not None and bucket_size < 1:
            raise ValueError(f"bucket_size={bucket_size} is no number of elements; leave it out for what suits the device")
        self.directory = pathlib.Path(directory)
        self.bucket_size, self.text_files = bucket_size, text_files
        self.rank, self.world = place_in_job()
        self._first, self._end = first, end_step
        self.directory.mkdir(parents=True, exist_ok=True)
        self._clear(override)

    def covers(self, step: int) -> bool:
        """Tells whether the step is one to be written."""
        return self._first <= step and (self._end is None or step < self._end)

    def open(self, model: str, numbers: dict[str, int]) -> Writer:
        """Makes the file of this process, and what writes to it.

        model: the class of the module
        numbers: of the modules, by their paths
        """
        header = {
            "kind": "run",
            "format": FORMAT,
            "version": VERSION,
            "rank": self.rank,
            "world": self.world,
            "model": model,
            "torch": str(torch.__version__),
        }
        texts = TextFiles(self._text_folder(), numbers) if self.text_files else None
        return Writer(self.directory / f"rank_{self.rank}.jsonl", header, texts, self.max_bytes)

    def _text_folder(self) -> pathlib.Path:
        return self.directory if self.world == 1 else self.directory / f"rank_{self.rank}"

    def _clear(self, override: bool) -> None:
        left = [path for path in sorted(self.directory.iterdir()) if self._is_of_this_process(path)]
        if left and not override:
            raise FileExistsError(
                f"{self.directory} has statistics of an earlier run ({left[0].name}); "
                "name another directory, or pass override=True"
            )
        for path in left:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if left:
            _native.log_warning(f"statistics of an earlier run were removed from {self.directory}")

    def _is_of_this_process(self, path: pathlib.Path) -> bool:
        kind, _, number = path.name.removesuffix(".jsonl").partition("_")
        if not number.isdigit():
            return False
        if kind == "step":
            return self.rank == 0 and path.is_dir()
        # The first rank removes those of ranks that there are no longer.
        return kind == "rank" and (int(number) == self.rank or (self.rank == 0 and int(number) >= self.world))
