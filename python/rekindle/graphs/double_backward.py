"""Gives a backward with create_graph=True or is_grads_batched=True eager's own gradients of the same call.

These can be differentiated again, and mapped over.

An example: `y = model(x)` was run by a graph, and `torch.autograd.grad(y.sum(), x, create_graph=True)` follows. The session then
calls the DoubleBackward, which runs the forward of `model` once more in eager, on the same inputs and from the same random
state, and differentiates it. So the gradient of x has a history, and a second backward goes through eager's operators.
"""

from __future__ import annotations

import contextlib
import functools
import json
import weakref
from collections.abc import Iterator
from typing import Any

import torch

from rekindle import _native
from rekindle.export.request import Call
from rekindle.functions.inlining import checkpoints_inlined
from rekindle.graphs.snapshot import Snapshot
from rekindle.graphs.stand_ins import StandIns, differentiate, leads_to
from rekindle.modules.hooks import without_hooks
from rekindle.modules.module_tables import named_buffers, named_parameters, places_of
from rekindle.modules.partial_capture import as_made, run_eager
from rekindle.process.exporting import exporting
from rekindle.process.random_states import RandomStates, random_states, set_random_states
from rekindle.process.torch_internals import dispatch_keys, outside_of_transforms, version_kept, without_operator_modes
from rekindle.results.call_device import on_device
from rekindle.results.contract import flatten_outputs, is_like, rebuild_arguments
from rekindle.results.structure import WithAttributes
from rekindle.sizes.shapes import Shapes

_ROUNDING = 1e-5  # of buffers, relative
_Layout = tuple[torch.Size, tuple[int, ...], torch.dtype, torch.device]


def _zeros(layout: _Layout, sizes: list[int] | None) -> torch.Tensor:
    size, stride, dtype, device = layout
    if sizes is None or sizes == list(size):
        return torch.empty_strided(size, stride, dtype=dtype, device=device).zero_()
    return torch.zeros(sizes, dtype=dtype, device=device)


class DoubleBackward:
    """Runs the forward of one kind of call again in eager and differentiates it; called from the backward.

    call: one of that kind; none of its tensors is kept
    contract, shapes: of the entry
    gradient_of: positions of the graph's inputs that have a gradient
    guard: passes as long as the module is what it was at the forward; asked when the snapshot is restored
    snapshot: restores what the module and its surroundings were like then
    """

    def __init__(
        self,
        call: Call,
        contract: _native.Contract,
        shapes: Shapes,
        gradient_of: list[int],
        guard: Any,
        snapshot: Snapshot,
    ) -> None:
        self._module = call.module
        self._layouts = [(tensor.shape, tensor.stride(), tensor.dtype, tensor.device) for tensor in call.arguments]
        self._template = rebuild_arguments(call.args, call.kwargs, [torch.empty(0, device="cpu") for _ in call.arguments])
        self._state, self._used, self._writes = contract.state, contract.used, contract.writes
        silent = [contract.writes[place] - len(call.arguments) for place in contract.silent_writes]
        self._silent = {contract.state[position] for position in silent if position >= 0}  # names of buffers
        self._structure = on_device(contract.structure, call.device)
        self._attributes = contract.attributes
        registered = named_buffers(call.module)
        self._bound = {name: weakref.ref(one) for name, one in call.buffers.items() if name not in registered}
        self._shapes = shapes
        self._gradient_of = gradient_of
        self._guard, self._snapshot = guard, snapshot

    def __call__(
        self,
        inputs: list[torch.Tensor],
        random_states_before: RandomStates,
        cotangents: list[torch.Tensor | None],
        cut: list[int],
        ending: bool,
        undefined: list[int],
    ) -> list[torch.Tensor | None]:
        """Returns a gradient per `gradient_of` or, if `ending`, per result in `cut`; None for no gradient.

        inputs: those of the graph, which are the contract's `used`
        random_states_before: before the forward; empty when the graph draws nothing
        cotangents: one per result that requires a gradient; None where there is none
        cut: positions of results from which the backward goes on with their own cotangents only
        ending: whether what comes to these is asked for, and not the gradients of the inputs
        undefined: positions of results to which the backward comes without a gradient

        Raises RuntimeError if the module was changed since the forward, or returns another structure. See Replay and Cut in
        session/session.h.
        """
        every: list[torch.Tensor | None] = [None] * (len(self._layouts) + len(self._state))
        for position, tensor in zip(self._used, inputs, strict=True):
            every[position] = tensor
        create_graph, originals = torch.is_grad_enabled(), [inputs[i] for i in self._gradient_of]
        with without_operator_modes():
            arguments = self._arguments(every[: len(self._layouts)])
            ended = not create_graph or _has_to_end(arguments, originals, cotangents)
            stand_ins = StandIns(zip(originals, originals, strict=True)) if ended else None
            arguments, apart = self._apart(arguments, stand_ins)
        if stand_ins is not None and create_graph:
            cotangents = [None if cotangent is None else stand_ins.of(cotangent) for cotangent in cotangents]
        args, kwargs = rebuild_arguments(*self._template, arguments)
        own = [*arguments, *every[len(arguments) :]]
        wanted = [own[self._used[i]] for i in self._gradient_of]
        with as_made(self._module), self._snapshot.restored():
            # Of a re-entrant checkpoint eager has no second gradients, and no graph may have others.
            inlined = contextlib.nullcontext() if create_graph else checkpoints_inlined()
            with self._snapshot.switches(), torch.enable_grad(), outside_of_transforms(), inlined:
                self._check(every)
                outputs = self._forward(args, kwargs, arguments, every[len(self._layouts) :], random_states_before)
                ends, weights = _with_undefined(outputs, cotangents, undefined)
            with _cut(outputs, cotangents, cut) as coming, without_hooks(wanted), _ending_at(apart):
                gradients = differentiate(ends, wanted, weights, create_graph, retain_graph=create_graph)
            asked = [coming.get(i) for i in cut] if ending else gradients
            return asked if stand_ins is None or not create_graph else stand_ins.connected(asked)

    def _arguments(self, given: list[torch.Tensor | None]) -> list[torch.Tensor]:
        """Returns the arguments: those that are given, and zeros for the others, on which the graph does not depend."""
        layouts = zip(self._layouts, self._shapes.like(given), strict=True)
        return [
            # The forward may look up rows by it all the same.
            (_zeros(layout, sizes) if tensor is None else tensor)
            for tensor, (layout, sizes) in zip(given, layouts, strict=True)
        ]

    def _apart(self, arguments: list[torch.Tensor], stand_ins: StandIns | None) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """Returns the arguments, with views of those that have a history and copies of those that eager writes; and these alone.

        Eager may write to them, and a hook of an argument runs when the gradient gets there, not here. With `stand_ins`, these
        are without the history, in which a parameter may be, too: the backward would run it for that, and free what it saved.
        """
        views: dict[int, torch.Tensor] = {}
        with torch.enable_grad():
            for i, argument in enumerate(arguments):
                if i not in self._writes and (argument.grad_fn is None or id(argument) in views):
                    continue
                source = argument if stand_ins is None else stand_ins.of(argument)
                views[id(argument)] = source.clone() if i in self._writes else source.view_as(source)
        return [views.get(id(argument), argument) for argument in arguments], list(views.values())

    def _check(self, every: list[torch.Tensor | None]) -> None:
        live = {**named_parameters(self._module), **self._buffers()}
        state = enumerate(zip(self._state, every[len(self._layouts) :], strict=True))
        written = [position - len(self._layouts) for position in self._writes]  # the graph got copies of these
        same = all(given is None or i in written or live.get(name) is given for i, (name, given) in state)
        if not (same and self._guard.check()):
            raise RuntimeError(
                f"{type(self._module).__name__} was changed between a forward and its backward with create_graph=True; "
                "differentiate before changing the module"
            )

    def _buffers(self) -> dict[str, torch.Tensor]:
        """Returns the buffers of the module, and of the plain values that the graph takes as such those that are still there."""
        bound = {name: tensor for name, reference in self._bound.items() if (tensor := reference()) is not None}
        return named_buffers(self._module) | bound

    def _forward(
        self,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        arguments: list[torch.Tensor],
        state: list[torch.Tensor | None],
        random_states_before: RandomStates,
    ) -> list[torch.Tensor]:
        now = random_states()
        live = self._buffers()
        buffers = [(name, buffer, buffer.detach().clone()) for name, buffer in live.items()]
        versions = [(buffer, buffer._version) for _, buffer, _ in buffers]
        try:
            for position in self._writes:
                before = state[position - len(arguments)] if position >= len(arguments) else None
                if before is not None:
                    name = self._state[position - len(arguments)]
                    _put_back(live[name], before, name in self._silent)
            set_random_states(random_states_before)
            with _repeating():
                result = run_eager(self._module, args, kwargs)
        finally:
            set_random_states(now)
            for name, buffer, before in buffers:
                if not torch.equal(buffer, before):  # the call it repeats has written it already
                    _put_back(buffer, before, name in self._silent)
            _native.note_own_writes(versions)
        every = {**named_parameters(self._module), **live}
        if self._attributes:
            set_at = zip(self._attributes, places_of(self._module, self._attributes), strict=True)
            result = WithAttributes(result, [(title, table.get(name)) for (_, title), (table, name) in set_at])
        structure, outputs = flatten_outputs(result, [*arguments, *(every[name] for name in self._state)])
        if not is_like(self._structure, json.loads(json.dumps(structure))):
            raise RuntimeError(
                f"{type(self._module).__name__} returned another structure than in the forward that is differentiated"
            )
        return [output for output in outputs if output.requires_grad]


def _has_to_end(arguments: list[torch.Tensor], wanted: list[torch.Tensor], cotangents: list[torch.Tensor | None]) -> bool:
    """Tells whether a backward with create_graph=True to what is wanted would also run what is before the arguments.

    One that is mapped over cotangents may run it: the Function that goes on from stand-ins cannot be mapped over.
    """
    mapped = any(cotangent is not None and "Batched" in repr(dispatch_keys(cotangent)) for cotangent in cotangents)
    return not mapped and leads_to(arguments, wanted)


@contextlib.contextmanager
def _repeating() -> Iterator[None]:
    """Lets wrapped modules within run in eager: their graphs would take a buffer that is put back for one that the user wrote."""
    before, exporting.repeating = exporting.repeating, True
    try:
        yield
    finally:
        exporting.repeating = before


def _put_back(buffer: torch.Tensor, before: torch.Tensor, silently: bool) -> None:
    """Writes a buffer back, `silently` where the operator that writes it counts no version, as a batch norm does.

    Where only a graph's own rounding differs, what the repeated forward has saved of it stays good, too.
    """
    is_rounding = buffer.is_floating_point() and torch.allclose(buffer, before, rtol=_ROUNDING, atol=0.0)
    with torch.no_grad(), version_kept(buffer) if silently or is_rounding else contextlib.nullcontext():
        buffer.copy_(before)


@contextlib.contextmanager
def _ending_at(tensors: list[torch.Tensor]) -> Iterator[None]:
    """Lets a backward end at these, no leaves: it is asked for their gradients, and the outer one goes on from there."""

    def end(gradients: tuple[torch.Tensor | None, ...]) -> tuple[torch.Tensor | None, ...]:
        return tuple(None if gradient is None else torch.zeros_like(gradient) for gradient in gradients)

    hooks = [tensor.grad_fn.register_prehook(end) for tensor in tensors if tensor.grad_fn is not None]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


class _Ending(torch.autograd.Function):
    """Passes a tensor on, and no gradient back: PyTorch's engine then runs what has made the tensor with an undefined one."""

    @staticmethod
    def forward(ctx: Any, tensor: torch.Tensor) -> torch.Tensor:
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> None:
        return None


def _with_undefined(
    outputs: list[torch.Tensor], cotangents: list[torch.Tensor | None], undefined: list[int]
) -> tuple[list[torch.Tensor], list[torch.Tensor | None]]:
    """Returns outputs and cotangents of a backward that comes to some of the outputs with an undefined gradient."""
    outputs, cotangents = list(outputs), list(cotangents)
    for position in undefined:
        outputs[position] = _Ending.apply(outputs[position])
        cotangents[position] = torch.zeros_like(outputs[position])
    return outputs, cotangents


@contextlib.contextmanager
def _cut(
    outputs: list[torch.Tensor], cotangents: list[torch.Tensor | None], results: list[int]
) -> Iterator[dict[int, torch.Tensor]]:
    """Lets a backward go on from these results with their own cotangents only; yields what has come to each, by position."""
    coming: dict[int, torch.Tensor] = {}

    def go_on(position: int, gradient: torch.Tensor | None) -> torch.Tensor | None:
        if gradient is None:  # it comes to another result of the same operator
            return None
        coming[position] = gradient
        own = cotangents[position]
        return torch.zeros_like(gradient) if own is None else own

    hooks = [outputs[position].register_hook(functools.partial(go_on, position)) for position in results]
    try:
        yield coming
    finally:
        for hook in hooks:
            hook.remove()
