"""A miss: export, differentiate, load back, compare with eager. Imported only then."""

from __future__ import annotations

import contextlib
import json
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from typing import Any

import torch

from rekindle import _native
from rekindle.errors import PythonOpError
from rekindle.exporters import Exported, ExportRequest, exporting, torchscript
from rekindle.exporters.inlining import checkpoints_inlined
from rekindle.fingerprint import Fingerprint, world
from rekindle.fingerprint.observe import Recorder
from rekindle.fingerprint.parts import Parts, noting
from rekindle.fingerprint.undo import Undo
from rekindle.perturbation import SecondCall, call_again
from rekindle.python_ops import bind
from rekindle.reasons import Bypass, Reason
from rekindle.verification import compare_session

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


def export_entry(request: ExportRequest, fingerprint: Fingerprint, describe_again: Callable[[], Fingerprint]) -> NewEntry:
    """Raises Bypass when the graph cannot be made, or is not what eager computes."""
    before, exporting.active = exporting.active, True
    try:
        return _export_entry(request, fingerprint, describe_again)
    finally:
        exporting.active = before


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
    joint = _build(exported, inputs, request.grad)
    contract = _contract(exported, request)
    built_at = time.perf_counter()
    with undo.around():
        seen = _verify_with_functions(joint, exported, request, inputs, fingerprint, undo, again=not recorder.ran_collective)
    observations = recorder.observations + [one for one in seen if one not in recorder.observations]
    done = time.perf_counter()
    sections = {"exported": exported.model, "joint": joint, "contract": json.dumps(contract).encode()}
    return NewEntry(
        type(request.module).__name__, _mode(request), sections, contract, observations, noted,
        exported_at - start, built_at - exported_at, done - built_at, exported,
    )  # fmt: skip


def disagreement(joint: bytes, contract: dict[str, Any], made: NewEntry, request: ExportRequest) -> str | None:
    """What a cached graph and its contract are that a fresh export of the same call is not; None if they agree.

    Compares the graphs up to the names of values, the contracts, and what the graphs make of this call.
    """
    try:
        cached = _canonical(joint)
    except _native.RekindleError as error:
        return str(error)
    pairs = zip_longest(cached, _canonical(made.sections["joint"]), fillvalue="nothing")
    for ours, fresh in pairs:
        if ours != fresh:
            return f"the graph has {ours.strip()!r} where a fresh export has {fresh.strip()!r}"
    fresh_contract = json.loads(made.sections["contract"])
    for name in {**contract, **fresh_contract}:
        if contract.get(name) != fresh_contract.get(name):
            return f"the contract says {name}={contract.get(name)!r}, that of a fresh export {fresh_contract.get(name)!r}"
    inputs = _inputs(made.exported, request)
    states = made.exported.random_states
    torch.set_rng_state(states[0])
    fresh = _native.Session(made.sections["joint"])
    fresh.set_functions([bind(call, request.module) for call in made.exported.functions])
    with torch.set_grad_enabled(request.grad):
        expected = fresh.forward(inputs, request.grad)
    try:
        _verify(joint, replace(made.exported, outputs=expected), request, inputs, again=False)
    except Bypass as bypass:
        return bypass.message
    finally:
        torch.set_rng_state(states[0])
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


def _build(exported: Exported, inputs: list[torch.Tensor], grad: bool) -> bytes:
    needs = [grad and tensor.requires_grad for tensor in inputs]
    try:
        return _native.build_joint(exported.model, needs)
    except _native.Unsupported as error:
        raise Bypass(Reason.UNSUPPORTED_OP, str(error)) from error
    except _native.RekindleError as error:
        raise Bypass(Reason.EXPORT_FAILED, str(error)) from error


def _verify_with_functions(
    joint: bytes,
    exported: Exported,
    request: ExportRequest,
    inputs: list[torch.Tensor],
    fingerprint: Fingerprint,
    undo: Undo,
    again: bool,
) -> list[Any]:
    """As _verify; returns what the backwards of the graph's autograd Functions were seen to depend on."""
    if not exported.functions:
        _verify(joint, exported, request, inputs, again)
        return []
    with _gradients_kept(request), Recorder(fingerprint, undo, effects_allowed=True) as recorder:
        world.called_back.active = True
        try:
            _verify(joint, exported, request, inputs, again)
        finally:
            world.called_back.active = False
    return recorder.observations


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


def _verify(joint: bytes, exported: Exported, request: ExportRequest, inputs: list[torch.Tensor], again: bool) -> None:
    """Compare a session with eager, on the call itself and, if `again`, on perturbed inputs and state."""
    every = [f"input {i}" for i in range(len(exported.arguments))] + [*request.parameters] + [*request.buffers]
    names = [every[i] for i in exported.used]
    try:
        session = _native.Session(joint)
        session.set_functions([bind(call, request.module) for call in exported.functions])
        _prepare(session, inputs, request.grad)
        with torch.set_grad_enabled(request.grad):
            compare_session(session, inputs, exported.outputs, exported.random_states, names, request.grad, exported.autocast_dtypes)
            with checkpoints_inlined():
                second = call_again(request, exported.writes) if again else None
            if second is not None:
                _verify_second(session, exported, second, names, request)
    except _native.Unsupported as error:
        raise Bypass(Reason.UNSUPPORTED_OP, str(error)) from error
    except (Bypass, PythonOpError):
        raise
    except Exception as error:  # of a kernel, or of an autograd Function
        raise Bypass(Reason.VERIFICATION_FAILED, f"{type(error).__name__}: {_first_line(error)}") from error


def _prepare(session: Any, inputs: list[torch.Tensor], grad: bool) -> None:
    try:
        session.prepare(inputs, grad)
    except RuntimeError as error:
        raise Bypass(Reason.UNSUPPORTED_OP, _first_line(error)) from error


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]


def _verify_second(session: Any, exported: Exported, second: SecondCall, names: list[str], request: ExportRequest) -> None:
    if second.structure != exported.structure:
        raise Bypass(Reason.VERIFICATION_FAILED, "the result has another structure or plain value for other numbers in the inputs")
    inputs = [second.tensors[i] for i in exported.used]
    end = len(second.outputs) - len(exported.writes)
    outputs = [*second.outputs[:end], *([None] * exported.effects), *second.outputs[end:]]
    state = dict(zip([*request.parameters, *request.buffers], second.tensors[len(request.arguments) :], strict=True))
    try:
        with torchscript.replaced(request.module, state):  # Functions may call modules
            compare_session(session, inputs, outputs, second.random_states, names, request.grad, exported.autocast_dtypes)
    except Bypass as bypass:
        message = f"for other numbers in the inputs, {bypass.message}; something is computed outside of torch"
        raise Bypass(bypass.reason, message) from bypass
    finally:
        torch.set_rng_state(exported.random_states[0])


def _mode(request: ExportRequest) -> str:
    mode = "train" if request.module.training else "eval"
    return mode if request.grad == request.module.training else mode + ("+grad" if request.grad else "+no_grad")


def _contract(exported: Exported, request: ExportRequest) -> dict[str, Any]:
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
    }
