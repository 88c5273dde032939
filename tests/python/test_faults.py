"""Training goes on, and stays right, when the cache's directory is full, vanishes or cannot be written."""

from __future__ import annotations

import os
import subprocess

import pytest
import python_process

# Trains three steps with and without Rekindle and compares the weights; `break_it` runs after the first step.
PROGRAM = """
import os, resource, shutil, signal, sys, torch, rekindle
from torch import nn

directory, fault = sys.argv[1:]

def model():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 2))

def train(net, after_first=lambda: None):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for step in range(3):
        torch.manual_seed(step)
        optimizer.zero_grad()
        net(torch.randn(3, 4)).square().mean().backward()
        optimizer.step()
        if step == 0:
            after_first()
    return [parameter.detach().clone() for parameter in net.parameters()]

if fault == "full":
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))
def vanish():
    if fault == "vanishes":
        rekindle.lookup.store.flush()
        shutil.rmtree(directory)

expected = train(model())
wrapped = rekindle.Module(model(), rekindle.Options(cache_dir=directory))
actual = train(wrapped, vanish)
for a, b in zip(actual, expected):
    torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)
other = rekindle.Module(nn.Sequential(model(), nn.ReLU()), rekindle.Options(cache_dir=directory))
other(torch.randn(3, 4)).sum().backward()
rekindle.lookup.store.flush()
print(rekindle.status(wrapped).source, rekindle.status(other).source, rekindle.status(wrapped).eager_calls)
"""


def run(directory, fault):
    done = python_process.run("-c", PROGRAM, str(directory), fault)
    assert done.returncode == 0, done.stderr
    return done.stdout.split(), [line for line in done.stderr.splitlines() if "warning" in line or "ead-only" in line]


@pytest.fixture
def read_only_disk(tmp_path):
    """A directory that not even root can write."""
    directory = tmp_path / "disk"
    directory.mkdir()
    if os.geteuid() != 0:
        directory.chmod(0o555)
        yield directory
        return
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "ro,size=1m,mode=700", "tmpfs", directory]).returncode != 0:
        pytest.skip("root may write everywhere, and cannot mount here; scripts/torture faults has another user try")
    yield directory
    subprocess.run(["umount", directory], check=True)


def test_training_goes_on_when_nothing_can_be_stored(tmp_path):
    sources, warnings = run(tmp_path / "cache", "full")
    assert sources == ["export", "export", "0"]
    assert warnings and len(warnings) <= 3, warnings
    assert any("File too large" in line for line in warnings), warnings


def test_training_goes_on_when_the_directory_vanishes(tmp_path):
    sources, warnings = run(tmp_path / "cache", "vanishes")
    assert sources == ["export", "export", "0"]
    assert len(warnings) <= 1, warnings
    assert any((tmp_path / "cache" / "objects").iterdir())  # made again by the next export


def test_training_goes_on_when_the_directory_cannot_be_written(read_only_disk):
    sources, warnings = run(read_only_disk, "read-only")
    assert sources == ["export", "export", "0"]
    assert len(warnings) <= 2, warnings
    assert list(read_only_disk.iterdir()) == []
