"""Holds Rekindle's version, and checks that this interpreter's torch is the one the extension was built for."""

from __future__ import annotations

import torch

from rekindle.errors import UnsupportedEnvironmentError

__version__ = "0.1.0"


def check_environment() -> None:
    """Raises UnsupportedEnvironmentError, naming the remedy, if they do not fit; before anything of the extension is used."""
    try:
        from rekindle import _native
    except ImportError as error:
        raise UnsupportedEnvironmentError(
            f"rekindle's extension cannot be loaded with Python and torch {torch.__version__} as installed: {error}. "
            "Build it for them: ./scripts/setup, or pip install . in a checkout"
        ) from error
    built_for = _native.torch_version
    if torch.__version__.split("+")[0].split(".")[:2] != built_for.split("+")[0].split(".")[:2]:
        raise UnsupportedEnvironmentError(
            f"rekindle was built for torch {built_for}, but torch {torch.__version__} is installed; "
            "build it again (pip install .) or install that torch"
        )
