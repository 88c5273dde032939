"""One graph that is ready to run, and what is known about calls of one signature."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from rekindle import _native
from rekindle.contract import rebuild_outputs
from rekindle.fingerprint import Fingerprint
from rekindle.fingerprint.live import Watched
from rekindle.fingerprint.observations import verify
from rekindle.reasons import Bypass


@dataclass
class Variant:
    """One graph that is ready to run, and what must still hold for it to be right."""

    prekey: str
    observations: list[Any]
    session: Any
    structure: Any
    used: list[int]  # inputs of the session as positions among the call's tensors, then the state
    state_names: list[str]
    record: bool
    source: str
    entry: str | None
    guard: Any = None
    state: list[torch.Tensor] = field(default_factory=list)

    def arm(self, fingerprint: Fingerprint, module: nn.Module) -> None:
        """Bind the module's live state and remember what it looks like."""
        tensors = dict([*module.named_parameters(), *module.named_buffers()])
        self.state = [tensors[name] for name in self.state_names]
        watched = Watched(fingerprint, self.observations)
        self.guard = _native.Guard(watched.containers, self.state, watched.items, watched.contents)

    def fits(self, prekey: str) -> bool:
        """Whether the variant is right for a call of this key, by content."""
        return self.prekey == prekey and verify(self.observations) is None

    def run(self, arguments: list[torch.Tensor]) -> Any:
        inputs = arguments + self.state
        outputs = self.session.forward([inputs[i] for i in self.used], self.record)
        return rebuild_outputs(self.structure, outputs, inputs)


@dataclass
class Kind:
    """What is known about calls of one signature: variants, most recently used first, or why they run in eager."""

    variants: list[Variant] = field(default_factory=list)
    refusal: Bypass | None = None
    refused_while: Any = None  # guard under which the refusal stands; None: for good
    attempts: int = 0
