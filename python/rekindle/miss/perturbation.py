"""Calls an exported module again, with other numbers and other sizes: what a trace froze without a warning shows there.

An example: the float argument [1.0, 0.0, inf, -2.0] becomes [1.3, 0.0, inf, -1.4], say: each number times one between 0.5 and
1.5. The int64 argument [3, 5, 7] becomes [7, 3, 5], say, and an integer buffer stays as it is.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from rekindle import _native
from rekindle.errors import ran_out_of_memory
from rekindle.export.copies.private_copy import numbers_of, twin
from rekindle.export.copies.set_attributes import SetAttributes
from rekindle.export.request import Call, ExportRequest
from rekindle.export.torchscript.module_state import state_kept
from rekindle.export.traced import Effects
from rekindle.functions.inlining import checkpoints_inlined
from rekindle.functions.joined_results import refuse_parted
from rekindle.miss.index_checks import checked_indices
from rekindle.modules.partial_capture import run_eager
from rekindle.process.nothing_saved import SavedNothing, nothing_saved
from rekindle.process.random_states import RandomStates, random_states, seed_random_states, set_random_states
from rekindle.reasons import Bypass, Reason
from rekindle.results.contract import flatten_outputs
from rekindle.results.layouts import arranged_like, copied, is_dense
from rekindle.sizes.shapes import Shapes

_SEED = 20_011
_PERIOD = 65_537  # of the noise; a prime, so that rows of a matrix get other parts of it


@dataclass(frozen=True)
class Outcome:
    """Holds what eager makes of a call."""

    structure: object  # of the result, see results/contract.py
    outputs: list[torch.Tensor]  # of the result, then what is left in the tensors that are written
    objects: list[Any]  # as in Result of export/traced.py
    bumped: list[int]  # places among these tensors of those that eager wrote in place, by torch's account
    # Arguments, parameters and buffers, as the module had them: what is written and buffers without a gradient are copies.
    held: list[torch.Tensor]
    constants: list[torch.Tensor]  # what the module had for the request's


@dataclass(frozen=True)
class SecondCall(Outcome):
    """Holds what eager made of perturbed inputs."""

    tensors: list[torch.Tensor]  # arguments, parameters and buffers before the call
    random_states: tuple[RandomStates, RandomStates]  # before and after
    sizes: Mapping[str, int] = field(default_factory=dict)  # of symbols, where they differ from the call's
    numbers: list[int] | None = None  # as in Result of export/traced.py; None for those of the export
    is_light: bool = False  # whether its autograd graph was let go


def perturbed_state(call: Call) -> dict[str, torch.Tensor]:
    """Returns copies of the parameters and buffers with other numbers."""
    generator = torch.Generator("cpu").manual_seed(_SEED)
    return {name: _perturbed(tensor, generator, False) for name, tensor in call.state.items()}


def _with_state(call: Call, arguments: list[torch.Tensor], changed: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
    """Returns the arguments, parameters and buffers of a call; an argument that is one of the module's tensors stays it."""
    state = {id(call.parameters.get(name, call.buffers.get(name))): tensor for name, tensor in changed.items()}
    own = [state.get(id(live), tensor) for live, tensor in zip(call.arguments, arguments, strict=True)]
    return [*own, *changed.values()]


def call_again(
    request: ExportRequest,
    effects: Effects,
    changed: Mapping[str, torch.Tensor],
    arguments: Sequence[torch.Tensor] | None = None,
    light: bool = False,
) -> SecondCall | None:
    """Runs the module in eager once more on perturbed copies of everything, from another random state.

    effects: those of the traced forward
    changed: the perturbed_state, which is not written to
    arguments: those in the place of the call's, at other sizes (see resized)
    light: whether nothing is saved for a backward; raises SavedNothing where the forward runs one itself

    Leaves the module, the arguments and the random state as they were. Returns None if the forward does not take such inputs, as
    one that checks them: then they tell nothing.
    """
    call, generator = request.call, torch.Generator("cpu").manual_seed(_SEED)
    arguments = [_perturbed(x, generator, True) for x in (call.arguments if arguments is None else arguments)]
    before = random_states()
    try:
        seed_random_states(_SEED)
        states = [random_states()]
        tensors = _with_state(call, arguments, changed)
        with checked_indices(tensors), nothing_saved() if light else contextlib.nullcontext():
            made = _run(request, effects, tensors)
        states.append(random_states())
    except (Bypass, SavedNothing):
        raise
    except Exception as error:  # of the user's forward, which may well refuse numbers that nobody gave it
        if ran_out_of_memory(error):
            raise
        _native.log_debug(f"{type(call.module).__name__} was not tried on perturbed inputs: {type(error).__name__}: {error}")
        return None
    finally:
        set_random_states(before)
    return SecondCall(**vars(made), tensors=tensors, random_states=(states[0], states[1]))


def call_lightly(
    request: ExportRequest, effects: Effects, changed: Mapping[str, torch.Tensor], arguments: Sequence[torch.Tensor]
) -> SecondCall | None:
    """Runs the module as call_again does, and saves nothing for a backward, unless the forward runs one itself."""
    try:
        return call_again(request, effects, changed, arguments, light=True)
    except SavedNothing:
        return call_again(request, effects, changed, arguments)


def _run(request: ExportRequest, effects: Effects, tensors: list[torch.Tensor]) -> Outcome:
    """Makes eager's call with `tensors`: arguments, parameters and buffers, none written."""
    writes = effects.writes
    first_buffer = len(request.call.arguments) + len(request.call.parameters)
    private: dict[int, torch.Tensor] = {}
    for i, tensor in enumerate(tensors):
        if i in writes or (i >= first_buffer and not tensor.requires_grad):  # eager is differentiated by the others
            private.setdefault(id(tensor), numbers_of(tensor))
    every = [private.get(id(tensor), tensor) for tensor in tensors]
    copy, versions = request.copies.around(every), [every[i]._version for i in writes]
    attributes = SetAttributes(copy)
    with state_kept(copy.module), torch.set_grad_enabled(copy.grad), _own_casts():
        result = run_eager(copy.module, copy.args, copy.kwargs)
    result = attributes.with_result(result)
    if attributes.places != effects.attributes:
        raise Bypass(Reason.STATE_MUTATED, "the forward sets other attributes for other numbers in the inputs")
    objects: list[Any] = []
    structure, outputs = flatten_outputs(result, every, objects, own=copy.own)
    refuse_parted(outputs)
    bumped = [place for place, i in enumerate(writes) if every[i]._version != versions[place]]
    constants = [copy.copied.get(id(live), live) for _, live in request.constants]
    return Outcome(structure, outputs + [every[i].detach() for i in writes], objects, bumped, every, constants)


@contextlib.contextmanager
def _own_casts() -> Iterator[None]:
    """Lets autocast cast each tensor anew within the block, where it is read, and keep none of these casts after it.

    In a region of the caller's, autocast would go on with the casts of an earlier run: a backward reaches these last.
    """
    torch.clear_autocast_cache()
    try:
        yield
    finally:
        torch.clear_autocast_cache()


def outputs_again(request: ExportRequest, effects: Effects, tensors: list[torch.Tensor]) -> list[torch.Tensor | None]:
    """Returns what the graph gives for `tensors`, as in SecondCall, from eager; None for what is kept for its effects only."""
    with checkpoints_inlined():  # PyTorch does not differentiate reentrant ones by some tensors only
        outputs = _run(request, effects, tensors).outputs
    return as_of_graph(outputs, effects)


def as_of_graph(outputs: list[torch.Tensor], effects: Effects) -> list[torch.Tensor | None]:
    """Returns eager's outputs where the graph has them; None for what is kept for its effects only."""
    end = len(outputs) - len(effects.writes)
    return [*outputs[:end], *([None] * effects.kept), *outputs[end:]]


def resized(arguments: Sequence[torch.Tensor], shapes: Shapes, sizes: Mapping[str, int]) -> list[torch.Tensor]:
    """Returns the arguments of a call with other sizes of some symbols of `shapes`; their own data is repeated or cut to them."""
    made = []
    for tensor, dims in zip(arguments, shapes.dims, strict=True):
        changed = tensor.detach()
        for axis, dim in enumerate(dims):
            if isinstance(dim, str) and dim in sizes:
                changed = changed.index_select(axis, torch.arange(sizes[dim], device=tensor.device) % tensor.shape[axis])
        same = changed.shape == tensor.shape
        made.append(tensor if same else arranged_like(changed, tensor).requires_grad_(tensor.requires_grad))
    return made


def resized_metas(arguments: Sequence[torch.Tensor], shapes: Shapes, sizes: Mapping[str, int]) -> list[torch.Tensor]:
    """Returns meta tensors with the dtypes and sizes, and nothing else, of what `resized` returns."""
    made = []
    for tensor, dims in zip(arguments, shapes.dims, strict=True):
        shape = [sizes.get(dim, own) if isinstance(dim, str) else own for dim, own in zip(dims, tensor.shape, strict=True)]
        made.append(torch.empty(shape, dtype=tensor.dtype, device="meta"))
    return made


def _perturbed(tensor: torch.Tensor, generator: torch.Generator, is_argument: bool) -> torch.Tensor:
    """Copies a tensor with other numbers of the same kind.

    Signs, zeros and infinities stay, but a parameter's zeros change; integers are exchanged among each other.
    """

    def change(copy: torch.Tensor) -> None:
        if copy.is_floating_point() or copy.is_complex():
            noise = torch.rand(min(copy.numel(), _PERIOD), generator=generator, dtype=torch.float64, device="cpu")
            factors, addends = (x.to(copy.dtype).to(copy.device) for x in (0.5 + noise, 0.02 * (noise - 0.5)))
            flat = copy.as_strided((copy.numel(),), (1,)) if is_dense(copy) else copy.view(-1)
            for part in flat.split(_PERIOD):  # one that caches hold
                part.mul_(factors[: part.numel()])
                if isinstance(tensor, nn.Parameter):  # where zeros are numbers like others
                    part.add_(addends[: part.numel()])
        elif is_argument and copy.dtype is not torch.bool and copy.numel() > 1:
            order = torch.randperm(copy.numel(), generator=generator, device="cpu").to(copy.device)
            copy.copy_(copy.reshape(-1)[order].reshape(copy.shape))

    changed = copied(tensor, change)
    return twin(tensor, changed.detach()) if isinstance(tensor, nn.Parameter) else changed
