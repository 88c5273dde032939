"""Provides the base class of modes that see operators."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode


class DispatchMode(TorchDispatchMode):
    """Lets a mode start without loading torch's compiler.

    Torch imports its compiler, in seconds and in the middle of a forward, only to keep it off the code of a mode. This class says
    that it need not.
    """

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False
