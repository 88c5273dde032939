"""Modules whose graphs a helper makes, and waiting for it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
import rekindle
from rekindle.lookup.background import Background
from torch import nn

DEADLINE = 60.0  # seconds; a helper has the lowest priority


def wrap(module: nn.Module, **options: Any) -> rekindle.Module:
    return rekindle.Module(module, rekindle.Options(start="background", **{"log": "off", **options}))


def until_ended() -> None:
    """Waits until no helper is at work."""
    start = time.monotonic()
    while (working := Background._at_work) is not None and working.check():
        assert time.monotonic() - start < DEADLINE
        time.sleep(0.01)


@pytest.fixture(autouse=True)
def no_helper_is_left() -> Iterator[None]:
    yield
    if (working := Background._at_work) is not None and working.check():
        os.kill(working.number, signal.SIGKILL)
        until_ended()
