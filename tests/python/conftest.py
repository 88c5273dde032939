"""What every Python test starts from: its own cache directory, no settings from outside, and a fixed seed."""

from __future__ import annotations

import os
import pathlib

import pytest
import torch
from device_of_tests import fuse_on, load_test_device, replay_from_the_first_run


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--device", default="cpu", help="where the tests make their tensors: cpu, cuda, or test (tests/device)")
    parser.addoption("--replay", action="store_true", help="record each plan's launches at once, and replay them (cuda_graphs)")
    parser.addoption("--fuse", action="store_true", help="fuse pointwise ops into kernels (fused_kernels)")


def pytest_configure(config: pytest.Config) -> None:
    device = config.getoption("--device")
    if device == "test":
        load_test_device()
    if device != "cpu":
        torch.set_default_device(device)
    if config.getoption("--replay"):
        replay_from_the_first_run(device)
    if config.getoption("--fuse"):
        fuse_on(device)


@pytest.fixture(autouse=True)
def cache_dir(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> pathlib.Path:
    """An empty cache directory that this test, and each process it starts, uses by default."""
    for name in os.environ:
        if name.startswith(("REKINDLE_", "ORTMODULE_")):
            monkeypatch.delenv(name)
    directory = tmp_path / "cache"
    monkeypatch.setenv("REKINDLE_CACHE_DIR", str(directory))
    if request.config.getoption("--replay"):
        monkeypatch.setenv("REKINDLE_CUDA_GRAPHS", "true")
    if request.config.getoption("--fuse"):
        monkeypatch.setenv("REKINDLE_FUSED_KERNELS", "true")
    return directory


@pytest.fixture(autouse=True)
def seed() -> None:
    """The same random numbers in every run of a test."""
    torch.manual_seed(0)
