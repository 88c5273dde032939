"""What the cases of autograd Functions share; see test_python_ops.py."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from semantics_support import made_of
from torch import nn

# By name: how to make the module.
FUNCTIONS: dict[str, Callable[[], nn.Module]] = {}
# What Functions did, in order; in a log, because a forward must not change globals that it reads.
LOG = logging.getLogger("functions")
LOG.propagate = False  # whoever keeps a record keeps what it mentions alive


def used_by(forward: Callable[..., Any], prepare: Callable[[Any], Any] | None = None) -> Callable[[type], type]:
    """Register a Function under its name, called by this forward."""

    def register(function: type) -> type:
        FUNCTIONS[function.__name__] = made_of(forward, prepare)
        return function

    return register
