"""Tells where in the user's code something happens."""

from __future__ import annotations

import inspect

from torch.utils.checkpoint import checkpoint

from rekindle import _native
from rekindle.process.origin import REKINDLE_DIRECTORY, TORCH_DIRECTORY

_native.set_library_directories([TORCH_DIRECTORY, REKINDLE_DIRECTORY])
_native.set_checkpoint_code(inspect.unwrap(checkpoint).__code__)


def user_place() -> str:
    """Returns `file.py:12 in forward`: the innermost frame outside of torch and Rekindle, as the nodes of a trace have it."""
    return _native.user_place() or "unknown code"
