"""What every Python test starts from: its own cache directory, no settings from outside, and a fixed seed."""

from __future__ import annotations

import os
import pathlib

import pytest
import torch
from device_of_tests import load_test_device


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", default="cpu", help="where the tests make their tensors: cpu, cuda, or test (tests/device)")


def pytest_configure(config: pytest.Config) -> None:
    device = config.getoption("--device")
    if device == "test":
        load_test_device()
    if device != "cpu":
        torch.set_default_device(device)


@pytest.fixture(autouse=True)
def cache_dir(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """An empty cache directory that this test, and each process it starts, uses by default."""
    for name in os.environ:
        if name.startswith(("REKINDLE_", "ORTMODULE_")):
            monkeypatch.delenv(name)
    directory = tmp_path / "cache"
    monkeypatch.setenv("REKINDLE_CACHE_DIR", str(directory))
    return directory


@pytest.fixture(autouse=True)
def seed() -> None:
    """The same random numbers in every run of a test."""
    torch.manual_seed(0)
