"""What a new graph has to agree with eager on before it is published: the call itself, other sizes, other numbers."""

from __future__ import annotations

import contextlib
import functools
from dataclasses import dataclass
from typing import Any

import torch

from rekindle import _native
from rekindle.compare.verification import Gradients, compare_session
from rekindle.errors import OF_TORCH, PythonOpError, first_line
from rekindle.export.request import Exported, ExportRequest, SizeGuard
from rekindle.functions.binding import bind
from rekindle.functions.inlining import checkpoints_inlined
from rekindle.graphs.ready_graph import check_answers, not_for_this_data
from rekindle.key.fingerprint import Fingerprint
from rekindle.miss.open_shapes import WrongElsewhere
from rekindle.miss.perturbation import SecondCall, call_again, outputs_again, perturbed_state
from rekindle.miss.saved_by_backward import saved_results, saved_writes
from rekindle.process import world
from rekindle.reasons import Bypass, OtherBranch, Reason, SizedByData
from rekindle.recording.recorder import Recorder
from rekindle.recording.undo import Undo
from rekindle.results.contract import with_numbers
from rekindle.results.layouts import Layout, layout_of
from rekindle.results.saved_groups import Group
from rekindle.results.views import placed

_ANY: Layout = ["any", []]


@dataclass
class GradientContract:
    """How eager's gradients come. layouts: how that of each input lies. order: positions of inputs, as a backward meets them.
    groups, inner: see results/saved_groups.py. saved_writes, saved_results: see saved_by_backward.py."""

    layouts: list[Layout]
    order: list[int]
    groups: list[Group] | None
    inner: list[list[int]]
    saved_writes: list[int]
    saved_results: list[int]


def graph_inputs(exported: Exported) -> list[torch.Tensor]:
    """What a graph is run with, in order."""
    return [exported.given[i] for i in exported.used]


def verify_with_functions(
    joint: bytes,
    exported: Exported,
    request: ExportRequest,
    inputs: list[torch.Tensor],
    fingerprint: Fingerprint,
    undo: Undo,
    calls: list[SecondCall],
    again: bool,
) -> tuple[list[Any], GradientContract]:
    """As _verify; returns what the backwards of the graph's autograd Functions were seen to depend on, too."""
    if not exported.functions:
        return [], verify(joint, exported, request, inputs, calls, again)
    with Recorder(fingerprint, undo) as recorder:
        world.called_back.active = True
        try:
            gradients = verify(joint, exported, request, inputs, calls, again)
        finally:
            world.called_back.active = False
    return recorder.observations, gradients


def verify(
    joint: bytes, exported: Exported, request: ExportRequest, inputs: list[torch.Tensor], calls: list[SecondCall], again: bool
) -> GradientContract:
    """Compare a session with eager, on the call itself, on `calls` at other sizes and, if `again`, on perturbed inputs and state.

    Returns how eager's gradients come: where eager ran again, those of that run, as a trace can make them come otherwise.
    """
    every = [f"input {i}" for i in range(len(request.arguments))] + [*request.parameters] + [*request.buffers]
    names = [every[i] for i in exported.used]
    try:
        layouts = output_layouts(exported, request)
        session = _native.Session(joint, [], layouts)
        _bind(session, exported, request, exported.given)
        _prepare(session, inputs, request.grad)
        with torch.set_grad_enabled(request.grad):
            gradients = compare_session(
                session, inputs, exported.outputs, exported.random_states, names, request.grad, exported.autocast_dtypes,
                len(layouts), lambda: outputs_again(request, exported.writes, exported.given, exported.effects), keep=bool(calls),
            )  # fmt: skip
            with checkpoints_inlined():
                second = call_again(request, exported.writes, perturbed_state(request)) if again else None
            further = calls if second is None else [second]
            _check_objects(exported.objects, further)
            eager = further[0] if further and request.grad else None
            saved = saved_writes(eager, exported.writes) if eager is not None and exported.writes else []
            results = saved_results(eager, exported.writes) if eager is not None else []
            for call in calls:
                gradients = _verify_elsewhere(session, exported, call, names, request)
            if second is not None:
                with contextlib.suppress(OtherBranch):  # these numbers tell nothing
                    gradients = _verify_second(session, exported, second, names, request)
        open_sizes = _has_open_sizes(exported, request)
        layouts = [_ANY if gradient is None else layout_of(gradient, open_sizes) for gradient in gradients.values]
        return GradientContract(layouts, gradients.order, gradients.groups, gradients.inner, saved, results)
    except _native.Unsupported as error:
        raise Bypass(Reason.UNSUPPORTED_OP, str(error)) from error
    except (Bypass, PythonOpError, WrongElsewhere):
        raise
    except Exception as error:  # of a kernel, or of an autograd Function
        raise Bypass(Reason.VERIFICATION_FAILED, f"{type(error).__name__}: {first_line(error)}") from error


def _bind(session: Any, exported: Exported, request: ExportRequest, tensors: list[torch.Tensor]) -> None:
    """Let the graph call its Functions with what a copy of the module has, which holds these tensors."""
    if exported.functions:
        module = request.around(tensors).module
        session.set_functions([bind(call, module) for call in exported.functions])


def _check_objects(objects: list[Any], calls: list[SecondCall]) -> None:
    """Those in a result have to be new at each call: the graph's are."""
    kept = (mine for call in calls for mine, other in zip(objects, call.objects, strict=False) if mine is other)
    if (one := next(kept, None)) is not None:
        what = f"the {type(one).__qualname__} in the result is the same at each call"
    elif not calls and any(not isinstance(one, (list, dict)) for one in objects):
        what = f"nothing shows that the {type(objects[0]).__qualname__} in the result is a new one at each call"
    else:
        return
    raise Bypass(Reason.UNSUPPORTED_OUTPUT, f"{what}; return tensors, or a new one")


def _verify_elsewhere(session: Any, exported: Exported, call: SecondCall, names: list[str], request: ExportRequest) -> Gradients:
    try:
        return _verify_second(session, exported, call, names, request)
    except Exception as error:
        raise WrongElsewhere(f"at other sizes ({call.sizes}), {first_line(error)}") from error


def _prepare(session: Any, inputs: list[torch.Tensor], grad: bool) -> None:
    try:
        session.prepare(inputs, grad)
    except OF_TORCH as error:
        raise Bypass(Reason.UNSUPPORTED_OP, first_line(error)) from error


def _verify_second(session: Any, exported: Exported, second: SecondCall, names: list[str], request: ExportRequest) -> Gradients:
    """As compare_session."""
    numbers = exported.numbers if second.numbers is None else second.numbers
    structure = with_numbers(exported.structure, numbers)
    if second.structure != placed(structure, numbers, second.outputs, second.tensors):
        raise Bypass(
            Reason.VERIFICATION_FAILED, "the result has another structure or plain value for other numbers in the inputs"
        )
    inputs = [second.tensors[i] for i in exported.used]
    end = len(second.outputs) - len(exported.writes)
    outputs = [*second.outputs[:end], *([None] * exported.effects), *second.outputs[end:]]
    try:
        _bind(session, exported, request, second.tensors)
        check = functools.partial(check_answers, listed(exported.data_guards), len(exported.writes))
        return compare_session(
            session, inputs, outputs, second.random_states, names, request.grad, exported.autocast_dtypes,
            len(output_layouts(exported, request)),
            lambda: outputs_again(request, exported.writes, second.tensors, exported.effects), check,
        )  # fmt: skip
    except (SizedByData, OtherBranch):
        raise
    except OF_TORCH as error:
        if not (exported.sized_by_data and exported.data_guards):
            raise
        raise not_for_this_data(listed(exported.data_guards), error) from error
    except Bypass as bypass:
        message = f"for other numbers in the inputs, {bypass.message}; something is computed outside of torch"
        raise Bypass(bypass.reason, message) from bypass
    finally:
        torch.set_rng_state(exported.random_states[0])


def _has_open_sizes(exported: Exported, request: ExportRequest) -> bool:
    return bool(request.shapes.symbols) or exported.sized_by_data


def output_layouts(exported: Exported, request: ExportRequest) -> list[Layout]:
    """How the results lie: not what is written to buffers and arguments, nor what nobody gets."""
    results = len(exported.outputs) - len(exported.writes) - exported.effects
    return [layout_of(output, _has_open_sizes(exported, request)) for output in exported.outputs[:results]]


def listed(guards: list[SizeGuard]) -> list[list[Any]]:
    """Guards as a contract has them."""
    return [[guard.where, guard.what, guard.value] for guard in guards]
