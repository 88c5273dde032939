"""The test device is the accelerator of these tests' process: they have one of their own, `pytest tests/device`."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator

import pytest
import torch
from device_of_tests import Recorder, load_test_device
from rekindle import _native

load_test_device()


@pytest.fixture(autouse=True)
def cache_dir(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """An empty cache directory for this test."""
    monkeypatch.setenv("REKINDLE_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture(autouse=True)
def seed() -> None:
    """The same random numbers in every run of a test."""
    torch.manual_seed(0)


@pytest.fixture
def recorder() -> Iterator[None]:
    """Launches of the test device can be recorded."""
    _native.set_launch_recorders("privateuseone", Recorder)
    yield
    _native.set_launch_recorders("privateuseone", None)
