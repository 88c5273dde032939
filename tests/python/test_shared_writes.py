"""An export puts back what its forward wrote to shared memory, and nothing that other processes write meanwhile."""

from __future__ import annotations

import pathlib
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from rekindle.key.values.cells import TENSOR
from rekindle.reasons import Bypass
from rekindle.recording.undo import Undo
from shared_memory_support import SHARED


def _undo(tensor: torch.Tensor) -> Undo:
    fingerprint: Any = SimpleNamespace(cells=[(tensor, TENSOR)], functions=[], classes=[], inputs=[])
    return Undo(fingerprint)


def _write_elsewhere(tensor: torch.Tensor, place: int) -> None:
    """Writes as another process would: torch does not count it."""
    tensor.numpy()[place] = 7


@pytest.mark.parametrize("kind", SHARED)
def test_what_others_write_stays(kind: str, tmp_path: pathlib.Path) -> None:
    tensor = SHARED[kind](tmp_path)
    with _undo(tensor).around():
        _write_elsewhere(tensor, 1)
    assert tensor.tolist() == [0, 7, 0, 0]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float8_e4m3fn, torch.uint16, torch.bool, torch.complex64, torch.float64])
def test_what_the_forward_writes_is_put_back(dtype: torch.dtype) -> None:
    tensor = torch.ones(2, 3).to(dtype).share_memory_().t()
    with pytest.raises(Bypass, match="state_mutated"), _undo(tensor).around():
        tensor.copy_(torch.zeros(3, 2).to(dtype))
    assert (tensor.to(torch.complex64) == 1).all()


def test_memory_of_this_process_is_put_back_whoever_wrote() -> None:
    tensor = torch.zeros(4)
    with pytest.raises(Bypass, match="state_mutated"), _undo(tensor).around():
        _write_elsewhere(tensor, 1)
    assert tensor.tolist() == [0, 0, 0, 0]
