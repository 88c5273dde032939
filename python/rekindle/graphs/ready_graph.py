"""Runs one graph, for calls that it is right for.

An example: an nn.Linear(16, 4) is called with x of shape [8, 16]. Its graph has the inputs x, weight and bias; the
last two are its `state`. `run([x])` has the session run the graph on the three and rebuilds the result, the one output of shape
[8, 4]. After `weight.requires_grad_(False)`, `ready([x])` is False: the guard finds weight changed.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import torch

from rekindle import _native
from rekindle.errors import OF_TORCH, first_line, ran_out_of_memory
from rekindle.export.request import Call
from rekindle.functions.binding import bind
from rekindle.graphs.answers import check_answers, not_for_this_data, numbers_of
from rekindle.graphs.double_backward import DoubleBackward
from rekindle.graphs.guard_inputs import Watched, containers_told_apart
from rekindle.graphs.shared_memory import Memory, versions_of
from rekindle.graphs.snapshot import Snapshot
from rekindle.key.fingerprint import Fingerprint
from rekindle.key.values.registered import still_registered
from rekindle.modules.module_tables import named_modules, places_of
from rekindle.reasons import Bypass, Reason, SharedMemory
from rekindle.recording import cached_functions
from rekindle.recording.observations import verify
from rekindle.results.call_device import on_device
from rekindle.results.rebuilding import Structure
from rekindle.sizes.shapes import Shapes, sizes_of

_MOST_NUMBERS = 1024  # sets of sizes whose numbers a graph remembers; beyond, all are forgotten and computed again


@dataclass(eq=False)
class ReadyGraph:
    """Runs one graph, and knows what must still hold for it to be right."""

    prekey: str  # under which it was found or made
    observations: list[Any]  # what has to hold, beside the key
    session: Any  # the _native.Session that runs the graph
    contract: _native.Contract  # how a call, the graph and the result correspond
    source: str  # where it came from: "local", "remote" or "export"
    entry: str | None  # id of its entry; empty if that was not published yet
    guards: Any = None  # the _native.SizeQuestions that it asks, if it asks any
    guard: Any = None  # the _native.Guard of a call; None: it has to be armed
    modes: dict[str, Any] = field(default_factory=dict)  # see _modes; when it was armed
    memory: Any = None  # the Memory of what the graph writes, and who else sees it; None: it has to be armed
    containers: frozenset[int] = frozenset()  # ids of those that it depends on, where calls are given some; when it was armed
    registered: list[tuple[Any, str]] = field(default_factory=list)  # values, with digests, that no guard can compare
    state: list[torch.Tensor] = field(default_factory=list)  # parameters and buffers of the module, in the contract's order
    bound: list[torch.Tensor] = field(default_factory=list)  # those at its end that the module has as plain values
    served: Any = None  # runs calls that need no look at the outputs; None: run does
    keeps_random_state: bool = False  # whether run may raise after random numbers were drawn
    failures: int = 0  # runs that raised an error where eager did not
    numbers: dict[tuple[torch.Size, ...], list[int]] = field(default_factory=dict)  # in the result, by sizes

    def __post_init__(self) -> None:
        contract = self.contract  # each read of a field of it makes a copy
        self.structure: Structure | None = None  # None: it has to be armed
        self._attributes = contract.attributes
        self._set_at: list[tuple[dict[str, Any], str]] = []  # where the attributes are that it sets; when it was armed
        self.used, self.record = contract.used, contract.grad
        self.writes, self._calls_functions = contract.writes, bool(contract.functions)
        self._state_writes = _native.StateWrites(contract.writes, contract.silent_writes, contract.saved_writes)
        self.numbers_at_export: list[int] = contract.shapes.numbers
        self.data_guards, self.sized_by_data = contract.data_guards, contract.sized_by_data
        self.shapes = Shapes.observed(self.observations)

    def arm(self, fingerprint: Fingerprint, call: Call) -> None:
        """Binds the module's live state and remembers what it looks like. Raises Bypass where it cannot serve the call."""
        state = call.state
        self.state = [state[name] for name in self.contract.state]
        self.bound = [*fingerprint.bound.values()]
        self.bind_functions(call.module, call.device)
        described = on_device(self.contract.structure, call.device)
        self.structure = Structure(described)
        self._set_at = places_of(call.module, self._attributes)
        writes_arguments = any(i < len(call.arguments) for i in self.writes)
        self.keeps_random_state = bool(self.contract.functions) or writes_arguments or self.depends_on_data or self.contract.draws
        cached_functions.ask_again(self.observations)
        self.served = self._served(described)
        watched = Watched(fingerprint, self.observations)
        self.registered = watched.registered
        cells = watched.cells
        self.guard = _native.Guard([], self.state, watched.items, cells, watched.weak)
        self.modes = _modes(call.module)
        self.containers = containers_told_apart(call, cells)
        writes = [i - len(call.arguments) for i in self.writes]
        self.session.set_constants(self._saved_constants(watched.tensors))
        constants = [value for value, how in cells if how == "bytes"]
        self.memory = Memory(self.state, constants, call.arguments, writes, self.record)
        if any(i >= 0 for i in writes) and (shared := self.memory.shared([])) is not None:
            message = f"the forward writes in place to {self._name(shared)}, whose memory is also seen otherwise; clone it there"
            raise Bypass(Reason.BUFFER_MUTATED, message)
        if self.record:
            containers = [value for value, how in cells if how != "weak"]
            snapshot = Snapshot(call.module, state.values(), containers, watched.weak, fingerprint.unread)
            self.session.set_replay(
                DoubleBackward(call, self.contract, self.shapes, self.session.gradient_of, self.guard, snapshot)
            )

    def _saved_constants(self, found: list[tuple[str, torch.Tensor]]) -> list[torch.Tensor]:
        """Returns the plain tensors that eager's backward reads; `found`: those that the module leads to, with their names."""
        names = [name for name, _ in found]
        for name in self.contract.saved_constants:
            if names.count(name) != 1:
                message = f"a backward reads the plain tensor {name}, which is not there, or not alone; register it as a buffer"
                raise Bypass(Reason.OPAQUE_VALUE, message)
        return [found[names.index(name)][1] for name in self.contract.saved_constants]

    def _served(self, described: Any) -> Any:
        if self.depends_on_data or self.numbers_at_export or (self._calls_functions and self.writes):
            return None
        return self.session.served_call(self.state, self.used, self.record, self._state_writes, described)

    def bind_functions(self, module: torch.nn.Module, device: torch.device) -> None:
        """Lets the graphs call the autograd Functions that they name. Raises Bypass(python_op) for one that is not there.

        device: of the calls
        """
        functions = [bind(call, module, device) for call in self.contract.functions]
        self.session.set_functions(functions)
        if self.guards is not None:
            self.guards.set_functions(functions)

    def ready(self, arguments: list[torch.Tensor]) -> bool:
        """Tells whether the graph is right now for a call, by identity of what it depends on."""
        guard, memory = self.guard, self.memory  # another thread may release them
        return (
            guard is not None
            and memory is not None
            and memory.fits(arguments)
            and guard.check()
            and (not self.registered or all(still_registered(value, digest) for value, digest in self.registered))
        )

    def release(self, module: torch.nn.Module) -> None:
        """Lets go of what the module has let go of: weak references to it would tell. The graph then has to be armed again.

        A graph for another mode, as of `eval`, is kept as it is, for that mode comes again.
        """
        if self.guard is None or self.guard.check():
            return
        now = _modes(module)
        if all(now.get(name, mode) == mode for name, mode in self.modes.items()):
            self.guard, self.memory, self.registered, self.state, self.bound, self.served = None, None, [], [], [], None
            self._set_at = []
            self.session.set_replay(None)

    def fits(self, prekey: str, fingerprint: Fingerprint) -> bool:
        """Tells whether the graph is right for the call of a fingerprint and its key, by content."""
        return self.prekey == prekey and verify(self.observations, fingerprint.places) is None

    def admits(self, arguments: list[torch.Tensor], state: list[torch.Tensor]) -> bool:
        """Tells whether the graph is for arguments of these sizes, and has a plan for them; `state`: parameters and buffers."""
        sizes = sizes_of(arguments)
        if self.shapes.bind(sizes) is None:
            return False
        if sizes == self.contract.shapes.sizes:
            return True
        every = [*arguments, *state]
        if max(self.used, default=0) >= len(every):  # the module has lost state since
            return False
        if self._numbers_at(arguments, state) is None:
            return False
        inputs = [every[i] for i in self.used]
        try:
            self.session.prepare(inputs, self.record)
        except OF_TORCH as error:
            if ran_out_of_memory(error):
                raise
            _native.log_debug(f"a graph has no plan for sizes {sizes}: {first_line(error)}")
            return False
        return True

    def _numbers_at(self, arguments: list[torch.Tensor], state: list[torch.Tensor]) -> list[int] | None:
        """Returns the numbers in the result that depend on sizes; None if the graph is not for the sizes of these arguments."""
        if self.guards is None:
            return []
        every = [*arguments, *state]
        expected = [value for *_, value in self.contract.shapes.guards]
        return numbers_of(self.guards, expected, [every[i] for i in self.used])

    def _numbers(self, arguments: list[torch.Tensor]) -> list[int]:
        """Returns the numbers in the result of a call that the graph is for."""
        if not self.numbers_at_export or not self.shapes.symbols:
            return self.numbers_at_export
        sizes = tuple(tensor.shape for tensor in arguments)
        found = self.numbers.get(sizes)
        if found is None:
            found = self._numbers_at(arguments, self.state)
            if found is None:
                raise RuntimeError(f"a graph was run at sizes {sizes}, which it is not for")
            if len(self.numbers) >= _MOST_NUMBERS:
                self.numbers.clear()
            self.numbers[sizes] = found
        return found

    def run(self, arguments: list[torch.Tensor]) -> Any:
        """Returns the module's result for a call's tensors, in flattening order; writes what eager writes.

        That are buffers, arguments and attributes. Raises Bypass when the graph is not for this call; they are then as before.
        """
        result = self._result(arguments)
        if not self._set_at:
            return result
        result, *values = result
        for (table, name), value in zip(self._set_at, values, strict=True):
            table[name] = value
        return result

    def _result(self, arguments: list[torch.Tensor]) -> Any:
        """Returns what the structure describes: the result, and what attributes are set to where any are."""
        if self.writes and (shared := self.memory.shared(arguments)) is not None:
            raise SharedMemory(self._name(shared))
        if (served := self.served) is not None:
            try:
                return served(arguments)
            except OF_TORCH as error:
                self._raise_bypass(error)
                raise
        inputs = arguments + self.state
        if self.writes:
            return self._run_and_write(inputs, arguments)
        outputs = self._forward(inputs)
        return self.structure.rebuild(outputs, inputs, self._numbers(arguments))

    def plan_memory(self, arguments: list[torch.Tensor]) -> tuple[Any, list[torch.Tensor]]:
        """Returns where the bytes of a call go, as a _native.MemoryAccount, and which tensors the call writes; runs nothing.

        Makes the plan for the sizes of the call where there is none. Raises Bypass when the graph is not for the call.
        """
        inputs = arguments + self.state
        written = [inputs[position] for position in self.writes]
        for position, copy in zip(self.writes, _native.copies_of(written), strict=True):
            inputs[position] = copy  # laid out as in a run
        try:
            return self.session.memory([inputs[i] for i in self.used], self.record), written
        except OF_TORCH as error:
            self._raise_bypass(error)
            raise

    @property
    def depends_on_data(self) -> bool:
        """Tells whether it is up to the data of a call if the graph is for it."""
        return bool(self.data_guards) or self.sized_by_data

    def _forward(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        used = [inputs[i] for i in self.used]
        try:
            outputs = self.session.forward(used, self.record)
        except OF_TORCH as error:
            self._raise_bypass(error)
            raise
        check_answers(self.data_guards, len(self.writes), outputs)
        return outputs

    def _raise_bypass(self, error: Exception) -> None:
        """Raises Bypass if an error of a run means that the graph is not for the call; otherwise returns."""
        if ran_out_of_memory(error):
            return
        if isinstance(error, _native.PlanMismatch) and not self.contract.functions:
            raise Bypass(Reason.UNSUPPORTED_OP, first_line(error)) from error
        if self.depends_on_data:  # where eager branches, or checks, the graph goes on
            raise not_for_this_data(self.data_guards, error) from error

    def _name(self, position: int) -> str:
        """Names a tensor that the graph writes, for a person; `position`: among the module's, negative for arguments."""
        return "an input" if position < 0 else f"the buffer {self.contract.state[position]}"

    def _run_and_write(self, inputs: list[torch.Tensor], arguments: list[torch.Tensor]) -> Any:
        """Runs on copies of what is written, as the backward may read what it held before, then writes it: all or nothing."""
        given = list(inputs)
        written = [inputs[position] for position in self.writes]
        before, versions = _native.copies_of(written), versions_of(written) if self._calls_functions else []
        for position, copy in zip(self.writes, before, strict=True):
            given[position] = copy
        outputs = self._forward(given)
        if self._calls_functions and (now := versions_of(written)) != versions:
            _native.write_back(written, before)  # eager runs the call again
            name = self._name(next(at - len(arguments) for at, *pair in zip(self.writes, versions, now) if pair[0] != pair[1]))
            raise Bypass(Reason.PYTHON_OP, f"an autograd Function writes to {name}, which the forward writes as well")
        self._state_writes.write(written, before, outputs)
        try:
            return self.structure.rebuild(outputs, inputs, self._numbers(arguments))
        except Exception:
            _native.write_back(written, before)  # eager runs the call again
            raise


def _modes(module: torch.nn.Module) -> dict[str, Any]:
    """Returns what programs switch to and fro: the training of every module by its name, and the ambient state of torch."""
    return {"ambient state": _native.ambient_state()} | {name: child.training for name, child in named_modules(module).items()}
