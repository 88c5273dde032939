"""Further calls of an exported module, with other numbers and other sizes: what a trace froze without a warning shows there."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from rekindle import _native
from rekindle.export.copies.private_copy import numbers_of, twin
from rekindle.export.request import ExportRequest
from rekindle.export.torchscript.module_state import attributes_kept, state_kept
from rekindle.functions.inlining import checkpoints_inlined
from rekindle.modules.partial_capture import run_eager
from rekindle.reasons import Bypass
from rekindle.results.contract import flatten_outputs
from rekindle.results.layouts import arranged_like, copied

_SEED = 20_011
_PERIOD = 65_537  # of the noise; a prime, so that rows of a matrix get other parts of it


@dataclass
class SecondCall:
    """What eager made of perturbed inputs. tensors: arguments, parameters and buffers before the call; structure, outputs: the
    result, see results/contract.py; random_states: of the CPU generator before and after; sizes: of symbols, where they differ.
    objects, numbers: as in Exported; None for the numbers of the export. bumped: places among the writes of what eager wrote in
    place, by torch's account."""

    tensors: list[torch.Tensor]
    structure: object
    outputs: list[torch.Tensor]
    random_states: tuple[torch.Tensor, torch.Tensor]
    objects: list[Any]
    sizes: Mapping[str, int] = field(default_factory=dict)
    numbers: list[int] | None = None
    bumped: list[int] = field(default_factory=list)


def perturbed_state(request: ExportRequest) -> dict[str, torch.Tensor]:
    """Copies of the parameters and buffers with other numbers."""
    generator = torch.Generator().manual_seed(_SEED)
    state = {**request.parameters, **request.buffers}
    return {name: _perturbed(tensor, generator, False) for name, tensor in state.items()}


def _with_state(request: ExportRequest, arguments: list[torch.Tensor], changed: Mapping[str, torch.Tensor]) -> list[torch.Tensor]:
    """Arguments, parameters and buffers of a call; an argument that is one of the module's tensors stays it."""
    state = {id(request.parameters.get(name, request.buffers.get(name))): tensor for name, tensor in changed.items()}
    own = [state.get(id(live), tensor) for live, tensor in zip(request.arguments, arguments, strict=True)]
    return [*own, *changed.values()]


def call_again(
    request: ExportRequest, writes: list[int], changed: Mapping[str, torch.Tensor], sizes: Mapping[str, int] | None = None
) -> SecondCall | None:
    """Run the module in eager once more on perturbed copies of everything, from another random state.

    writes: the arguments, parameters and buffers, by position, whose new contents are the last outputs. changed: the
    perturbed_state, which is not written to. sizes: of symbols of request.shapes that get another one; the arguments' own data
    is repeated or cut to them.

    Leaves the module, the arguments and the random state as they were. None if the forward does not take such inputs, as
    one that checks them: then they tell nothing.
    """
    generator = torch.Generator().manual_seed(_SEED)
    arguments = [_perturbed(tensor, generator, True) for tensor in resized(request, sizes or {})]
    before = torch.get_rng_state()
    try:
        torch.set_rng_state(torch.Generator().manual_seed(_SEED).get_state())
        states = [torch.get_rng_state()]
        tensors = _with_state(request, arguments, changed)
        objects: list[Any] = []
        bumped: list[int] = []
        structure, outputs = _run(request, writes, tensors, objects, bumped)
        states.append(torch.get_rng_state())
    except Bypass:
        raise
    except Exception as error:  # of the user's forward, which may well refuse numbers that nobody gave it
        _native.log_debug(f"{type(request.module).__name__} was not tried on perturbed inputs: {type(error).__name__}: {error}")
        return None
    finally:
        torch.set_rng_state(before)
    return SecondCall(tensors, structure, outputs, (states[0], states[1]), objects, sizes or {}, bumped=bumped)


def _run(
    request: ExportRequest, writes: list[int], tensors: list[torch.Tensor], objects: list[Any], bumped: list[int]
) -> tuple[Any, list[torch.Tensor]]:
    """(structure, outputs) as of the graph, of eager's call with `tensors`: arguments, parameters and buffers, none written.
    Adds to `objects` and `bumped` as SecondCall has them."""
    first_buffer = len(request.arguments) + len(request.parameters)
    private: dict[int, torch.Tensor] = {}
    for i, tensor in enumerate(tensors):
        if i in writes or i >= first_buffer:
            private.setdefault(id(tensor), numbers_of(tensor))
    every = [private.get(id(tensor), tensor) for tensor in tensors]
    copy, versions = request.around(every), [every[i]._version for i in writes]
    with attributes_kept(copy.module), state_kept(copy.module), torch.set_grad_enabled(request.grad):
        result = run_eager(copy.module, copy.args, copy.kwargs)
    structure, outputs = flatten_outputs(result, every, objects, own=copy.own)
    bumped += [place for place, i in enumerate(writes) if every[i]._version != versions[place]]
    return structure, outputs + [every[i].detach() for i in writes]


def outputs_again(
    request: ExportRequest, writes: list[int], tensors: list[torch.Tensor], effects: int
) -> list[torch.Tensor | None]:
    """What the graph gives for `tensors`, as in SecondCall, from eager; None for its `effects` (see Exported)."""
    with checkpoints_inlined():  # PyTorch does not differentiate reentrant ones by some tensors only
        outputs = _run(request, writes, tensors, [], [])[1]
    end = len(outputs) - len(writes)
    return [*outputs[:end], *([None] * effects), *outputs[end:]]


def resized(request: ExportRequest, sizes: Mapping[str, int]) -> list[torch.Tensor]:
    """The arguments with other sizes of symbols."""
    made = []
    for tensor, dims in zip(request.arguments, request.shapes.dims, strict=True):
        changed = tensor.detach()
        for axis, dim in enumerate(dims):
            if isinstance(dim, str) and dim in sizes:
                changed = changed.index_select(axis, torch.arange(sizes[dim]) % tensor.shape[axis])
        same = changed.shape == tensor.shape
        made.append(tensor if same else arranged_like(changed, tensor).requires_grad_(tensor.requires_grad))
    return made


def _perturbed(tensor: torch.Tensor, generator: torch.Generator, is_argument: bool) -> torch.Tensor:
    """A copy with other numbers of the same kind: signs, zeros and infinities stay, integers are exchanged among each other."""

    def change(copy: torch.Tensor) -> None:
        if copy.is_floating_point() or copy.is_complex():
            noise = torch.rand(min(copy.numel(), _PERIOD), generator=generator, dtype=torch.float64)
            copy.mul_(_filling(0.5 + noise, copy))
            if isinstance(tensor, nn.Parameter):  # where zeros are numbers like others
                copy.add_(_filling(0.02 * (noise - 0.5), copy))
        elif is_argument and copy.dtype is not torch.bool and copy.numel() > 1:
            order = torch.randperm(copy.numel(), generator=generator)
            copy.copy_(copy.reshape(-1)[order].reshape(copy.shape))

    changed = copied(tensor, change)
    return twin(tensor, changed.detach()) if isinstance(tensor, nn.Parameter) else changed


def _filling(numbers: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The numbers, over and over, in the shape and dtype of another tensor."""
    if numbers.numel() == 0:
        return torch.empty_like(like)
    times = -(-like.numel() // numbers.numel())
    return numbers.to(like.dtype).repeat(times)[: like.numel()].reshape(like.shape)
