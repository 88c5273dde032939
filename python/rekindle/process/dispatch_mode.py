"""The base of modes that see operators."""

from __future__ import annotations

from torch.utils._python_dispatch import TorchDispatchMode


class DispatchMode(TorchDispatchMode):
    """A mode that loads nothing: torch imports its compiler, in seconds and in the middle of a forward, only to keep it off
    the code of a mode that does not say that it need not."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False
