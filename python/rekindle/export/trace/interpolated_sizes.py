"""Tells interpolate sizes as it wants them while it is traced."""

from __future__ import annotations

import types

import torch

from rekindle.process.torch_internals import untraced

_INTERPOLATE = torch.nn.functional.interpolate.__code__


class SizeInTrace(int):
    """Stands for a size in interpolate while it is traced: it computes with it in tensors then, not in numbers."""

    def float(self) -> torch.Tensor:
        """Returns the size as torch.Tensor.float would give it."""
        with untraced():
            return torch.tensor(float(self), dtype=torch.float32, device="cpu")


def interpolates(asking: types.FrameType) -> bool:
    """Tells whether code that asks for a size is interpolate's."""
    return _INTERPOLATE in (asking.f_code, asking.f_back and asking.f_back.f_code)  # maybe in a comprehension
