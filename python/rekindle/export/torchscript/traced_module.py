"""Shows torch's tracer the module as a function of tensors, and keeps what its one run left besides its outputs.

An example: a forward adds 1 in place to the buffer `steps` and, after `if n > 3`, returns `x * n` for an open size n. The outputs
are [x * n, steps, answers]; the vector `answers` has the one number n > 3.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from rekindle.export.copies.set_attributes import SetAttributes
from rekindle.export.request import Call, ExportRequest
from rekindle.export.torchscript.function_nodes import Functions
from rekindle.export.torchscript.module_state import state_kept
from rekindle.export.torchscript.result_checks import check_held, check_new
from rekindle.export.trace.assumptions import Assumptions
from rekindle.export.trace.data_sizes import DataSizes
from rekindle.export.trace.messages import is_for_message
from rekindle.export.trace.open_sizes import OpenSizes, following
from rekindle.export.trace.trace_mode import TraceMode
from rekindle.export.trace.traced_booleans import take_for_numbers
from rekindle.export.trace.user_place import user_place
from rekindle.export.trace.view_records import steps_in_result
from rekindle.export.traced import Effects, Result
from rekindle.export.unchecked import Allowed
from rekindle.modules.partial_capture import run_eager
from rekindle.process.left_settings import left_settings, set_by
from rekindle.process.random_states import RandomStates, random_states
from rekindle.process.torch_internals import set_exporter_log, traced_graph, under_function_modes, untold_of_export, untraced
from rekindle.reasons import Bypass, Reason, SmallByData
from rekindle.results import structure
from rekindle.results.contract import flatten_arguments, flatten_outputs
from rekindle.results.layouts import sharing
from rekindle.sizes.traced_sizes import Guard, SizeTrace, stacked


@dataclass(frozen=True)
class Findings:
    """Holds what a traced forward left, besides the graph."""

    result: Result
    effects: Effects
    random_states: RandomStates  # after it
    sizes: SizeTrace  # what it asked of sizes
    data_guards: list[Guard]  # what it asked of those that depend on data
    sized_by_data: bool  # whether there are any of these
    autocast_dtypes: frozenset[torch.dtype]  # those in which autocast computed some of it
    allowed: Allowed  # what it may be tried on besides the call


class TracedModule(nn.Module):
    """Runs the module as a function of tensors: arguments, parameters, buffers. Holds no parameter of its own."""

    def __init__(self, request: ExportRequest, functions: Functions, private: Call) -> None:
        super().__init__()
        self.request, self.functions, self.private = request, functions, private  # private: the copy that runs
        self.modes: list[Any] = []  # of the user, to be put around the forward; the exporter's own code runs without them
        self.found: Findings | None = None  # of the last run; None before

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Returns the outputs of `found` and, if the forward asked for sizes, the answers as one vector."""
        set_exporter_log(False)  # the exporter has just switched it on, whatever it was told
        versions = [tensor._version for tensor in tensors]
        sizes, data, assumptions = SizeTrace(user_place, is_for_message), DataSizes(), Assumptions()
        attributes = SetAttributes(self.private)
        with under_function_modes(self.modes):
            mode, result = self._run(tensors, sizes, data, assumptions)
        result = attributes.with_result(result)
        if mode.views is not None:
            mode.views.follow_products(
                flatten_arguments(tuple(result) if type(result) is structure.WithAttributes else (result,), {})
            )
        objects: list[Any] = []
        with untraced():
            steps = functools.partial(steps_in_result, mode.views, sizes, data)
            layout, outputs = flatten_outputs(result, list(tensors), objects, sizes.number, steps, self.private.own)
            mode.check_views(layout)
            check_new(outputs, tensors)
            check_held(outputs, self._plain_tensors())
        mode.failed_calls.check()
        mode.checkpoint_writes.check()
        _check_numbers(sizes, data)
        mode.renew([*outputs, *tensors])
        writes = [i for i, (tensor, version) in enumerate(zip(tensors, versions, strict=True)) if tensor._version != version]
        with untraced():
            shared = sharing(writes, self.request.call.tensors)
        written = [_written(i, tensors, self.request.call, shared.get(i)) for i in writes]
        effects = self.functions.unread([*outputs, *written])
        if not (outputs or effects or written):
            raise Bypass(Reason.UNSUPPORTED_OUTPUT, "the module returned no tensor that was computed")
        of_data = sizes.split_off(data.reach)
        _check_small(of_data, self.request.plan.small_sizes)
        guards = of_data + assumptions.guards(self.functions.calls, mode.allowed)
        checked = stacked(guards)
        if checked is not None:
            effects.append(checked)
        outputs += effects + written
        result = Result(layout, outputs, [number.value for number in sizes.numbers], objects)
        self.found = Findings(
            result, Effects(len(effects), writes, attributes.places), random_states(), sizes, guards, data.any,
            frozenset(mode.autocast_dtypes), mode.allowed,
        )  # fmt: skip
        answers = sizes.answers()
        take_for_numbers(traced_graph())
        return tuple(outputs) if answers is None else (*outputs, answers)

    def _plain_tensors(self) -> Iterator[tuple[str, torch.Tensor]]:
        """Yields the tensors of the copy that are none of the graph's inputs."""
        inputs = set(map(id, self.private.tensors))
        for copy in self.private.copied.values():
            if isinstance(copy, torch.Tensor) and id(copy) not in inputs:
                yield f"of shape {tuple(copy.shape)} that the module holds", copy

    def _run(
        self, tensors: tuple[torch.Tensor, ...], sizes: SizeTrace, data: DataSizes, assumptions: Assumptions
    ) -> tuple[TraceMode, Any]:
        """Runs the module on `tensors`; gives the mode it ran under, and its result."""
        request, call, functions = self.request, self.private, self.functions
        if not {id(tensor) for tensor in call.tensors}.issubset(map(id, tensors)):
            raise Bypass(Reason.EXPORT_FAILED, "the exporter runs the module on other tensors than it was given")
        arguments, args, kwargs = call.arguments, call.args, call.kwargs
        shapes = request.plan.shapes
        given = structure.snapshot((args, kwargs))
        follows = bool(shapes.symbols) or request.plan.data_sizes
        dims = zip(arguments, shapes.open_dims(), strict=True)
        opened = OpenSizes(sizes, list(dims), call.tensors[len(arguments) :]) if follows else None
        mode = TraceMode(call, opened, data, assumptions, functions.note_draw)
        functions.follow(opened, data, mode)
        before = left_settings()
        with request.watch, state_kept(call.module), untold_of_export(), functions.recorded(), following(follows), mode:
            result = run_eager(call.module, args, kwargs)
            left = set_by(before)
        if left is not None:
            raise Bypass(Reason.SIDE_EFFECT, f"the forward leaves another setting of {left} than it found; set it outside")
        if not structure.same_items(given, (args, kwargs)):
            raise Bypass(Reason.INPUT_MUTATED, "the forward changes a container that it was given; return what it adds")
        return mode, result


def _check_numbers(sizes: SizeTrace, data: DataSizes) -> None:
    """Raises Bypass(unsupported_output) for a number in the result that depends on data: it comes after the structure."""
    for number in sizes.numbers:
        if data.reach(number.traced):
            message = f"the result has the size {number.value}, which depends on data; return a tensor of it"
            raise Bypass(Reason.UNSUPPORTED_OUTPUT, message)


def _check_small(guards: list[Guard], may_be: bool) -> None:
    """Raises SmallByData where a size of 0 or 1 depends on data, unless it may be: the graph is for this size only."""
    if (small := next((guard for guard in guards if guard.is_small), None)) is not None and not may_be:
        what = f"{small.where} makes a tensor with {small.what}, which depends on data"
        raise SmallByData(f"{what}; the graph is made of a call that has more")


def _written(position: int, tensors: tuple[torch.Tensor, ...], call: Call, other: int | None) -> torch.Tensor:
    """Returns what a forward leaves in an argument or a buffer, as an output.

    other: the position of a tensor that shares its memory, if there is one

    Raises Bypass where a graph cannot leave it there.
    """
    tensor, arguments = tensors[position], len(call.arguments)
    if position < arguments:
        if tensor.requires_grad:
            raise Bypass(
                Reason.INPUT_MUTATED,
                f"the forward writes in place to {_name(tensor)}, which then requires a gradient; write to a clone",
            )
        live = call.arguments[position]
        with untraced():
            is_placed = other is None and live.stride() == tensor.stride()
        if not is_placed:
            raise Bypass(
                Reason.INPUT_MUTATED, f"the forward writes in place to {_name(tensor)}, which shares memory; write to a clone"
            )
    elif position < arguments + len(call.parameters):
        raise Bypass(Reason.STATE_MUTATED, "the forward writes a parameter in place")
    elif tensor.requires_grad:
        name = [*call.buffers][position - arguments - len(call.parameters)]
        raise Bypass(Reason.BUFFER_MUTATED, f"buffer {name!r} keeps the autograd graph of what is written to it; detach it first")
    elif other is not None:
        names = [*(f"argument {i}" for i in range(arguments)), *call.parameters, *call.buffers]
        message = f"the forward writes in place to {names[position]}, which shares memory with {names[other]}; clone one of them"
        raise Bypass(Reason.BUFFER_MUTATED, message)
    return tensor.detach()


def _name(argument: torch.Tensor) -> str:
    with untraced():
        return f"the input of shape {tuple(argument.shape)}"
