"""Lets a forward run as for a backward that never comes: autograd's graph is there, what it would save is not.

An example: `with nothing_saved(): y = module(x)`. The result requires a gradient where it does otherwise, and holds no
activations.
"""

from __future__ import annotations

import contextlib
from typing import Any, NoReturn

import torch


class SavedNothing(RuntimeError):
    """Says that a backward ran within a forward after all, which has to run again with what it saves."""


def nothing_saved() -> contextlib.AbstractContextManager[Any]:
    """Returns the context; in it, whatever asks autograd for a saved tensor raises SavedNothing."""
    return torch.autograd.graph.saved_tensors_hooks(_dropped, _refused)


def _dropped(tensor: torch.Tensor) -> None:
    return None


def _refused(saved: None) -> NoReturn:
    raise SavedNothing("a forward that was to save nothing ran a backward")
