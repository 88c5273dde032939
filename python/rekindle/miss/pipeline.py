"""A miss: export, differentiate, load back, compare with eager. Imported only then."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from rekindle import _native
from rekindle.errors import OF_TORCH, first_line
from rekindle.export.copies.private_copy import PrivateCopies
from rekindle.export.request import Exported, ExportRequest
from rekindle.export.torchscript import adapter
from rekindle.export.unchecked import Allowed
from rekindle.functions.inlining import checkpoints_inlined
from rekindle.key.fingerprint import Fingerprint
from rekindle.key.values.ingredients import Parts, noting
from rekindle.miss.acceptance import GradientContract, graph_inputs, listed, output_layouts, verify_with_functions
from rekindle.miss.open_shapes import WrongElsewhere, try_sizes
from rekindle.miss.size_trials import Trials
from rekindle.process import signal_handlers, world
from rekindle.process.exporting import exporting
from rekindle.process.process_state import others_ran_since, owned, time_of_others
from rekindle.reasons import Bypass, Disturbed, Reason, SizedByData
from rekindle.recording import cached_functions
from rekindle.recording.observations import lasting
from rekindle.recording.recorder import Recorder
from rekindle.recording.undo import Undo
from rekindle.recording.warnings_shown import not_shown
from rekindle.sizes.shapes import Shapes, sizes_of


@dataclass
class NewEntry:
    """What an export gives the store. mode: "train" (with gradients), "eval" (without), "train+no_grad" or "eval+grad"."""

    model: str
    mode: str
    sections: dict[str, bytes]
    contract: _native.Contract
    observations: list[Any]
    noted: dict[str, Parts]  # what the digests in the fields and the observations were made of
    export_seconds: float
    build_seconds: float
    verify_seconds: float
    exported: Exported = field(repr=False)
    shapes: Shapes


# What an export with fixed sizes may not meet.
_OF_OPEN_SIZES = {
    Reason.VALUE_SPECIALIZED, Reason.UNSUPPORTED_OP, Reason.EXPORT_FAILED, Reason.VERIFICATION_FAILED, Reason.PYTHON_OP,
}  # fmt: skip


def export_entry(request: ExportRequest, fingerprint: Fingerprint, describe_again: Callable[[], Fingerprint]) -> NewEntry:
    """An entry for the request's shapes or, where sizes cannot be left open, for its sizes only.

    Raises Bypass when the graph cannot be made, or is not what eager computes. Exports of other threads are waited
    for; raises Busy where one does not end.
    """
    with owned():
        before, exporting.active = exporting.active, True
        try:
            with signal_handlers.kept_apart():
                return _export_undisturbed(lambda: _export_alone(request, fingerprint, describe_again))
        finally:
            exporting.active = before


# What another thread, or a signal handler, may cause: it draws from a generator that all share, or changes what the module reads.
_OF_OTHERS = {Reason.VERIFICATION_FAILED, Reason.NONDETERMINISTIC, Reason.CHANGED_DURING_EXPORT}
_OF_HANDLERS = {Reason.OPAQUE_VALUE}  # what a private copy is found to have otherwise
_TRIES = 3


def _export_undisturbed(export: Callable[[], NewEntry]) -> NewEntry:
    """Export again where another thread or a signal handler may be why it failed. Raises Disturbed where it may be each time."""
    for tries in range(_TRIES):
        before, handled = time_of_others(), signal_handlers.count()
        try:
            return export()
        except Bypass as bypass:
            by_handler = handled != signal_handlers.count() and bypass.reason in _OF_OTHERS | _OF_HANDLERS
            if not by_handler and (bypass.reason not in _OF_OTHERS or not others_ran_since(before)):
                raise
            if tries == _TRIES - 1:
                raise Disturbed(bypass.reason, bypass.message) from bypass
    raise AssertionError


def _export_alone(request: ExportRequest, fingerprint: Fingerprint, describe_again: Callable[[], Fingerprint]) -> NewEntry:
    request = replace(request, copies=PrivateCopies(request))
    while True:
        try:
            return _export_with_sizes(request, fingerprint, describe_again)
        except SizedByData as found:
            functions = request.sized_functions if found.function is None else request.sized_functions | {found.function}
            if request.data_sizes and functions == request.sized_functions:
                raise
            request = replace(request, data_sizes=True, sized_functions=functions)


def _export_with_sizes(request: ExportRequest, fingerprint: Fingerprint, describe_again: Callable[[], Fingerprint]) -> NewEntry:
    """As export_entry, where it is known what is sized by data; raises SizedByData for what was not."""
    try:
        return _export_entry(request, fingerprint, describe_again)
    except WrongElsewhere:  # maybe only where sizes differ that are the same in this call
        shapes = request.shapes
        for names in shapes.coinciding(shapes.bind(sizes_of(request.arguments)) or {}):
            shapes = shapes.merged(names)
        return _export_with_sizes(replace(request, shapes=shapes, apart=False), fingerprint, describe_again)
    except SizedByData:
        raise
    except Bypass as bypass:
        if not request.shapes.symbols or bypass.reason not in _OF_OPEN_SIZES:
            raise
        why = f"with open sizes, {bypass}"
        _native.log_debug(f"{type(request.module).__name__} is exported for its sizes only: {why}")
        closed = replace(request, shapes=Shapes.of(request.arguments), closed_because=why)
        return _export_entry(closed, fingerprint, describe_again)


def _export_entry(request: ExportRequest, fingerprint: Fingerprint, describe_again: Callable[[], Fingerprint]) -> NewEntry:
    """Raises WrongElsewhere for a graph that may be right at other sizes if some of these stay equal."""
    start = time.perf_counter()
    adapter.load_exporter()
    undo = Undo(fingerprint)
    recorder = Recorder(fingerprint, undo)
    with noting() as noted:
        with undo.around(), world.random_states_kept():
            exported = adapter.export(replace(request, watch=recorder))
        changed = fingerprint.difference(describe_again())
    if changed is not None:
        raise Bypass(Reason.CHANGED_DURING_EXPORT, f"the forward changed what it depends on: {changed}")
    cached_functions.ask_again(recorder.observations)  # what tries the graph finds them answered, as later calls do
    undo.keep_answers()
    exported_at = time.perf_counter()
    inputs = graph_inputs(exported)
    alone = _why_alone(exported, recorder)
    with undo.around(), world.random_states_kept(), not_shown(), checkpoints_inlined():
        trials = try_sizes(request, exported, alone)
    request = replace(request, shapes=trials.shapes)
    joint = _build(exported, inputs, request)
    built_at = time.perf_counter()
    with undo.around(), world.random_states_kept(), not_shown():
        verify = functools.partial(verify_with_functions, joint, exported, request, inputs, fingerprint, undo)
        try:
            seen, gradients = verify(trials.calls, alone is None and not trials.calls)
        except WrongElsewhere as wrong:
            if request.apart and trials.coinciding():
                raise
            trials.close(str(wrong))
            seen, gradients = verify([], alone is None)  # other numbers alone may do it
    contract = _contract(exported, request, trials, gradients)
    observations = lasting(recorder.observations + [one for one in seen if one not in recorder.observations])
    done = time.perf_counter()
    sections = {"exported": exported.model, "joint": joint, "contract": contract.to_bytes()}
    if trials.shapes.symbols and trials.answers is not None:
        sections["guards"] = trials.answers
    return NewEntry(
        type(request.module).__name__, _mode(request), sections, contract, trials.observations() + observations, noted,
        exported_at - start, built_at - exported_at, done - built_at, exported, trials.shapes,
    )  # fmt: skip


def _why_alone(exported: Exported, recorder: Recorder) -> str | None:
    """Why the forward must not run again on other inputs."""
    if recorder.ran_collective:
        return "the forward runs collectives"  # in which other processes take part
    if exported.allowed is Allowed.NOTHING:
        return "the forward calls an operator that may not check what it is given"
    return None


def _build(exported: Exported, inputs: list[torch.Tensor], request: ExportRequest) -> bytes:
    needs = [request.grad and tensor.requires_grad for tensor in inputs]
    exported.model = adapter.with_shapes(exported.model, request.shapes)
    sizes = request.shapes.bind(sizes_of(request.arguments)) or {}
    try:
        return _native.build_joint(exported.model, needs, sizes)
    except _native.Unsupported as error:
        raise Bypass(Reason.UNSUPPORTED_OP, str(error)) from error
    except OF_TORCH as error:  # no code of the user's runs here
        raise Bypass(Reason.EXPORT_FAILED, first_line(error)) from error


def _mode(request: ExportRequest) -> str:
    mode = "train" if request.module.training else "eval"
    return mode if request.grad == request.module.training else mode + ("+grad" if request.grad else "+no_grad")


def _contract(exported: Exported, request: ExportRequest, trials: Trials, gradients: GradientContract) -> _native.Contract:
    """What the fields mean: src/contract/contract.h. Raises Bypass(export_failed) for what a contract cannot hold."""
    differentiable = [output for output in exported.outputs if output.requires_grad]
    losses = [output.dim() == 0 for output in differentiable]
    try:
        return _native.Contract.make(
            structure=exported.structure,
            used=exported.used,
            state=[*request.parameters, *request.buffers],
            grad=request.grad,
            writes=exported.writes,
            functions=[vars(call) for call in exported.functions],
            # A training step usually differentiates the one scalar output; the session corrects a wrong guess.
            expected_cotangents=losses if any(losses) else [True] * len(losses),
            shapes=trials.contract(),
            output_layouts=output_layouts(exported, request),
            gradient_layouts=gradients.layouts,
            gradient_order=gradients.order,
            saved_groups=gradients.groups,
            inner_results=gradients.inner,
            saved_writes=gradients.saved_writes,
            saved_results=gradients.saved_results,
            data_guards=listed(exported.data_guards),
            sized_by_data=exported.sized_by_data,
            draws=not torch.equal(*exported.random_states),
        )
    except _native.RekindleError as error:
        raise Bypass(Reason.EXPORT_FAILED, str(error)) from error
