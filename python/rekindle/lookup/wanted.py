"""Describes a call that a graph is wanted for, to whoever finds or makes one.

An example: a module is called with a tensor of shape [4, 16], for the first time. The prekey says what an entry of the cache is
found by; the plan, that an export is to leave the 4 open.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from rekindle.export.request import Call, ExportPlan
from rekindle.key.fingerprint import Fingerprint
from rekindle.reasons import Bypass
from rekindle.sizes.shapes import Shapes


@dataclass(frozen=True)
class Wanted:
    """Holds what is known of a call that no graph in memory serves."""

    prekey: str  # of the fingerprint, in hexadecimal
    fingerprint: Fingerprint  # of the call
    call: Call  # that a graph is wanted for
    plan: ExportPlan  # what an export is to leave open
    describe: Callable[[Call], Fingerprint]  # gives the fingerprint of the call as it is then, or of a copy of it
    start: float  # of time.perf_counter, when the module was called
    tries: int  # exports that failed under the prekey, one after the other, in this process
    was_refused: Callable[[Bypass], bool]  # tells whether calls of other sizes were refused for the same cause
    withdraw_memory: Callable[[], None]  # frees what was made ready for the call, which a miss has no use for
    is_further: bool = False  # whether an export of it is not one of the first, as of trials.py

    @property
    def state(self) -> list[torch.Tensor]:
        """Returns parameters and buffers of the module."""
        return [*self.call.parameters.values(), *self.call.buffers.values()]

    def shapes_of(self, bypass: Bypass) -> Shapes:
        """Returns the shapes of calls that `bypass` is about: those of any size once calls of other sizes were refused alike."""
        return self.plan.shapes if self.was_refused(bypass) else Shapes.of(self.call.arguments)

    def describe_again(self) -> Fingerprint:
        """Returns the fingerprint of the call as it is now."""
        return self.describe(self.call)
