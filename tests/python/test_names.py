"""The names of the package: all are there, though some are imported when they are asked for."""

from __future__ import annotations

import subprocess
import sys

import pytest
import rekindle

_ASKS = """
import sys
import rekindle
later = ("rekindle.optim", "rekindle.cache", "rekindle.account.record", "rekindle.lookup.explanation")
early = [name for name in later if name in sys.modules]
assert not early, early
assert set(rekindle.__all__) <= set(dir(rekindle))
for name in rekindle.__all__:
    getattr(rekindle, name)
assert rekindle.optim is sys.modules["rekindle.optim"]
assert rekindle.Explanation.__module__ == "rekindle.lookup.explanation"
from rekindle import *
assert MemoryAccount is rekindle.MemoryAccount and callable(optim.fuse)
"""


def test_every_name_is_there_and_what_no_call_needs_is_imported_later():
    done = subprocess.run([sys.executable, "-c", _ASKS], capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


def test_a_name_that_is_not_there_is_an_error():
    with pytest.raises(AttributeError, match="module 'rekindle' has no attribute 'fuse'"):
        _ = rekindle.fuse
