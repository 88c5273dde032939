"""Compares a new graph with eager before it is published: for the call itself, at other sizes, with other numbers.

An example: the call has x float32[4, 16], the size 4 is open, and eager ran with x float32[5, 16] and float32[2, 16], too.
`verify` compares the outputs, the gradient of x and the random state for the call, then for these two. If only one of these
differs, `accept` closes the open size and verifies the graph for the call alone, or raises WrongElsewhere for a further attempt
with one symbol for sizes that are equal in the call.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from rekindle import _native
from rekindle.compare.verification import Expected, Gradients, compare_session
from rekindle.errors import OF_TORCH, PythonOpError, first_line, ran_out_of_memory
from rekindle.export.request import ExportRequest
from rekindle.functions.binding import bind
from rekindle.functions.inlining import checkpoints_inlined
from rekindle.graphs.answers import check_answers, not_for_this_data
from rekindle.miss.attempts import WrongElsewhere
from rekindle.miss.built import Built
from rekindle.miss.index_checks import checked_indices
from rekindle.miss.perturbation import SecondCall, as_of_graph, call_again, outputs_again, perturbed_state
from rekindle.miss.saved_by_backward import saved_writes
from rekindle.miss.sized import LeftOpen, is_differentiated_once, listed, smallest
from rekindle.process import world
from rekindle.process.random_states import set_random_states
from rekindle.reasons import Bypass, OtherBranch, Reason, SizedByData
from rekindle.recording.recorder import Recorder
from rekindle.results.contract import is_plain_dataclass, with_numbers
from rekindle.results.layouts import Layout, layout_of
from rekindle.results.saved_groups import Group, Saved
from rekindle.results.views import placed

_ANY: Layout = ["any", []]


@dataclass(frozen=True)
class GradientContract:
    """Describes how eager's gradients come."""

    layouts: list[Layout]  # how that of each input lies
    order: list[int]  # positions of inputs, as a backward meets them
    groups: list[Group] | None  # see results/saved_groups.py
    inner: list[list[int]]  # see results/saved_groups.py
    silent_writes: list[int]  # places in the writes of those that eager's operators do not count as versions
    saved_writes: list[Saved]  # see saved_by_backward.py
    saved_tensors: list[Saved]  # of inputs, results, then the saved constants; see results/saved_groups.py
    saved_as_given: list[int]  # positions of inputs; see results/saved_groups.py
    saved_both_ways: list[int]
    saved_constants: list[str]  # their names; see graphs/guard_inputs.py
    likely_cotangents: list[bool]  # per result that requires a gradient


@dataclass(frozen=True)
class Accepted:
    """Holds a graph that does what eager does."""

    built: Built
    left: LeftOpen  # the sizes for which it does
    gradients: GradientContract
    observations: list[Any]  # what the backwards of the graph's autograd Functions were seen to depend on


def accept(request: ExportRequest, built: Built, alone: str | None, recorder: Callable[[], Recorder]) -> Accepted:
    """Compares a graph with eager, and returns it with the sizes for which it is right.

    alone: why eager must not run again, if it must not
    recorder: makes what sees Functions run

    A graph that is wrong at other sizes is accepted for those of the call only. Raises WrongElsewhere instead where it may be
    right if some sizes stay equal, and Bypass for a graph that is wrong.
    """
    left, calls = built.sized.left, built.sized.calls
    try:
        once = is_differentiated_once(built.traced, alone)
        again = alone is None and all(call.is_light for call in calls)
        compare = functools.partial(verify, request, built, calls, again, once)
        return Accepted(built, left, *_with_functions(built, recorder, compare))
    except WrongElsewhere as wrong:
        if request.plan.apart and left.coinciding():
            raise
        left = left.close(str(wrong))
        compare = functools.partial(verify, request, built, (), alone is None, once, wrong.gradients)  # other numbers may do it
    return Accepted(built, left, *_with_functions(built, recorder, compare))


def _with_functions(
    built: Built, recorder: Callable[[], Recorder], compare: Callable[[], GradientContract]
) -> tuple[GradientContract, list[Any]]:
    """Returns what `compare` does, and what the backwards of the graph's autograd Functions were seen to depend on."""
    if not built.sized.functions:
        return compare(), []
    with recorder() as watch:
        world.called_back.active = True
        try:
            gradients = compare()
        finally:
            world.called_back.active = False
    return gradients, watch.observations


def verify(
    request: ExportRequest, built: Built, calls: Sequence[SecondCall], again: bool, once: bool, known: Gradients | None = None
) -> GradientContract:
    """Compares a session with eager, on the call itself and on further calls; returns how eager's gradients come.

    calls: what eager made of the call at other sizes
    again: whether to compare on perturbed inputs and state, too
    once: whether gradients are compared for the smallest of the further calls only
    known: eager's gradients of the call itself, where that was compared before; a comparison leaves no autograd graph

    Where eager ran again, the gradients are those of that run, as a trace can make them come otherwise.
    """
    try:
        session = _native.Session(built.joint, [], built.output_layouts)
        _bind(session, request, built, built.traced.run.given)
        _prepare(session, built.traced.inputs, request.call.grad)
        with torch.set_grad_enabled(request.call.grad), checked_indices(built.traced.inputs):
            if once and request.call.grad:  # a large model: further calls hold activations, which go first
                gradients = _compare_further(session, request, built, None, calls, again)
                _compare_own(session, request, built, differentiated=False)
                return gradients
            known = known or _compare_own(session, request, built)
            return _compare_further(session, request, built, known, calls, again)
    except _native.Unsupported as error:
        raise Bypass(Reason.UNSUPPORTED_OP, str(error)) from error
    except (Bypass, PythonOpError, WrongElsewhere):
        raise
    except Exception as error:  # of a kernel, or of an autograd Function
        raise Bypass(Reason.VERIFICATION_FAILED, f"{type(error).__name__}: {first_line(error)}") from error


def _compare_own(session: Any, request: ExportRequest, built: Built, differentiated: bool = True) -> Gradients | None:
    expected = replace(_expected(request, built), differentiated=differentiated)
    return compare_session(session, expected, _names(request, built), request.call.grad)


def _compare_own_again(session: Any, request: ExportRequest, built: Built) -> Gradients | None:
    """Compares a session that is ready on the call itself, which eager runs once more."""
    traced = built.traced
    set_random_states(traced.run.random_states[0])
    outputs = outputs_again(request, traced.effects, traced.run.given)
    expected = replace(_expected(request, built), outputs=outputs)
    return compare_session(session, expected, _names(request, built), request.call.grad)


def _compare_further(
    session: Any, request: ExportRequest, built: Built, own: Gradients | None, calls: Sequence[SecondCall], again: bool
) -> GradientContract:
    """Compares a session that is ready on further calls, as `verify` does.

    own: eager's gradients of the call itself; None where these are compared for the smallest of the others only
    """
    traced, writes, gradients = built.traced, built.traced.effects.writes, own
    with checkpoints_inlined():
        second = call_again(request, traced.effects, perturbed_state(request.call)) if again else None
    further = calls if second is None else [second]
    _check_objects(traced.result.objects, further)
    least = smallest(further)
    asks = request.call.grad and writes and least is not None
    read = saved_writes(least, traced.graph.used, writes) if asks else []  # before a comparison frees what it looks at
    for call in sorted(calls, key=lambda call: call is least):  # of which gradients are compared, which takes more memory
        if own is None:  # a large model, whose arena would be that of the largest call
            _native.release_idle_arenas()
        gradients = _verify_elsewhere(session, request, built, call, own, own is not None or call is least) or gradients
        call.outputs.clear()  # with the autograd graph behind them
    if second is not None:
        with contextlib.suppress(OtherBranch):  # these numbers tell nothing
            gradients = _verify_second(session, request, built, second)
    if gradients is None:  # eager takes no other call, and its autograd graph of this one was let go
        gradients = _compare_own_again(session, request, built)
    assert gradients is not None
    layouts = [_ANY if gradient is None else layout_of(gradient, built.has_open_sizes) for gradient in gradients.values]
    silent = [place for place in range(len(writes)) if further and place not in further[0].bumped]
    results = len(traced.graph.used) + len(built.output_layouts)  # those of the graph's tensors that are inputs or results
    saved = [one for one in gradients.saved if one[0] < results]
    constants, names = _saved_constants(gradients.saved, len(traced.graph.used) + len(traced.result.outputs), request)
    of_eager = gradients.order, gradients.groups, gradients.inner
    return GradientContract(layouts, *of_eager, silent, read, saved + constants, *gradients.ways, names, gradients.likely)


def _saved_constants(saved: Sequence[Saved], first: int, request: ExportRequest) -> tuple[list[Saved], list[str]]:
    """Returns those of `saved` that are constants, numbered from `first` on, and the names of these constants.

    Raises Bypass(opaque_value) for one whose name is another's, too.
    """
    all_names = [name for name, _ in request.constants]
    kept = sorted({tensor for tensor, *_ in saved if tensor >= first})
    names = [all_names[tensor - first] for tensor in kept]
    if (twice := next((name for name in names if all_names.count(name) > 1), None)) is not None:
        message = f"a backward reads one of several plain tensors that {twice} leads to; register it as a buffer"
        raise Bypass(Reason.OPAQUE_VALUE, message)
    return [(first + kept.index(tensor), results, inputs) for tensor, results, inputs in saved if tensor >= first], names


def _expected(request: ExportRequest, built: Built) -> Expected:
    """Returns what eager made of the call, but for what is kept for its effects only."""
    traced = built.traced
    outputs, writes = traced.result.outputs, len(traced.effects.writes)
    results = len(outputs) - writes - traced.effects.kept
    return Expected(
        traced.inputs,
        as_of_graph([*outputs[:results], *outputs[len(outputs) - writes :]], traced.effects),
        traced.run.random_states,
        traced.run.autocast_dtypes,
        len(built.output_layouts),
        lambda: outputs_again(request, traced.effects, traced.run.given),
    )


def _names(request: ExportRequest, built: Built) -> list[str]:
    """Names the graph's inputs, for a person."""
    call = request.call
    every = [f"input {i}" for i in range(len(call.arguments))] + [*call.parameters] + [*call.buffers]
    return [every[i] for i in built.traced.graph.used]


def _bind(session: Any, request: ExportRequest, built: Built, tensors: list[torch.Tensor]) -> None:
    """Lets the graph call its Functions with what a copy of the module has, which holds these tensors."""
    if built.sized.functions:
        module = request.copies.around(tensors).module
        session.set_functions([bind(call, module) for call in built.sized.functions])


def _check_objects(objects: list[Any], calls: Sequence[SecondCall]) -> None:
    """Raises Bypass where an object in a result is not new at each call: the graph's are."""
    kept = (mine for call in calls for mine, other in zip(objects, call.objects, strict=False) if mine is other)
    if (one := next(kept, None)) is not None:
        what = f"the {type(one).__qualname__} in the result is the same at each call"
    elif not calls and not all(isinstance(one, (list, dict)) or is_plain_dataclass(one) for one in objects):
        what = f"nothing shows that the {type(objects[0]).__qualname__} in the result is a new one at each call"
    else:
        return
    raise Bypass(Reason.UNSUPPORTED_OUTPUT, f"{what}; return tensors, or a new one")


def _verify_elsewhere(
    session: Any, request: ExportRequest, built: Built, call: SecondCall, own: Gradients | None, differentiated: bool
) -> Gradients | None:
    try:
        return _verify_second(session, request, built, call, differentiated)
    except Exception as error:
        if ran_out_of_memory(error):
            raise
        raise WrongElsewhere(f"at other sizes ({call.sizes}), {first_line(error)}", own) from error


def _prepare(session: Any, inputs: list[torch.Tensor], grad: bool) -> None:
    try:
        session.prepare(inputs, grad)
    except OF_TORCH as error:
        raise Bypass(Reason.UNSUPPORTED_OP, first_line(error)) from error


def _verify_second(
    session: Any, request: ExportRequest, built: Built, second: SecondCall, differentiated: bool = True
) -> Gradients | None:
    """Compares on a second call, as compare_session does."""
    traced, sizes = built.traced, built.traced.sizes
    numbers = traced.result.numbers if second.numbers is None else second.numbers
    structure = with_numbers(traced.result.structure, numbers)
    if second.structure != placed(structure, numbers, second.outputs, second.tensors):
        raise Bypass(
            Reason.VERIFICATION_FAILED, "the result has another structure or plain value for other numbers in the inputs"
        )
    try:
        _bind(session, request, built, second.tensors)
        check = functools.partial(check_answers, listed(sizes.data_guards), len(traced.effects.writes))
        expected = Expected(
            [second.tensors[i] for i in traced.graph.used],
            as_of_graph(second.outputs, traced.effects),
            second.random_states,
            traced.run.autocast_dtypes,
            len(built.output_layouts),
            lambda: outputs_again(request, traced.effects, second.tensors),
            [second.held[i] for i in traced.graph.used],
            second.constants,
            differentiated,
        )
        return compare_session(session, expected, _names(request, built), request.call.grad, check)
    except (SizedByData, OtherBranch):
        raise
    except OF_TORCH as error:
        if not (sizes.sized_by_data and sizes.data_guards):
            raise
        raise not_for_this_data(listed(sizes.data_guards), error) from error
    except Bypass as bypass:
        message = f"for other numbers in the inputs, {bypass.message}; something is computed outside of torch"
        raise Bypass(bypass.reason, message) from bypass
    finally:
        set_random_states(traced.run.random_states[0])
