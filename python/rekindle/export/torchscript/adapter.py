"""Exports with torch.onnx.export(dynamo=False), in the mode the module is in, with parameters as inputs: the first adapter.

An example: `nn.Linear(4, 2)` called with one matrix gives a model with the inputs `argument#0`, `weight` and `bias`. If sizes are
open, the dimensions of `argument#0` are the symbols `s0` and `s1`.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import traceback
import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch

from rekindle import _native
from rekindle.errors import first_line
from rekindle.export.copies.private_copy import numbers_of, private_tensors
from rekindle.export.request import Call, ExportRequest
from rekindle.export.torchscript import onnx_model
from rekindle.export.torchscript.corrections import corrected
from rekindle.export.torchscript.dtypes import NUMBERS
from rekindle.export.torchscript.function_nodes import Functions
from rekindle.export.torchscript.symbolics import OPSET, registered
from rekindle.export.torchscript.traced_module import Findings, TracedModule
from rekindle.export.traced import AskedSizes, EagerRun, SizeGuard, Traced, TracedGraph
from rekindle.key.fingerprint import Fingerprint
from rekindle.modules.partial_capture import run_eager
from rekindle.process.process_state import changed
from rekindle.process.random_states import random_states, set_random_states
from rekindle.process.torch_internals import (
    CUSTOM_OPERATORS,
    exporter_log_is_on,
    exporter_settings,
    import_exporter,
    set_exporter_log,
    without_function_modes,
)
from rekindle.reasons import Bypass, Reason
from rekindle.recording.warnings_shown import of_traces
from rekindle.results.layouts import copied
from rekindle.results.views import check_strides
from rekindle.sizes.shapes import Shapes
from rekindle.sizes.traced_sizes import Guard

# How many items a tensor has is asked, see OpenSizes, or fixed. Numbers from Python are constants, as in torch.tensor: the
# fingerprint has what they are made of, and a tensor among them is asked for its value.
_OURS = str(Path(__file__).parents[2]) + os.sep
_OF_TORCH = "(Triggered internally at "
_NO_FINDINGS = ("Iterating over a tensor", "torch.Tensor results are registered")


def load_exporter() -> None:
    """Imports what torch.onnx.export imports when it first runs, so that no export is seen to depend on it."""
    import numpy.random  # noqa: F401  (its state is compared, and an operator's first call may import it)
    import onnx  # noqa: F401

    import_exporter()
    if any(not operator._init_fn.__module__.startswith("torch.") for operator in CUSTOM_OPERATORS.values()):
        import torch._dynamo  # noqa: F401  (the first call of an operator defined in Python does)


@contextlib.contextmanager
def _quiet() -> Iterator[list[warnings.WarningMessage]]:
    """Keeps the exporter's chatter out of the user's log, and collects trace warnings, for they are findings.

    Nor do nodes get the Python stack, which costs more than the trace.
    """
    stacks = _native.record_stacks(False)
    try:
        with _logs_kept(), of_traces() as found:
            yield found
    finally:
        _native.record_stacks(stacks)


def _logs_kept() -> contextlib.AbstractContextManager[None]:
    """Keeps what the exporter does to its settings and logs within; only errors are logged there."""
    logger = logging.getLogger("torch.onnx")
    level, graph_log, settings = logger.level, exporter_log_is_on(), exporter_settings()
    before = dict(settings)

    def undo() -> None:
        logger.setLevel(level)
        set_exporter_log(graph_log)
        settings.update(before)

    logger.setLevel(logging.ERROR)
    return changed(undo)


def export(request: ExportRequest) -> Traced:
    """Traces the forward of a call.

    Raises Bypass where there is no graph of it, for an error of the user's forward too: eager, which then runs, raises it again.
    """
    call, plan = request.call, request.plan
    tensors = private_tensors(call)
    private = request.copies.around(tensors)
    before, buffers_before = _contents(private), {i: numbers_of(tensors[i]) for i in _positions_of_buffers(call)}
    fingerprint = _described(request, private)
    functions = Functions(private.module, plan.inline_functions, plan.sized_functions)
    traced = TracedModule(request, functions, private)
    names = [_name_of_argument(i) for i in range(len(call.arguments))] + [*call.parameters] + [*call.buffers]
    before_draws = random_states()
    autocast_cache = torch.is_autocast_cache_enabled()  # the exporter leaves it off when it fails
    try:
        with torch.set_grad_enabled(call.grad):
            model = _run_exporter(traced, tuple(tensors), names, functions, _open_dims(plan.shapes))
    finally:
        torch.set_autocast_cache_enabled(autocast_cache)
        set_random_states(before_draws)
    if before != _contents(private):
        raise Bypass(Reason.STATE_MUTATED, "the forward writes a parameter in place")
    found = traced.found
    assert found is not None
    writes = found.effects.writes
    _check_unchanged(call, tensors, buffers_before, writes)
    _check_same(request, fingerprint, private)
    check_strides(found.result.structure, call.arguments)
    _check_devices(found.result.outputs, call.device)
    given = list(tensors)
    for i in writes:
        given[i] = buffers_before[i] if i in buffers_before else copied(call.arguments[i])
    ranks = [output.dim() for output in found.result.outputs]
    types = _complex_types(dict(zip(names, tensors, strict=True)), plan.shapes)
    parts = onnx_model.taken_apart(model, found.sizes.has_answers, ranks, types)
    used = [names.index(name) for name in parts.inputs]
    return Traced(
        TracedGraph(parts.model, used, parts.answers, functions.calls, functions.sizes),
        found.result,
        found.effects,
        _asked(found),
        EagerRun(given, (before_draws, found.random_states), found.autocast_dtypes, found.allowed),
    )


def _contents(private: Call) -> list[tuple[int, int]]:
    """Returns what changes where a parameter is written, or gets other memory."""
    return [(tensor._version, tensor.data_ptr()) for tensor in private.parameters.values()]


def _positions_of_buffers(call: Call) -> range:
    return range(len(call.arguments) + len(call.parameters), len(call.tensors))


def _described(request: ExportRequest, private: Call) -> Fingerprint:
    """Returns the fingerprint of the copy, which has to be the live module's. Raises Bypass where it is another."""
    live, found = request.describe(request.call), request.describe(private)
    if (why := live.as_copied().difference(found.as_copied())) is not None:
        raise Bypass(Reason.OPAQUE_VALUE, f"a private copy of the module is not like it: {why}")
    for name, tensor in found.bound.items():
        if tensor is not private.buffers.get(name):  # the copy has a live object above it: the graph would keep the numbers
            what = f"{name.removeprefix('.')} is a tensor below an object that private copies share with the module"
            raise Bypass(Reason.OPAQUE_VALUE, f"{what}; register it as a buffer of the module that uses it")
    return found


def _check_devices(outputs: list[torch.Tensor], device: torch.device) -> None:
    """Raises Bypass for an output that eager does not have on the device of the call: a graph has all of them there."""
    for output in outputs:
        if output.device != device:
            message = f"a result is on {output.device}, the call's tensors are on {device}; move it outside of the forward"
            raise Bypass(Reason.UNSUPPORTED_DEVICE, message)


def _check_same(request: ExportRequest, fingerprint: Fingerprint, private: Call) -> None:
    """Raises Bypass where the forward has changed something of the copy that it ran on."""
    try:
        now = request.describe(private)
        changed = fingerprint.difference(now)
    except Exception as error:  # what it holds now is of the trace, or cannot be digested any more
        raise Bypass(Reason.STATE_MUTATED, "the forward changes what its module holds; keep state in buffers") from error
    changed = changed or fingerprint.replaced_tensor(now)
    if changed is not None:
        raise Bypass(Reason.STATE_MUTATED, f"the forward changes {changed}; keep state in buffers")


def _asked(found: Findings) -> AskedSizes:
    """Returns what the forward asked of sizes, without the trace."""
    sizes = found.sizes
    return AskedSizes(dict(sizes.fixed), _plain(sizes.guards), sizes.strides, _plain(found.data_guards), found.sized_by_data)


def _plain(guards: list[Guard]) -> list[SizeGuard]:
    return [SizeGuard(guard.where, guard.what, int(guard.value)) for guard in guards]


def _name_of_argument(position: int) -> str:
    return f"argument#{position}"


def _open_dims(shapes: Shapes) -> list[tuple[str, dict[int, str]]]:
    """Returns name and symbols by dimension of each argument that has any."""
    dims = ({i: dim for i, dim in enumerate(dims) if isinstance(dim, str)} for dims in shapes.dims)
    return [(_name_of_argument(i), symbols) for i, symbols in enumerate(dims) if symbols]


def _complex_types(inputs: Mapping[str, torch.Tensor], shapes: Shapes) -> dict[str, onnx_model.InputType]:
    """Returns the types of complex inputs, which the exporter cannot write down (see operators.py)."""
    dims = [*shapes.dims, *(list(tensor.shape) for tensor in list(inputs.values())[len(shapes.dims) :])]
    return {
        name: (NUMBERS[tensor.dtype], of_it)
        for (name, tensor), of_it in zip(inputs.items(), dims, strict=True)
        if tensor.is_complex()
    }


def with_shapes(model: bytes, shapes: Shapes) -> bytes:
    """Returns an exported model with these shapes of its arguments."""
    return onnx_model.with_input_dims(model, {_name_of_argument(i): dims for i, dims in enumerate(shapes.dims)})


def _run_exporter(
    traced: TracedModule,
    tensors: tuple[torch.Tensor, ...],
    names: list[str],
    functions: Functions,
    open_dims: list[tuple[str, dict[int, str]]],
) -> bytes:
    buffer = io.BytesIO()
    opsets: dict[str, int] = {}
    open_inputs = [names.index(name) for name, _ in open_dims]
    converting = corrected(opsets, functions, open_inputs, traced.request.plan.eager_numerics)
    with _failures_as_bypass(), _quiet() as warned, registered(), converting, without_function_modes() as traced.modes:
        torch.onnx.export(
            traced,
            tensors,
            buffer,
            dynamo=False,
            training=torch.onnx.TrainingMode.PRESERVE,
            opset_version=OPSET,
            input_names=names,
            do_constant_folding=False,
            export_params=False,
            keep_initializers_as_inputs=True,
            custom_opsets=opsets,
            autograd_inlining=False,
            dynamic_axes=dict(open_dims),
            verbose=True,  # the places that nodes come from are kept only then
        )
    for warning in warned:
        text = (str(warning.message).splitlines() or [""])[0]
        if warning.filename.startswith(_OURS):  # of what the recorder reads, not of the forward
            continue
        if _OF_TORCH in str(warning.message):  # once in a process, by an operator that the graph runs too
            warnings.warn_explicit(warning.message, warning.category, warning.filename, warning.lineno)
            continue
        if not issubclass(warning.category, torch.jit.TracerWarning):  # its user is to be shown it, by eager
            raise Bypass(Reason.SIDE_EFFECT, f"the forward warns, which a graph would not: {text}")
        if not text.startswith(_NO_FINDINGS):
            raise Bypass(Reason.VALUE_SPECIALIZED, text)
    return buffer.getvalue()


@contextlib.contextmanager
def _failures_as_bypass() -> Iterator[None]:
    try:
        yield
    except torch.onnx.errors.UnsupportedOperatorError as error:
        raise Bypass(Reason.UNSUPPORTED_OP, f"the exporter does not know {error.args[0].splitlines()[0]}") from error
    except torch.onnx.errors.SymbolicValueError as error:
        raise Bypass(Reason.UNSUPPORTED_OP, f"torch.onnx.export: {first_line(error)}") from error
    except torch.onnx.errors.OnnxExporterError as error:
        raise Bypass(Reason.EXPORT_FAILED, f"torch.onnx.export: {first_line(error)}") from error
    except Bypass:
        raise
    except Exception as error:
        # The same error in eager, if the forward itself is at fault, reaches the user from there.
        frames = (frame for frame, _ in traceback.walk_tb(error.__traceback__))
        what = "the forward raised " if any(frame.f_code is run_eager.__code__ for frame in frames) else ""
        raise Bypass(Reason.EXPORT_FAILED, f"{what}{type(error).__name__}: {first_line(error)}") from error


def _check_unchanged(call: Call, tensors: Sequence[torch.Tensor], buffers: dict[int, torch.Tensor], writes: list[int]) -> None:
    """Raises Bypass where the forward wrote to a tensor that is not among `writes`.

    tensors: as the forward left them
    buffers: as they were before, by position
    writes: positions of the tensors that may be written
    """
    before = {**dict(enumerate(call.arguments)), **buffers}
    for i, old in before.items():
        if i in writes or torch.equal(old.detach().nan_to_num(), tensors[i].detach().nan_to_num()):
            continue
        is_input = i < len(call.arguments)
        what, reason = ("input", Reason.INPUT_MUTATED) if is_input else ("buffer", Reason.BUFFER_MUTATED)
        raise Bypass(reason, f"the forward writes in place to the {what} of shape {tuple(old.shape)}")
