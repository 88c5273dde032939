"""One graph that is ready to run, and what is known about calls of one signature."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from rekindle import _native
from rekindle.contract import rebuild_outputs
from rekindle.exporters import ExportRequest
from rekindle.fingerprint import Fingerprint
from rekindle.fingerprint.live import Watched
from rekindle.fingerprint.observations import verify
from rekindle.fingerprint.values import still_registered
from rekindle.layouts import share_memory
from rekindle.python_ops import bind
from rekindle.reasons import Bypass, Reason
from rekindle.replay import Replay
from rekindle.shapes import Shapes, sizes_of


@dataclass(eq=False)
class Variant:
    """One graph that is ready to run, and what must still hold for it to be right. guards: the questions that it asks
    of sizes, if it does."""

    prekey: str
    observations: list[Any]
    session: Any
    contract: dict[str, Any]  # see exporting.py
    source: str
    entry: str | None
    guards: Any = None
    guard: Any = None
    registered: list[tuple[Any, str]] = field(default_factory=list)  # values that no guard can compare
    state: list[torch.Tensor] = field(default_factory=list)
    may_bypass: bool = False  # whether run may raise Bypass

    def __post_init__(self) -> None:
        self.structure, self.used, self.record = (self.contract[name] for name in ("structure", "used", "grad"))
        self.writes = self.contract["writes"]
        self.shapes = Shapes.observed(self.observations)

    def arm(self, fingerprint: Fingerprint, request: ExportRequest) -> None:
        """Bind the module's live state and remember what it looks like."""
        state = {**request.parameters, **request.buffers}
        self.state = [state[name] for name in self.contract["state"]]
        self.session.set_functions([bind(call, request.module) for call in self.contract["functions"]])
        self.may_bypass = bool(self.contract["functions"]) or any(i < len(request.arguments) for i in self.writes)
        watched = Watched(fingerprint, self.observations)
        self.registered = watched.registered
        self.guard = _native.Guard(watched.containers, self.state, watched.items, watched.contents, watched.reads)
        if self.record:
            self.session.set_replay(Replay(request, self.contract, self.shapes, self.session.gradient_of, self.guard))

    def ready(self) -> bool:
        """Whether the variant is right now, by identity of what it depends on."""
        return self.guard.check() and (
            not self.registered or all(still_registered(value, digest) for value, digest in self.registered)
        )

    def fits(self, prekey: str) -> bool:
        """Whether the variant is right for a call of this key, by content."""
        return self.prekey == prekey and verify(self.observations) is None

    def admits(self, arguments: list[torch.Tensor], state: list[torch.Tensor]) -> bool:
        """Whether the graph is for arguments of these sizes, and has a plan for them."""
        sizes, about = sizes_of(arguments), self.contract["shapes"]
        if self.shapes.bind(sizes) is None:
            return False
        if sizes == about["sizes"]:
            return True
        every = [*arguments, *state]
        inputs = [every[i] for i in self.used]
        if self.guards is not None and answers(self.guards, inputs) != [value for *_, value in about["guards"]]:
            return False
        try:
            self.session.prepare(inputs, self.record)
        except RuntimeError as error:
            _native.log_debug(f"a graph has no plan for sizes {sizes}: {(str(error).splitlines() or [''])[0]}")
            return False
        return True

    def run(self, arguments: list[torch.Tensor]) -> Any:
        inputs = arguments + self.state
        if self.writes:
            return self._run_and_write(inputs, len(arguments))
        outputs = self.session.forward([inputs[i] for i in self.used], self.record)
        return rebuild_outputs(self.structure, outputs, inputs)

    def _run_and_write(self, inputs: list[torch.Tensor], arguments: int) -> Any:
        """The backward may read what a buffer or an argument held before: the graph gets a copy of it."""
        given = list(inputs)
        for position in self.writes:
            if position < arguments and share_memory(inputs[position], inputs):
                raise Bypass(Reason.INPUT_MUTATED, "the forward writes in place to an input that shares memory; write to a clone")
            given[position] = inputs[position].detach().clone()
        outputs = self.session.forward([given[i] for i in self.used], self.record)
        with torch.no_grad():
            torch._foreach_copy_([inputs[position] for position in self.writes], outputs[-len(self.writes) :])
        return rebuild_outputs(self.structure, outputs, inputs)


def answers(guards: Any, inputs: list[torch.Tensor]) -> list[int] | None:
    """Of a graph to questions about the sizes of its inputs; None where it cannot be run at these."""
    try:
        return list(guards.answers(inputs))
    except RuntimeError as error:
        _native.log_debug(f"sizes do not fit a graph: {type(error).__name__}: {(str(error).splitlines() or [''])[0]}")
        return None


class TryAgain:
    """A guard that never passes: the refusal holds for one call only."""

    def check(self) -> bool:
        """As of Guard."""
        return False


@dataclass
class Kind:
    """What is known about calls of one signature: variants, most recently used first, or why they run in eager."""

    variants: list[Variant] = field(default_factory=list)
    refusal: Bypass | None = None
    refused_while: Any = None  # guard under which the refusal stands; None: for good
    attempts: int = 0
    ran_in_eager: bool = False  # without an error, since it was refused


@dataclass
class Family:
    """What is known about calls that differ in the sizes of their tensors only. closed: why none is left open, if an
    export has tried in vain."""

    variants: list[Variant] = field(default_factory=list)
    closed: str | None = None

    def add(self, variant: Variant, wanted: Shapes) -> None:
        """wanted: the shapes that the variant's export was to leave open."""
        self.variants.insert(0, variant)
        if wanted.symbols and not variant.shapes.symbols:
            fixed = variant.contract["shapes"]["fixed"]
            self.closed = fixed[0][1] if fixed else None
