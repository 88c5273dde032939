"""Loads the device of tests/device into a process: `torch.device("test")`, with two indices."""

from __future__ import annotations

import pathlib
import types
from collections.abc import Callable

import torch

_LIBRARY = pathlib.Path(__file__).parents[2] / "build" / "tests" / "librekindle_test_device.so"


class Recorder:
    """Records launches of the test device (tests/device/recording.h), as process/cuda_graphs.py does those of a GPU."""

    _pools = 0

    def __init__(self, device: str) -> None:
        Recorder._pools += 1
        self._pool, self._device = Recorder._pools, torch.device(device)

    def record(self, work: Callable[[], None]) -> Recording:
        """Returns what `work` launches."""
        with torch.accelerator.device_index(self._device.index):
            torch.ops.test_device.begin_recording(self._pool)
            try:
                work()
            finally:
                made = Recording(torch.ops.test_device.end_recording())
        return made


class Recording:
    """A sequence of launches."""

    def __init__(self, number: int) -> None:
        self._number = number

    def __del__(self) -> None:
        torch.ops.test_device.forget_recording(self._number)

    def replay(self) -> None:
        """Launches all of them again."""
        torch.ops.test_device.replay(self._number)


def replay_from_the_first_run(device: str) -> None:
    """Lets sessions with cuda_graphs record the first run of each plan on the test device, or on a GPU, and replay it."""
    from rekindle import _native

    if device == "test":
        _native.set_launch_recorders("privateuseone", Recorder, 0)
    else:
        from rekindle.process.cuda_graphs import CudaGraphs, install

        install()
        _native.set_launch_recorders("cuda", CudaGraphs, 0)


def load_test_device() -> None:
    """Makes it the accelerator of the process; raises OSError where `scripts/setup` has not built it."""
    torch.ops.load_library(_LIBRARY)
    own = torch.ops.test_device
    index_of = lambda device: torch.device(device).index or 0  # noqa: E731
    module = types.ModuleType("torch.test")
    vars(module).update(
        _initialized=True,
        _is_in_bad_fork=lambda: False,
        manual_seed_all=own.manual_seed,
        get_rng_state=lambda device="test": own.random_state(index_of(device)),
        set_rng_state=lambda state, device="test": own.set_random_state(index_of(device), state),
        current_device=torch.accelerator.current_device_index,
        device=lambda device: torch.accelerator.device_index(device if type(device) is int else index_of(device)),
        get_amp_supported_dtype=lambda: [torch.bfloat16, torch.float16],
        is_available=lambda: True,
        device_count=lambda: 2,
    )
    torch._register_device_module("test", module)


class HostKernel:
    """A kernel that the host's compiler has made (tests/device/host_compiler.h)."""

    launches = 0

    def __init__(self, number: int) -> None:
        self._number = number

    def launch(self, blocks: int, threads: int, words: list[int]) -> None:
        """Runs it on the current device."""
        HostKernel.launches += 1
        torch.ops.test_device.launch_kernel(self._number, blocks, words)


class HostCompiler:
    """Compiles fused kernels for the test device, from the source that a GPU's compiler gets."""

    def language(self) -> str:
        """Returns what kernels are written in."""
        return torch.ops.test_device.host_language()

    def compile(self, source: str, name: str, device: str) -> HostKernel:
        """Returns what runs the kernel `name`."""
        return HostKernel(torch.ops.test_device.compile_kernel(source, name))


def fuse_on(device: str) -> None:
    """Lets sessions with fused_kernels use kernels of the test device, or of a GPU, from the first run of each plan on."""
    from rekindle import _native
    from rekindle.process.fused_kernels import install, libraries

    if device == "test":
        _native.set_kernel_compiler("privateuseone", HostCompiler())
    else:
        install()
        _native.use_nvrtc(libraries(), at_once=True)
