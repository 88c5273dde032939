"""Makes a new entry at a miss: traces, sizes, builds and accepts a call, and hands the result over. Imported only then.

An example: the first call of an nn.Linear wrapped with an empty cache. One attempt runs: the forward is traced, its batch size is
tried at other values, a joint graph is built and compared with eager, and export_entry returns a NewEntry with the sections
"exported", "joint", "contract" and, if a question about sizes was asked, "guards".
"""

from __future__ import annotations

import contextlib
import functools
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from rekindle import _native
from rekindle.errors import ran_out_of_memory
from rekindle.export.copies.private_copy import PrivateCopies
from rekindle.export.request import Call, ExportPlan, ExportRequest
from rekindle.export.torchscript import adapter
from rekindle.export.torchscript.result_checks import check_held
from rekindle.export.traced import Traced
from rekindle.export.unchecked import Allowed
from rekindle.functions.inlining import checkpoints_inlined
from rekindle.graphs.guard_inputs import Watched
from rekindle.key.fingerprint import Fingerprint
from rekindle.key.values.ingredients import Parts, noting
from rekindle.miss.acceptance import Accepted, accept
from rekindle.miss.attempts import Attempt, Retry, WrongElsewhere
from rekindle.miss.built import build
from rekindle.miss.open_shapes import try_sizes
from rekindle.miss.sized import is_differentiated_once, listed
from rekindle.process import signal_handlers, world
from rekindle.process.collectives import answered_here
from rekindle.process.exporting import exporting
from rekindle.process.garbage import collector_paused
from rekindle.process.process_state import owned
from rekindle.process.random_states import random_states_equal
from rekindle.reasons import Bypass, Reason
from rekindle.recording import cached_functions
from rekindle.recording.observations import lasting, with_identity
from rekindle.recording.recorder import Recorder
from rekindle.recording.undo import Undo
from rekindle.recording.warnings_shown import not_shown
from rekindle.results.call_device import without_index


@dataclass(frozen=True)
class Seconds:
    """Tells how long the stages of a miss took."""

    export: float
    build: float
    verify: float

    @property
    def total(self) -> float:
        """Adds them up: what a hit spares."""
        return self.export + self.build + self.verify


@dataclass(frozen=True)
class NewEntry:
    """Holds what a miss hands over to be published."""

    model: str  # the module's class
    mode: str  # "train" (with gradients), "eval" (without), "train+no_grad" or "eval+grad"
    sections: dict[str, bytes] = field(repr=False)  # as of StoredEntry
    contract: _native.Contract = field(repr=False)  # what `sections` has of it
    observations: list[Any] = field(repr=False)  # as of StoredEntry
    noted: dict[str, Parts] = field(repr=False)  # what the digests in the fields and the observations were made of
    accepted: Accepted = field(repr=False)  # without the calls at other sizes
    seconds: Seconds  # how long it took to make

    @property
    def inputs(self) -> str:
        """Describes the dtypes and shapes of the arguments, for a person."""
        shapes, given = self.accepted.left.shapes, self.accepted.built.traced.run.given
        dtypes = (str(tensor.dtype).removeprefix("torch.") for tensor in given[: len(shapes.dims)])
        return ", ".join(f"{dtype}{shapes.text(i)}" for i, dtype in enumerate(dtypes))


def export_entry(call: Call, wanted: ExportPlan, fingerprint: Fingerprint, describe: Callable[[Call], Fingerprint]) -> NewEntry:
    """Makes an entry for the shapes that are wanted or, where sizes cannot be left open, for the call's sizes only.

    fingerprint: of the call
    describe: gives it anew, or that of a copy

    Waits for exports of other threads; raises Busy where one does not end. Raises Bypass when the graph cannot be made, or is not
    what eager computes.
    """
    with owned():
        before, exporting.active = exporting.active, True
        try:
            with signal_handlers.kept_apart(), _out_of_inference_mode(), answered_here():
                return _attempted(call, wanted, fingerprint, functools.partial(_described, describe))
        finally:
            exporting.active = before


class _Caller(threading.local):
    """Tells in which mode the call was made for which this thread exports."""

    in_inference_mode = False


_caller = _Caller()


@contextlib.contextmanager
def _out_of_inference_mode() -> Iterator[None]:
    """Lets what is traced and compared keep count of versions, as tensors of inference mode do not; else changes nothing."""
    if not torch.is_inference_mode_enabled():
        yield
        return
    _caller.in_inference_mode = True
    try:
        with torch.inference_mode(False), torch.no_grad():
            yield
    finally:
        _caller.in_inference_mode = False


def _as_called() -> contextlib.AbstractContextManager[Any]:
    """Returns a context in the mode of the call, for what looks at it or leaves something for later calls."""
    return torch.inference_mode() if _caller.in_inference_mode else contextlib.nullcontext()


def _described(describe: Callable[[Call], Fingerprint], call: Call) -> Fingerprint:
    with _as_called():
        return describe(call)


def _attempted(call: Call, wanted: ExportPlan, fingerprint: Fingerprint, describe: Callable[[Call], Fingerprint]) -> NewEntry:
    """Returns the entry of the first attempt that succeeds."""
    attempt, copies = Attempt.first(wanted), None
    while True:
        try:
            if copies is None:
                copies = PrivateCopies(call)
            return _entry(ExportRequest(call, attempt.plan, copies, describe), copies, fingerprint)
        except (Bypass, WrongElsewhere) as error:
            following = None if ran_out_of_memory(error) else attempt.after(error, call.arguments)
            if following is None:
                raise
        attempt = following
        if attempt.retry is Retry.CLOSE:
            why = attempt.plan.closed_because
            _native.log_debug(f"{type(call.module).__name__} is exported for its sizes only: {why}")
        elif attempt.retry is Retry.AGAIN:
            copies = None  # the module may have been changed


def _entry(request: ExportRequest, copies: PrivateCopies, fingerprint: Fingerprint) -> NewEntry:
    """Makes one attempt, stage by stage.

    copies: of the request; the forward may have gone on after it read what it was taken not to read

    Raises WrongElsewhere for a graph that may be right at other sizes if some stay equal.
    """
    start = time.perf_counter()
    adapter.load_exporter()
    undo = Undo(fingerprint)
    recorder = Recorder(fingerprint, undo, copies.copies)
    try:
        made = _staged(request, fingerprint, undo, recorder, start)
        copies.reads.check()
        return made
    except Bypass as error:
        bypass = copies.reads.bypass() or error
        read = recorder.observations or recorder.refused_while
        bypass.observations = None if read is None else with_identity(lasting(read), fingerprint.places)
        raise bypass  # noqa: B904 (of itself, or shown with the error that the read led to)


def _staged(request: ExportRequest, fingerprint: Fingerprint, undo: Undo, recorder: Recorder, start: float) -> NewEntry:
    """Makes the attempt that began at `start`, of time.perf_counter, and lets `recorder` record its trace."""
    with noting() as noted:
        with collector_paused(), undo.around(), world.interpreter_random_states_kept():
            traced = adapter.export(replace(request, watch=recorder))
        changed = fingerprint.difference(request.describe(request.call))
    if changed is not None:
        raise Bypass(Reason.CHANGED_DURING_EXPORT, f"the forward changed what it depends on: {changed}")
    with _as_called():
        cached_functions.ask_again(recorder.observations)  # what tries the graph finds them answered, as later calls do
    undo.keep_answers()
    constants = Watched(fingerprint, recorder.observations).tensors
    check_held(traced.result.outputs, constants)
    if request.call.grad:
        request = replace(request, constants=constants)
    exported_at = time.perf_counter()
    alone = _why_alone(traced)
    is_large = request.call.grad and is_differentiated_once(traced, alone)
    if is_large:
        traced = traced.without_autograd_graph()
        _native.release_free_memory()
    with undo.around(), world.interpreter_random_states_kept(), not_shown(), checkpoints_inlined():
        sized = try_sizes(request, traced, alone)
    built = build(request, traced, sized)
    built_at = time.perf_counter()
    if is_large:
        _native.release_free_memory()
    with undo.around(), world.interpreter_random_states_kept(), not_shown():
        accepted = accept(request, built, alone, functools.partial(Recorder, fingerprint, undo, recorder.is_copied))
    contract = _contract(request.call, accepted)
    sections = _sections(contract, accepted)
    observations = with_identity(_observations(recorder.observations, accepted), fingerprint.places)
    seconds = Seconds(exported_at - start, built_at - exported_at, time.perf_counter() - built_at)
    model, mode = type(request.call.module).__name__, _mode(request.call)
    return NewEntry(model, mode, sections, contract, observations, noted, _lighter(accepted), seconds)


def _why_alone(traced: Traced) -> str | None:
    """Says why the forward must not run again on other inputs; None if it may."""
    if traced.run.allowed is Allowed.NOTHING:
        return "the forward calls an operator that may not check what it is given"
    return None


def _mode(call: Call) -> str:
    mode = "train" if call.module.training else "eval"
    return mode if call.grad == call.module.training else mode + ("+grad" if call.grad else "+no_grad")


def _sections(contract: _native.Contract, accepted: Accepted) -> dict[str, bytes]:
    built = accepted.built
    sections = {"exported": built.model, "joint": built.joint, "contract": contract.to_bytes()}
    if accepted.left.shapes.symbols and built.sized.answers is not None:
        sections["guards"] = built.sized.answers
    return sections


def _observations(recorded: list[Any], accepted: Accepted) -> list[Any]:
    """Lists what has to hold for the entry to be right: of sizes, and what the export and its trials read."""
    further = [one for one in accepted.observations if one not in recorded]
    return accepted.left.observations(accepted.built.traced) + lasting(recorded + further)


def _lighter(accepted: Accepted) -> Accepted:
    """Leaves out eager's calls at other sizes, whose tensors are large."""
    sized = replace(accepted.built.sized, calls=())
    return replace(accepted, built=replace(accepted.built, sized=sized))


def _contract(call: Call, accepted: Accepted) -> _native.Contract:
    """Makes the contract of the accepted graph; src/contract/contract.h says what its fields mean.

    Raises Bypass(export_failed) for what a contract cannot hold.
    """
    built, gradients = accepted.built, accepted.gradients
    traced = built.traced
    try:
        return _native.Contract.make(
            structure=without_index(traced.result.structure, call.device),
            attributes=traced.effects.attributes,
            used=traced.graph.used,
            state=[*call.parameters, *call.buffers],
            grad=call.grad,
            writes=traced.effects.writes,
            functions=[without_index(vars(one), call.device) for one in built.sized.functions],
            expected_cotangents=gradients.likely_cotangents,
            shapes=accepted.left.contract(call.arguments, traced),
            output_layouts=built.output_layouts,
            gradient_layouts=gradients.layouts,
            gradient_order=gradients.order,
            saved_groups=gradients.groups,
            inner_results=gradients.inner,
            silent_writes=gradients.silent_writes,
            saved_writes=gradients.saved_writes,
            saved_tensors=gradients.saved_tensors,
            saved_as_given=gradients.saved_as_given,
            saved_both_ways=gradients.saved_both_ways,
            saved_constants=gradients.saved_constants,
            data_guards=listed(traced.sizes.data_guards),
            sized_by_data=traced.sizes.sized_by_data,
            draws=not random_states_equal(*traced.run.random_states),
        )
    except _native.RekindleError as error:
        raise Bypass(Reason.EXPORT_FAILED, str(error)) from error
