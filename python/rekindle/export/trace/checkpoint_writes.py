"""Refuses writes to buffers and arguments inside of torch.utils.checkpoint: eager's backward writes them once more.

For example, a batch norm in a checkpoint moves its running mean in the forward, and again in the backward, which runs the forward
of the checkpoint once more. A graph's backward writes nothing.
"""

from __future__ import annotations

import inspect
import types

import torch
from torch.utils.checkpoint import checkpoint

from rekindle.export.request import Call
from rekindle.functions.inlining import run_checkpoint
from rekindle.process.torch_internals import untraced
from rekindle.reasons import Bypass, Reason

_CODES = (inspect.unwrap(checkpoint).__code__, run_checkpoint.__code__)


class CheckpointWrites:
    """Follows one trace from call to call of torch. Writes are seen by the versions of the tensors.

    call: whose forward is traced
    """

    def __init__(self, call: Call) -> None:
        self._state = {f"argument {i}": one for i, one in enumerate(call.arguments)}
        self._state |= {f"the buffer {name}": one for name, one in call.buffers.items()}
        self._within = 0  # id of the frame of the outermost checkpoint that runs, where it is run again; 0: there is none
        self._versions: list[int] = []  # when it began

    def before(self, caller: types.FrameType) -> None:
        """Looks at the place of a call of torch that is about to run. Raises Bypass(buffer_mutated)."""
        within = _outermost(caller) if torch.is_grad_enabled() else 0
        if within != self._within:
            self.check()
            self._within, self._versions = within, self._now()

    def check(self) -> None:
        """Raises Bypass(buffer_mutated) where the checkpoint that ran until now wrote something."""
        if not self._within:
            return
        self._within = 0
        for name, then, now in zip(self._state, self._versions, self._now(), strict=True):
            if now != then:
                what = f"a checkpoint (torch.utils.checkpoint) writes {name}, and its backward writes it once more"
                raise Bypass(Reason.BUFFER_MUTATED, f"{what}, which a graph's does not; keep it out of the checkpoint")

    def _now(self) -> list[int]:
        with untraced():
            return [tensor._version for tensor in self._state.values()]


def _outermost(frame: types.FrameType | None) -> int:
    """Returns the id of the frame of the outermost checkpoint that a frame runs in. The next one may get the same id."""
    found = 0
    while frame is not None:
        if frame.f_code in _CODES:
            found = id(frame)
        frame = frame.f_back
    return found
