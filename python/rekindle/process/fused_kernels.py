"""Finds the compiler of fused kernels for GPUs, for sessions whose option fused_kernels is set (device/kernel_compiler.h)."""

from __future__ import annotations

import functools
from pathlib import Path

import torch

from rekindle import _native


def libraries() -> list[str]:
    """Returns where the NVRTC may be that torch has brought, as paths and at last by its name; nothing without CUDA."""
    if torch.version.cuda is None:
        return []
    package = Path(torch.__file__).parent
    major = torch.version.cuda.partition(".")[0]
    brought = sorted(package.parent.glob(f"nvidia/*/lib/libnvrtc.so.{major}*"))
    own = package / "lib" / "libcaffe2_nvrtc.so"  # depends on it, wherever it is
    return [str(path) for path in (own, *brought)] + [f"libnvrtc.so.{major}"]


@functools.cache
def install() -> None:
    """Lets kernels be compiled for GPUs, in this process, from the first call on."""
    if found := libraries():
        _native.use_nvrtc(found)
