"""Tensors in memory that other processes see, of each kind that there is."""

from __future__ import annotations

import mmap
import multiprocessing
import pathlib
import time
from collections.abc import Callable
from multiprocessing import shared_memory

import numpy
import torch
from rekindle.process.helper import Helper

COUNT = 4
_held: list[object] = []  # what owns the memory of tensors, until this process ends


def _moved(_: pathlib.Path) -> torch.Tensor:
    return torch.zeros(COUNT).share_memory_()


def _of_array(_: pathlib.Path) -> torch.Tensor:
    return torch.frombuffer(multiprocessing.Array("f", COUNT).get_obj(), dtype=torch.float32)


def _of_block(_: pathlib.Path) -> torch.Tensor:
    block = shared_memory.SharedMemory(create=True, size=4 * COUNT)
    block.unlink()  # it goes when it is closed
    _held.append(block)
    return torch.frombuffer(block.buf, dtype=torch.float32, count=COUNT)


def _of_map(_: pathlib.Path) -> torch.Tensor:
    return torch.frombuffer(mmap.mmap(-1, 4 * COUNT), dtype=torch.float32)


def of_file(directory: pathlib.Path) -> torch.Tensor:
    numpy.zeros(COUNT, numpy.float32).tofile(directory / "numbers")
    return torch.from_numpy(numpy.memmap(directory / "numbers", numpy.float32, "r+"))


def _of_torch_file(directory: pathlib.Path) -> torch.Tensor:
    numpy.zeros(COUNT, numpy.float32).tofile(directory / "numbers")
    return torch.from_file(str(directory / "numbers"), shared=True, size=COUNT)


SHARED: dict[str, Callable[[pathlib.Path], torch.Tensor]] = {
    "share_memory_": _moved,
    "multiprocessing.Array": _of_array,
    "SharedMemory": _of_block,
    "mmap": _of_map,
    "numpy.memmap": of_file,
    "torch.from_file": _of_torch_file,
}


def after_a_helper_that_writes(tensor: torch.Tensor) -> bytes | None:
    """Lets a helper read and write a tensor that is written here meanwhile; returns what it read."""

    def work() -> bytes:
        before = tensor.sum().item()
        tensor.fill_(5)
        return str(before).encode()

    helper = Helper.start(work)
    tensor.fill_(2)
    while helper.check():
        time.sleep(0.005)
    return helper.report()
