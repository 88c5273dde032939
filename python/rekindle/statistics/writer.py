"""Writes records to the files of one process, from a thread of its own."""

from __future__ import annotations

import atexit
import json
import os
import pathlib
import queue
import threading
from dataclasses import dataclass
from typing import Any

from rekindle import _native
from rekindle.errors import StatisticsError
from rekindle.statistics.summary import Summary, record_of
from rekindle.statistics.text_files import TextFiles

_WAITING = 1024  # records that wait to be written, before the thread that trains waits too
_END = None


@dataclass(frozen=True)
class Item:
    """Holds one record that is to be written: its fields, and the statistics that follow them, if it has some."""

    fields: dict[str, Any]
    summary: Summary | None = None


class Writer:
    """Appends records to a file, a line of JSON each, and to text files; `put` may be called by any thread.

    file: new; it is made at once
    header: the first line
    texts: files in the layout of ORTModule, or None
    max_bytes: of the file; further records are left out, with one warning

    Raises OSError if the file cannot be made. An error of the thread is kept, and raised by `check`, `flush` and `close`.
    """

    def __init__(self, file: pathlib.Path, header: dict[str, Any], texts: TextFiles | None, max_bytes: int) -> None:
        self._path, self._texts, self._left = file, texts, max_bytes
        self._file = open(file, "x", encoding="utf-8")  # noqa: SIM115 (closed by the thread)
        self._process = os.getpid()
        self._error: BaseException | None = None
        self._queue: queue.Queue[Item | None] = queue.Queue(_WAITING)
        self._is_closed = False
        self._queue.put(Item(header))
        self._thread = threading.Thread(target=self._run, name="rekindle-statistics", daemon=True)
        self._thread.start()
        atexit.register(self._at_exit)

    def put(self, item: Item) -> None:
        """Hands a record over; once there was an error, and in a forked process, it is dropped."""
        if self._error is None and not self._is_closed and os.getpid() == self._process:
            self._queue.put(item)

    def fail(self, error: BaseException) -> None:
        """Ends the writing for an error that is not the thread's."""
        self._error = self._error or error

    def check(self) -> None:
        """Raises StatisticsError if something could not be written, with the reason as its cause."""
        if self._error is not None:
            raise StatisticsError(
                f"statistics cannot be written to {self._path}: {self._error}; the records up to the error are there. "
                "Remove the cause, or the subscription, to go on"
            ) from self._error

    def flush(self) -> None:
        """Waits until all records are in the files. Raises as `check` does."""
        if os.getpid() == self._process:
            self._queue.join()
        self.check()

    def close(self) -> None:
        """Writes what is left and ends the thread; then, and when called again, raises as `check` does."""
        if os.getpid() == self._process and not self._is_closed:
            self._is_closed = True
            self._queue.put(_END)
            self._thread.join()
            atexit.unregister(self._at_exit)
        self.check()

    def _at_exit(self) -> None:
        self.close()

    def _run(self) -> None:
        while True:
            item = self._queue.get()
            try:
                if item is not _END and self._error is None:
                    self._write(item)
                if (item is _END or self._queue.empty()) and not self._file.closed:
                    self._file.flush()
            except BaseException as error:  # raised in the thread that trains: see `check`
                self.fail(error)
            finally:
                self._queue.task_done()
            if item is _END:
                self._end()
                return

    def _end(self) -> None:
        try:
            self._file.close()
        except OSError as error:
            self.fail(error)

    def _write(self, item: Item) -> None:
        if self._left <= 0:
            return
        statistics = None if item.summary is None else item.summary.statistics()
        fields = item.fields
        if item.summary is not None and statistics is not None:
            fields = {**fields, "dtype": item.summary.dtype, "shape": item.summary.shape, **record_of(statistics)}
        line = json.dumps(fields, allow_nan=False, separators=(",", ":")) + "\n"
        self._left -= len(line)
        if self._left <= 0:
            _native.log_warning(f"{self._path} has reached max_bytes; further statistics are left out")
            line = json.dumps({"kind": "limit", "step": fields.get("step")}) + "\n"
        self._file.write(line)
        if self._texts is not None and item.summary is not None and statistics is not None and self._left > 0:
            self._texts.write(fields, statistics, item.summary.samples())
