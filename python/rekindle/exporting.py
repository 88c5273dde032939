"""A miss: export, differentiate, load back, compare with eager. Imported only then."""

from __future__ import annotations

import contextlib
import functools
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

import torch

from rekindle import _native
from rekindle.contract import with_numbers
from rekindle.errors import OF_TORCH, PythonOpError
from rekindle.exporters import Exported, ExportRequest, SizeGuard, exporting, torchscript
from rekindle.exporters.inlining import checkpoints_inlined
from rekindle.exporters.unchecked import Allowed
from rekindle.fingerprint import Fingerprint, world
from rekindle.fingerprint.observe import Recorder
from rekindle.fingerprint.parts import Parts, noting
from rekindle.fingerprint.undo import Undo
from rekindle.layouts import Layout, layout_of
from rekindle.open_shapes import Trials, WrongElsewhere, try_sizes
from rekindle.perturbation import SecondCall, call_again, outputs_again, perturbed_state
from rekindle.python_ops import bind
from rekindle.reasons import Bypass, OtherBranch, Reason, SizedByData
from rekindle.shapes import Shapes, sizes_of
from rekindle.variant import check_answers, not_for_this_data
from rekindle.verification import compare_session

_ANY: Layout = ["any", []]
_VALUE = re.compile(r'%(?:"(?:[^"\\]|\\.)*"|\w+)')  # a value in the text form of docs/ir.md


@dataclass
class NewEntry:
    """What an export gives the store. mode: "train" (with gradients), "eval" (without), "train+no_grad" or "eval+grad"."""

    model: str
    mode: str
    sections: dict[str, bytes]
    contract: dict[str, Any]
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

    Raises Bypass when the graph cannot be made, or is not what eager computes.
    """
    before, exporting.active = exporting.active, True
    try:
        while True:
            try:
                return _export_with_sizes(request, fingerprint, describe_again)
            except SizedByData as found:
                functions = request.sized_functions if found.function is None else request.sized_functions | {found.function}
                if request.data_sizes and functions == request.sized_functions:
                    raise
                request = replace(request, data_sizes=True, sized_functions=functions)
    finally:
        exporting.active = before


def _export_with_sizes(request: ExportRequest, fingerprint: Fingerprint, describe_again: Callable[[], Fingerprint]) -> NewEntry:
    """As export_entry, where it is known what is sized by data; raises SizedByData for what was not."""
    try:
        return _export_entry(request, fingerprint, describe_again)
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
    start = time.perf_counter()
    torchscript.load_exporter()
    undo = Undo(fingerprint)
    recorder = Recorder(fingerprint, undo)
    with noting() as noted:
        with undo.around(), world.random_states_kept():
            exported = torchscript.export(replace(request, watch=recorder))
        changed = fingerprint.difference(describe_again())
    if changed is not None:
        raise Bypass(Reason.CHANGED_DURING_EXPORT, f"the forward changed what it depends on: {changed}")
    exported_at = time.perf_counter()
    inputs = _inputs(exported, request)
    alone = _why_alone(exported, recorder)
    with undo.around(), checkpoints_inlined():
        trials = try_sizes(request, exported, alone)
    request = replace(request, shapes=trials.shapes)
    joint = _build(exported, inputs, request)
    built_at = time.perf_counter()
    with undo.around():
        verify = functools.partial(_verify_with_functions, joint, exported, request, inputs, fingerprint, undo)
        try:
            seen, gradients = verify(trials.calls, alone is None and not trials.calls)
        except WrongElsewhere as wrong:
            trials.close(str(wrong))
            seen, gradients = verify([], alone is None)  # other numbers alone may do it
    contract = _contract(exported, request, trials, gradients)
    observations = recorder.observations + [one for one in seen if one not in recorder.observations]
    done = time.perf_counter()
    sections = {"exported": exported.model, "joint": joint, "contract": json.dumps(contract).encode()}
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


def disagreement(joint: bytes, contract: dict[str, Any], made: NewEntry, request: ExportRequest) -> str | None:
    """What a cached graph and its contract are that a fresh export of the same call is not; None if they agree.

    Compares the graphs up to the names of values, the contracts, and what the graphs make of this call. Of an export at other
    sizes than the cached one only the last says something.
    """
    fresh_contract = json.loads(made.sections["contract"])
    if contract["shapes"]["sizes"] != fresh_contract["shapes"]["sizes"]:  # other symbols may be one, and trials end otherwise
        fresh_contract = {**contract, **{name: fresh_contract[name] for name in ("structure", "used", "state", "writes")}}
    elif (why := _other_graph(joint, made)) is not None:
        return why
    for name in {**contract, **fresh_contract}:
        if contract.get(name) != fresh_contract.get(name):
            return f"the contract says {name}={contract.get(name)!r}, that of a fresh export {fresh_contract.get(name)!r}"
    inputs = _inputs(made.exported, request)
    states = made.exported.random_states
    torch.set_rng_state(states[0])
    fresh = _native.Session(made.sections["joint"], [], fresh_contract["output_layouts"])
    fresh.set_functions([bind(call, request.module) for call in made.exported.functions])
    with torch.set_grad_enabled(request.grad):
        expected = fresh.forward(inputs, request.grad)
    try:
        _verify(joint, replace(made.exported, outputs=expected), request, inputs, [], again=False)
    except Bypass as bypass:
        return bypass.message
    finally:
        torch.set_rng_state(states[0])
    return None


def _other_graph(joint: bytes, made: NewEntry) -> str | None:
    try:
        cached = _canonical(joint)
    except _native.RekindleError as error:
        return str(error)
    for ours, fresh in zip_longest(cached, _canonical(made.sections["joint"]), fillvalue="nothing"):
        if ours != fresh:
            return f"the graph has {ours.strip()!r} where a fresh export has {fresh.strip()!r}"
    return None


def _canonical(joint: bytes) -> list[str]:
    """The lines of a graph's text, its values renamed by their order."""
    names: dict[str, str] = {}
    text = _native.joint_text(joint)
    return _VALUE.sub(lambda found: names.setdefault(found.group(), f"%{len(names)}"), text).splitlines()


def _inputs(exported: Exported, request: ExportRequest) -> list[torch.Tensor]:
    """What the graph is run with, in order."""
    every = [*exported.arguments, *request.parameters.values(), *request.buffers.values()]
    return [every[i] for i in exported.used]


def _build(exported: Exported, inputs: list[torch.Tensor], request: ExportRequest) -> bytes:
    needs = [request.grad and tensor.requires_grad for tensor in inputs]
    exported.model = torchscript.with_shapes(exported.model, request.shapes)
    sizes = request.shapes.bind(sizes_of(request.arguments)) or {}
    try:
        return _native.build_joint(exported.model, needs, sizes)
    except _native.Unsupported as error:
        raise Bypass(Reason.UNSUPPORTED_OP, str(error)) from error
    except OF_TORCH as error:  # no code of the user's runs here
        raise Bypass(Reason.EXPORT_FAILED, _first_line(error)) from error


def _verify_with_functions(
    joint: bytes,
    exported: Exported,
    request: ExportRequest,
    inputs: list[torch.Tensor],
    fingerprint: Fingerprint,
    undo: Undo,
    calls: list[SecondCall],
    again: bool,
) -> tuple[list[Any], list[Layout]]:
    """As _verify; returns what the backwards of the graph's autograd Functions were seen to depend on, too."""
    if not exported.functions:
        return [], _verify(joint, exported, request, inputs, calls, again)
    with _gradients_kept(request), Recorder(fingerprint, undo, effects_allowed=True) as recorder:
        world.called_back.active = True
        try:
            gradients = _verify(joint, exported, request, inputs, calls, again)
        finally:
            world.called_back.active = False
    return recorder.observations, gradients


@contextlib.contextmanager
def _gradients_kept(request: ExportRequest) -> Iterator[None]:
    """Undo what the backwards of Functions do to parameters: `.grad`, and tensors that are kept as attributes of them."""
    parameters = list(request.parameters.values())
    gradients = [parameter.grad for parameter in parameters]
    attributes = [tensor for parameter in parameters for tensor in vars(parameter).values() if isinstance(tensor, torch.Tensor)]
    contents = [tensor.detach().clone() for tensor in attributes]
    for parameter in parameters:
        parameter.grad = None
    try:
        yield
    finally:
        for parameter, gradient in zip(parameters, gradients, strict=True):
            parameter.grad = gradient
        with torch.no_grad():
            for tensor, content in zip(attributes, contents, strict=True):
                if not torch.equal(tensor, content):
                    tensor.copy_(content)


def _verify(
    joint: bytes, exported: Exported, request: ExportRequest, inputs: list[torch.Tensor], calls: list[SecondCall], again: bool
) -> list[Layout]:
    """Compare a session with eager, on the call itself, on `calls` at other sizes and, if `again`, on perturbed inputs and state.

    Returns how eager's gradient of each input lies; where eager ran again, it did so without a trace, in which gradients can lie otherwise.
    """
    every = [f"input {i}" for i in range(len(exported.arguments))] + [*request.parameters] + [*request.buffers]
    names = [every[i] for i in exported.used]
    try:
        layouts = _output_layouts(exported, request)
        session = _native.Session(joint, [], layouts)
        session.set_functions([bind(call, request.module) for call in exported.functions])
        _prepare(session, inputs, request.grad)
        with torch.set_grad_enabled(request.grad):
            state = [*exported.arguments, *request.parameters.values(), *request.buffers.values()]
            gradients = compare_session(
                session, inputs, exported.outputs, exported.random_states, names, request.grad, exported.autocast_dtypes, len(layouts),
                lambda: outputs_again(request, exported.writes, state, exported.effects),
            )  # fmt: skip
            with checkpoints_inlined():
                second = call_again(request, exported.writes, perturbed_state(request)) if again else None
            _check_objects(exported.objects, calls if second is None else [second])
            for call in calls:
                gradients = _verify_elsewhere(session, exported, call, names, request)
            if second is not None:
                with contextlib.suppress(OtherBranch):  # these numbers tell nothing
                    gradients = _verify_second(session, exported, second, names, request)
        open_sizes = _has_open_sizes(exported, request)
        return [_ANY if gradient is None else layout_of(gradient, open_sizes) for gradient in gradients]
    except _native.Unsupported as error:
        raise Bypass(Reason.UNSUPPORTED_OP, str(error)) from error
    except (Bypass, PythonOpError, WrongElsewhere):
        raise
    except Exception as error:  # of a kernel, or of an autograd Function
        raise Bypass(Reason.VERIFICATION_FAILED, f"{type(error).__name__}: {_first_line(error)}") from error


def _check_objects(objects: list[Any], calls: list[SecondCall]) -> None:
    """Those in a result have to be new at each call: the graph's are."""
    kept = (mine for call in calls for mine, other in zip(objects, call.objects, strict=False) if mine is other)
    if (one := next(kept, None)) is not None:
        what = f"the {type(one).__qualname__} in the result is the same at each call"
    elif objects and not calls:
        what = f"nothing shows that the {type(objects[0]).__qualname__} in the result is a new one at each call"
    else:
        return
    raise Bypass(Reason.UNSUPPORTED_OUTPUT, f"{what}; return tensors, or a new one")


def _verify_elsewhere(
    session: Any, exported: Exported, call: SecondCall, names: list[str], request: ExportRequest
) -> list[torch.Tensor | None]:
    try:
        return _verify_second(session, exported, call, names, request)
    except Exception as error:
        raise WrongElsewhere(f"at other sizes ({call.sizes}), {_first_line(error)}") from error


def _prepare(session: Any, inputs: list[torch.Tensor], grad: bool) -> None:
    try:
        session.prepare(inputs, grad)
    except OF_TORCH as error:
        raise Bypass(Reason.UNSUPPORTED_OP, _first_line(error)) from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]


def _verify_second(
    session: Any, exported: Exported, second: SecondCall, names: list[str], request: ExportRequest
) -> list[torch.Tensor | None]:
    """As compare_session."""
    numbers = exported.numbers if second.numbers is None else second.numbers
    if second.structure != with_numbers(exported.structure, numbers):
        raise Bypass(Reason.VERIFICATION_FAILED, "the result has another structure or plain value for other numbers in the inputs")
    inputs = [second.tensors[i] for i in exported.used]
    end = len(second.outputs) - len(exported.writes)
    outputs = [*second.outputs[:end], *([None] * exported.effects), *second.outputs[end:]]
    state = dict(zip([*request.parameters, *request.buffers], second.tensors[len(request.arguments) :], strict=True))
    try:
        with torchscript.replaced(request.module, state):  # Functions may call modules
            check = functools.partial(check_answers, _listed(exported.data_guards), len(exported.writes))
            return compare_session(
                session, inputs, outputs, second.random_states, names, request.grad, exported.autocast_dtypes,
                len(_output_layouts(exported, request)),
                lambda: outputs_again(request, exported.writes, second.tensors, exported.effects), check,
            )  # fmt: skip
    except (SizedByData, OtherBranch):
        raise
    except OF_TORCH as error:
        if not (exported.sized_by_data and exported.data_guards):
            raise
        raise not_for_this_data(_listed(exported.data_guards), error) from error
    except Bypass as bypass:
        message = f"for other numbers in the inputs, {bypass.message}; something is computed outside of torch"
        raise Bypass(bypass.reason, message) from bypass
    finally:
        torch.set_rng_state(exported.random_states[0])


def _mode(request: ExportRequest) -> str:
    mode = "train" if request.module.training else "eval"
    return mode if request.grad == request.module.training else mode + ("+grad" if request.grad else "+no_grad")


def _has_open_sizes(exported: Exported, request: ExportRequest) -> bool:
    return bool(request.shapes.symbols) or exported.sized_by_data


def _output_layouts(exported: Exported, request: ExportRequest) -> list[Layout]:
    """How the results lie: not what is written to buffers and arguments, nor what nobody gets."""
    results = len(exported.outputs) - len(exported.writes) - exported.effects
    return [layout_of(output, _has_open_sizes(exported, request)) for output in exported.outputs[:results]]


def _contract(exported: Exported, request: ExportRequest, trials: Trials, gradients: list[Layout]) -> dict[str, Any]:
    differentiable = [output for output in exported.outputs if output.requires_grad]
    losses = [output.dim() == 0 for output in differentiable]
    return {
        "structure": exported.structure,
        "used": exported.used,
        "state": [*request.parameters, *request.buffers],
        "grad": request.grad,
        # Positions among the arguments, then `state`, whose new contents are the last outputs.
        "writes": exported.writes,
        "functions": exported.functions,  # see python_ops.py
        # A training step usually differentiates the one scalar output; the session corrects a wrong guess.
        "expected_cotangents": losses if any(losses) else [True] * len(losses),
        "shapes": trials.contract(),
        "output_layouts": _output_layouts(exported, request),
        "gradient_layouts": gradients,
        # Questions about data, answered by the output before those of `writes` if there are any.
        "data_guards": _listed(exported.data_guards),
        "sized_by_data": exported.sized_by_data,
        "draws": not torch.equal(*exported.random_states),
    }


def _listed(guards: list[SizeGuard]) -> list[list[Any]]:
    return [[guard.where, guard.what, guard.value] for guard in guards]
