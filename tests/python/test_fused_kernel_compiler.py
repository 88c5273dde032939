"""A process compiles fused kernels with the NVRTC that torch has brought, and looks for it only if the option asks."""

from __future__ import annotations

import ctypes
import pathlib
import subprocess
import sys

import pytest
import torch
from rekindle.process import fused_kernels

needs_cuda = pytest.mark.skipif(torch.version.cuda is None, reason="this torch has no CUDA")


@needs_cuda
def test_the_library_of_the_package_is_found() -> None:
    found = [path for path in fused_kernels.libraries() if pathlib.Path(path).is_file()]
    assert found
    library = ctypes.CDLL(next(path for path in found if "libnvrtc.so" in path))
    major, minor = ctypes.c_int(), ctypes.c_int()
    assert library.nvrtcVersion(ctypes.byref(major), ctypes.byref(minor)) == 0
    assert f"{major.value}" == torch.version.cuda.partition(".")[0]


@needs_cuda
def test_the_system_is_asked_last() -> None:
    assert "/" not in fused_kernels.libraries()[-1]
    assert all("/" in path for path in fused_kernels.libraries()[:-1])


def test_without_cuda_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    assert fused_kernels.libraries() == []


_CALL = """
import rekindle, torch
options = rekindle.Options(fused_kernels={asked}, cache="off", start="wait", fallback="error")
model = rekindle.Module(torch.nn.Linear(2, 2), options)
model(torch.ones(1, 2))
from rekindle.process import fused_kernels
print(fused_kernels.install.cache_info().misses)
"""


@pytest.mark.parametrize("asked", [True, False])
def test_it_is_installed_where_the_option_asks_for_it(asked: bool) -> None:
    run = subprocess.run([sys.executable, "-c", _CALL.format(asked=asked)], capture_output=True, text=True, check=True)
    assert run.stdout.split() == [str(int(asked))]
