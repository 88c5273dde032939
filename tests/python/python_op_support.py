"""A log to which autograd Functions tell where their tensors lie."""

from __future__ import annotations

import logging
from collections.abc import Iterator

LOG = logging.getLogger("declarations")
LOG.setLevel(logging.INFO)
LOG.propagate = False  # pytest keeps what it sees


class Pointers(logging.Handler):
    """The addresses that Functions log, by what they are of."""

    def __init__(self) -> None:
        super().__init__()
        self.last: dict[str, int] = {}

    def emit(self, record: logging.LogRecord) -> None:
        what, pointer = record.args  # type: ignore[misc]
        self.last[what] = pointer


def told_pointers() -> Iterator[dict[str, int]]:
    """The addresses that are told while a test runs: for a fixture."""
    handler = Pointers()
    LOG.addHandler(handler)
    yield handler.last
    LOG.removeHandler(handler)
