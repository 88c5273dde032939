"""Finds the compiler of fused kernels for GPUs, for sessions whose option fused_kernels is set (device/kernel_compiler.h)."""

from __future__ import annotations

import functools
from pathlib import Path

import torch

from rekindle import _native


@functools.cache
def install(at_once: bool = False) -> None:
    """Lets kernels be compiled by the NVRTC that torch has brought, in this process; at_once: each while it is waited for."""
    if torch.version.cuda is None:
        return
    package = Path(torch.__file__).parent
    major = torch.version.cuda.partition(".")[0]
    brought = sorted(package.parent.glob(f"nvidia/*/lib/libnvrtc.so.{major}*"))
    own = package / "lib" / "libcaffe2_nvrtc.so"  # depends on it, wherever it is
    _native.use_nvrtc([str(path) for path in (own, *brought)] + [f"libnvrtc.so.{major}"], at_once)
