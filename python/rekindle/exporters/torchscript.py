"""The first adapter: torch.onnx.export(dynamo=False), in the mode the module is in, with parameters as inputs."""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from rekindle import _native, structure
from rekindle.contract import flatten_outputs, rebuild_arguments
from rekindle.exporters import Exported, ExportRequest, SizeGuard, onnx_model
from rekindle.exporters.aliases import untraced
from rekindle.exporters.assumptions import Assumptions
from rekindle.exporters.corrections import corrected
from rekindle.exporters.data_sizes import DataSizes
from rekindle.exporters.functions import Functions
from rekindle.exporters.open_sizes import OpenSizes, following
from rekindle.exporters.symbolics import OPSET, registered
from rekindle.exporters.trace_mode import TraceMode
from rekindle.exporters.traced_booleans import take_for_numbers
from rekindle.exporters.traced_sizes import Guard, SizeTrace, stacked
from rekindle.exporters.user_place import user_place
from rekindle.exporters.view_records import steps_in_result
from rekindle.layouts import copied, share_memory
from rekindle.parts import run_eager
from rekindle.reasons import Bypass, Reason
from rekindle.shapes import Shapes
from rekindle.views import check_strides


def load_exporter() -> None:
    """Import what torch.onnx.export imports when it first runs, so that no export is seen to depend on it."""
    import numpy.random  # noqa: F401  (its state is compared, and an operator's first call may import it)
    import onnx  # noqa: F401
    import torch.onnx._internal.torchscript_exporter.utils
    from torch._library.custom_ops import OPDEFS

    if any(not operator._init_fn.__module__.startswith("torch.") for operator in OPDEFS.values()):
        import torch._dynamo  # noqa: F401  (the first call of an operator defined in Python does)


def _check_numbers(sizes: SizeTrace, data: DataSizes) -> None:
    """Raise Bypass(unsupported_output) for a number in the result that depends on data: it comes after the structure."""
    for number in sizes.numbers:
        if data.reach(number.traced):
            message = f"the result has the size {number.value}, which depends on data; return a tensor of it"
            raise Bypass(Reason.UNSUPPORTED_OUTPUT, message)


class _Traced(nn.Module):
    """The module as a function of tensors: arguments, parameters, buffers. Holds no parameter of its own."""

    def __init__(self, request: ExportRequest, functions: Functions) -> None:
        super().__init__()
        self.__dict__["request"] = request
        self.__dict__["functions"] = functions
        self.__dict__["result"] = None

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        torch._C._jit_set_onnx_log_enabled(False)  # the exporter has just switched it on, whatever it was told
        request = self.__dict__["request"]
        arguments = tensors[: len(request.arguments)]
        state = dict(zip([*request.parameters, *request.buffers], tensors[len(arguments) :], strict=True))
        args, kwargs = rebuild_arguments(request.args, request.kwargs, list(arguments))
        given = structure.snapshot((args, kwargs))
        versions = [tensor._version for tensor in tensors]
        writable = [*arguments, *(state[name] for name in request.buffers)]
        sizes = SizeTrace(user_place)
        functions = self.__dict__["functions"]
        follows = bool(request.shapes.symbols) or request.data_sizes
        opened = OpenSizes(sizes, list(zip(arguments, request.shapes.dims, strict=True)), state.values()) if follows else None
        data = DataSizes()
        assumptions = Assumptions()
        mode = TraceMode(request.parameters.values(), writable, request.grad, opened, data, assumptions, functions.note_draw)
        functions.follow(opened, data)
        with request.watch, replaced(request.module, state), functions.recorded(), following(follows), mode:
            result = run_eager(request.module, request.is_part, args, kwargs)
        if not structure.same_items(given, (args, kwargs)):
            raise Bypass(Reason.INPUT_MUTATED, "the forward changes a container that it was given; return what it adds")
        objects: list[Any] = []
        with untraced():
            steps = functools.partial(steps_in_result, mode.views, sizes, data)
            layout, outputs = flatten_outputs(result, list(tensors), objects, sizes.number, steps)
            mode.check_views(layout)
        _check_numbers(sizes, data)
        mode.renew([*outputs, *tensors])
        writes = [i for i, (tensor, version) in enumerate(zip(tensors, versions, strict=True)) if tensor._version != version]
        written = [_written(i, tensors, request) for i in writes]
        self.__dict__["effects"] = functions.unread([*outputs, *written])
        outputs += self.__dict__["effects"] + written
        if not outputs:
            raise Bypass(Reason.UNSUPPORTED_OUTPUT, "the module returned no tensor that was computed")
        self.__dict__["data_guards"] = sizes.split_off(data.reach) + assumptions.guards(functions.calls)
        checked = stacked(self.__dict__["data_guards"])
        if checked is not None:
            self.__dict__["effects"].append(checked)
            outputs.insert(len(outputs) - len(written), checked)
        self.__dict__["result"] = layout, list(outputs), torch.get_rng_state()
        self.__dict__["objects"] = objects
        self.__dict__["sizes"] = sizes
        self.__dict__["writes"] = writes
        self.__dict__["autocast_dtypes"] = frozenset(mode.autocast_dtypes)
        self.__dict__["allowed"] = mode.allowed
        self.__dict__["sized_by_data"] = data.any
        answers = sizes.answers()
        take_for_numbers(torch._C._get_tracing_state().graph())
        return tuple(outputs) if answers is None else (*outputs, answers)


def _written(position: int, tensors: tuple[torch.Tensor, ...], request: ExportRequest) -> torch.Tensor:
    """What a forward leaves in an argument or a buffer, as an output."""
    tensor, arguments = tensors[position], len(request.arguments)
    if position < arguments:
        if tensor.requires_grad:
            raise Bypass(
                Reason.INPUT_MUTATED,
                f"the forward writes in place to {_name(tensor)}, which then requires a gradient; write to a clone",
            )
        live, state = request.arguments[position], [*request.parameters.values(), *request.buffers.values()]
        with untraced():
            shared = live.stride() != tensor.stride() or share_memory(live, [*request.arguments, *state])
        if shared:
            raise Bypass(
                Reason.INPUT_MUTATED, f"the forward writes in place to {_name(tensor)}, which shares memory; write to a clone"
            )
    elif position < arguments + len(request.parameters):
        raise Bypass(Reason.STATE_MUTATED, "the forward writes a parameter in place")
    elif tensor.requires_grad:
        name = [*request.buffers][position - arguments - len(request.parameters)]
        raise Bypass(Reason.BUFFER_MUTATED, f"buffer {name!r} keeps the autograd graph of what is written to it; detach it first")
    return tensor.detach()


def _name(argument: torch.Tensor) -> str:
    with untraced():
        return f"the input of shape {tuple(argument.shape)}"


@contextlib.contextmanager
def replaced(module: nn.Module, state: dict[str, torch.Tensor]) -> Iterator[None]:
    """Put `state` in the place of the module's parameters and buffers, under every name a shared one has."""
    by_identity: dict[int, torch.Tensor] = {}
    for name, tensor in state.items():
        owner, _, leaf = name.rpartition(".")
        found = module.get_submodule(owner)
        original = found._parameters.get(leaf) if leaf in found._parameters else found._buffers[leaf]
        by_identity[id(original)] = tensor
    swapped: list[tuple[dict[str, Any], str, Any]] = []
    tables = [table for submodule in module.modules() for table in (submodule._parameters, submodule._buffers)]
    before = [dict(table) for table in tables]
    changed = None
    try:
        for submodule in module.modules():
            for table in (submodule._parameters, submodule._buffers):
                for leaf, original in list(table.items()):
                    if original is not None:
                        swapped.append((table, leaf, original))
                        table[leaf] = by_identity[id(original)]
        yield
        changed = next((leaf for table, leaf, original in swapped if table.get(leaf) is not by_identity[id(original)]), None)
        added = next((leaf for table, kept in zip(tables, before, strict=True) for leaf in table if leaf not in kept), None)
        changed = changed or added
    finally:
        for table, kept in zip(tables, before, strict=True):
            table.clear()
            table.update(kept)
    if changed is not None:
        raise Bypass(
            Reason.BUFFER_MUTATED, f"the forward puts another tensor in the place of {changed!r}, which no graph can do yet"
        )


# What torch's recurrent layers derive from their parameters whenever these are others.
_FLAT_WEIGHTS = ("_flat_weights", "_flat_weight_refs")


@contextlib.contextmanager
def attributes_kept(module: nn.Module) -> Iterator[None]:
    """Undo what the forward does to the modules' attributes, and refuse a forward that does anything to them."""
    before = [(submodule, dict(submodule.__dict__)) for submodule in module.modules()]
    changed = None
    try:
        yield
    finally:
        for submodule, attributes in before:
            derived = _FLAT_WEIGHTS if isinstance(submodule, nn.RNNBase) else ()
            for name in [*submodule.__dict__, *attributes]:
                if submodule.__dict__.get(name) is not attributes.get(name) and name not in derived:
                    changed = changed or f"{type(submodule).__name__}.{name}"
            submodule.__dict__.clear()
            submodule.__dict__.update(attributes)
    if changed is not None:
        raise Bypass(Reason.STATE_MUTATED, f"the forward changes the attribute {changed}; keep state in buffers")


@contextlib.contextmanager
def _quiet() -> Iterator[list[warnings.WarningMessage]]:
    """Keep the exporter's chatter out of the user's log, and the Python stack out of the nodes, which costs more than the
    trace; trace warnings are collected, for they are findings."""
    logger = logging.getLogger("torch.onnx")
    level = logger.level
    graph_log = torch._C._jit_is_onnx_log_enabled()
    stacks = _native.record_stacks(False)
    logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("ignore")
            warnings.filterwarnings("always", category=torch.jit.TracerWarning)
            yield found
    finally:
        logger.setLevel(level)
        _native.record_stacks(stacks)
        torch._C._jit_set_onnx_log_enabled(graph_log)


def export(request: ExportRequest) -> Exported:
    """See ExportRequest and Exported. Raises Bypass; errors of the user's own forward are raised as they are."""
    arguments = [copied(tensor) for tensor in request.arguments]
    buffers = [tensor.detach().clone() for tensor in request.buffers.values()]
    versions = [tensor._version for tensor in request.parameters.values()]
    functions = Functions(request.module, request.inline_functions, request.sized_functions)
    traced = _Traced(request, functions)
    tensors = (*arguments, *request.parameters.values(), *buffers)
    names = [_name_of_argument(i) for i in range(len(arguments))] + [*request.parameters] + [*request.buffers]
    random_state = torch.get_rng_state()
    autocast_cache = torch.is_autocast_cache_enabled()  # the exporter leaves it off when it fails
    try:
        with attributes_kept(request.module), torch.set_grad_enabled(request.grad):
            model = _run_exporter(traced, tensors, names, functions, _open_dims(request))
    finally:
        torch.set_autocast_cache_enabled(autocast_cache)
        torch.set_rng_state(random_state)
    if versions != [tensor._version for tensor in request.parameters.values()]:
        raise Bypass(Reason.STATE_MUTATED, "the forward writes a parameter in place")
    layout, outputs, random_state_after = traced.__dict__["result"]
    writes = traced.__dict__["writes"]
    live = [*request.arguments, *request.parameters.values(), *request.buffers.values()]
    for i, (before, after) in enumerate(zip(live, tensors, strict=True)):
        if i not in writes and before is not after:
            is_input = i < len(arguments)
            _check_unchanged(
                "input" if is_input else "buffer", Reason.INPUT_MUTATED if is_input else Reason.BUFFER_MUTATED, before, after
            )
    check_strides(layout, request.arguments)
    arguments = [copied(request.arguments[i]) if i in writes else argument for i, argument in enumerate(arguments)]
    sizes: SizeTrace = traced.__dict__["sizes"]
    forgotten = bool(_open_dims(request)) or traced.__dict__["sized_by_data"]
    parts = onnx_model.taken_apart(model, sizes.has_answers, forgotten)
    used = [names.index(name) for name in parts.inputs]
    return Exported(
        parts.model, used, layout, outputs, (random_state, random_state_after), arguments,
        traced.__dict__["autocast_dtypes"], writes, functions.calls, len(traced.__dict__["effects"]),
        dict(sizes.fixed), _plain(sizes.guards), parts.answers,
        [number.value for number in sizes.numbers], traced.__dict__["objects"], sizes.strides, traced.__dict__["allowed"],
        _plain(traced.__dict__["data_guards"]), traced.__dict__["sized_by_data"],
        functions.sizes,
    )  # fmt: skip


def _plain(guards: list[Guard]) -> list[SizeGuard]:
    return [SizeGuard(guard.where, guard.what, guard.value) for guard in guards]


def _name_of_argument(position: int) -> str:
    return f"argument#{position}"


def _open_dims(request: ExportRequest) -> list[tuple[str, dict[int, str]]]:
    """Name and symbols by dimension of each argument that has any."""
    dims = ({i: dim for i, dim in enumerate(dims) if isinstance(dim, str)} for dims in request.shapes.dims)
    return [(_name_of_argument(i), symbols) for i, symbols in enumerate(dims) if symbols]


def with_shapes(model: bytes, shapes: Shapes) -> bytes:
    """An exported model whose arguments have these shapes."""
    return onnx_model.with_input_dims(model, {_name_of_argument(i): dims for i, dims in enumerate(shapes.dims)})


def _run_exporter(
    traced: _Traced,
    tensors: tuple[torch.Tensor, ...],
    names: list[str],
    functions: Functions,
    open_dims: list[tuple[str, dict[int, str]]],
) -> bytes:
    buffer = io.BytesIO()
    opsets: dict[str, int] = {}
    open_inputs = [names.index(name) for name, _ in open_dims]
    try:
        with _quiet() as warned, registered(), corrected(opsets, functions, open_inputs):
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
    except torch.onnx.errors.UnsupportedOperatorError as error:
        raise Bypass(Reason.UNSUPPORTED_OP, f"the exporter does not know {error.args[0].splitlines()[0]}") from error
    except torch.onnx.errors.SymbolicValueError as error:
        raise Bypass(Reason.UNSUPPORTED_OP, f"torch.onnx.export: {str(error).splitlines()[0]}") from error
    except torch.onnx.errors.OnnxExporterError as error:
        raise Bypass(Reason.EXPORT_FAILED, f"torch.onnx.export: {str(error).splitlines()[0]}") from error
    except Bypass:
        raise
    except Exception as error:
        # The same error in eager, if the forward itself is at fault, reaches the user from there.
        raise Bypass(Reason.EXPORT_FAILED, f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}") from error
    for warning in warned:
        if issubclass(warning.category, torch.jit.TracerWarning) and not str(warning.message).startswith(_NO_FINDINGS):
            raise Bypass(Reason.VALUE_SPECIALIZED, str(warning.message).splitlines()[0])
    return buffer.getvalue()


# How many items a tensor has is asked, see OpenSizes, or fixed. Numbers from Python are constants, as in torch.tensor: the fingerprint
# has what they are made of, and a tensor among them is asked for its value.
_NO_FINDINGS = ("Iterating over a tensor", "torch.Tensor results are registered")


def _check_unchanged(what: str, reason: Reason, before: torch.Tensor, after: torch.Tensor) -> None:
    if not torch.equal(before.detach().nan_to_num(), after.detach().nan_to_num()):
        raise Bypass(reason, f"the forward writes in place to the {what} of shape {tuple(before.shape)}")
