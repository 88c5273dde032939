"""Holds what Rekindle uses of torch that torch does not promise to keep. A new release of torch is mended here.

No other file names torch's native module or the inside of its ONNX exporter (scripts/check_layers.py sees to it). What runs at
each call is bound to the function of C itself and costs no frame of Python. The exporter is imported within functions only: a
process that finds its graphs never loads it.
"""

from __future__ import annotations

import contextlib
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack
from torch._library.custom_ops import OPDEFS, CustomOpDef
from torch.nn.utils import stateless
from torch.overrides import _get_current_function_mode_stack, _pop_mode, _push_mode
from torch.utils._python_dispatch import _disable_current_modes, _get_current_dispatch_mode_stack

# Graphs that torch's tracer makes: their parts, and the types of their values.
Graph = torch._C.Graph
Node = torch._C.Node
Value = torch._C.Value
BoolType = torch._C.BoolType
DeviceObjType = torch._C.DeviceObjType
FloatType = torch._C.FloatType
IntType = torch._C.IntType
ListType = torch._C.ListType
NoneType = torch._C.NoneType
NumberType = torch._C.NumberType
OptionalType = torch._C.OptionalType
StringType = torch._C.StringType
TensorType = torch._C.TensorType
TupleType = torch._C.TupleType

# What torch.nn.functional.linear is where nobody has replaced it.
builtin_linear: Callable[..., torch.Tensor] = torch._C._nn.linear

# The schema of an operator, of its name with the namespace and its overload's name; RuntimeError where there is none.
schema_named: Callable[[str, str], Any] = torch._C._get_schema

# What a backend that PyTorch does not know has named its devices; "privateuseone" where there is none.
name_of_private_device: Callable[[], str] = torch._C._get_privateuse1_backend_name
# (operator, dispatch key) -> whether the operator has a kernel under that key itself.
has_kernel: Callable[[str, str], bool] = torch._C._dispatch_has_kernel_for_dispatch_key


def end_failed_capture(device: torch.device, pool: Any) -> None:
    """Lets the allocator of a GPU go on after a CUDA graph that could not be captured, which leaves it as it was meanwhile."""
    torch._C._cuda_endAllocateToPool(device.index, pool)
    torch._C._cuda_releasePool(device.index, pool)


def scalar_type(value: Value) -> str | None:
    """Names a tensor's dtype as the trace does ("Float"); None for a value that is no tensor, or whose dtype is unknown."""
    kind = value.type()
    return kind.scalarType() if isinstance(kind, TensorType) else None


# The trace that runs in this thread, to be set again later; None where there is none, which torch.compile knows as well.
tracing_state: Callable[[], Any] = torch._C._get_tracing_state
set_tracing_state: Callable[[Any], None] = torch._C._set_tracing_state
# What a tensor is in the graph of the trace; asked for one that the trace has not met, the graph gets it as a constant.
traced_value: Callable[[torch.Tensor], Value] = torch._C._get_value_trace
set_traced_value: Callable[[torch.Tensor, Value], None] = torch._C._set_value_trace


def traced_graph() -> Graph:
    """Returns the graph that the trace has made so far. There has to be a trace."""
    return tracing_state().graph()


@contextlib.contextmanager
def untraced() -> Iterator[None]:
    """Keeps what runs in the block out of the graph."""
    state = tracing_state()
    if state is None:  # and may be one that cannot be set, inside of an operator
        yield
        return
    set_tracing_state(None)
    try:
        yield
    finally:
        set_tracing_state(state)


# Tells whether backwards of this thread may use others.
is_multithreading_enabled: Callable[[], bool] = torch._C._is_multithreading_enabled


# Steps of torch that an export replaces (process_state.replaced): what has the function, and its name there.
Place = tuple[Any, str]
CANONICALIZE_FUSED: Place = torch._C, "_jit_pass_canonicalize_graph_fuser_ops"
MERGE_EQUAL: Place = torch._C, "_jit_pass_cse"
PEEPHOLE: Place = torch._C, "_jit_pass_peephole"
PREPROCESS: Place = torch._C, "_jit_pass_onnx_preprocess"
ASSIGN_OUTPUT_SHAPES: Place = torch._C, "_jit_pass_onnx_assign_output_shape"
INFER_SHAPES: Place = torch._C, "_jit_pass_onnx_graph_shape_type_inference"
INPUTS: Place = Node, "inputs"
OUTPUTS: Place = Node, "outputs"
CHECK_GRAPH: Place = torch._C, "_jit_pass_lint"
ANALYSE_SCALAR_TYPES: Place = torch._C, "_jit_pass_onnx_scalar_type_analysis"
START_BACKWARD: Place = torch.autograd, "_engine_run_backward"
CALL_FUNCTIONAL: Place = stateless, "_functional_call"
SCRIPT_IF_TRACING: Place = torch.jit._trace, "is_tracing"  # what a function of torch.jit.script_if_tracing asks
IS_TRACING: Place = torch._C, "_is_tracing"  # what torch.jit.is_tracing asks


def run_symbolic_place() -> Place:
    """Returns the place of the function that writes one node of a trace as ONNX."""
    from torch.onnx._internal.torchscript_exporter import utils

    return utils, "_run_symbolic_function"


# The exporter of TorchScript: its package, its log and settings, and the symbolic functions that were registered with it.
EXPORTER_PACKAGE = "torch.onnx._internal"
exporter_log_is_on: Callable[[], bool] = torch._C._jit_is_onnx_log_enabled
set_exporter_log: Callable[[bool], None] = torch._C._jit_set_onnx_log_enabled


def import_exporter() -> None:
    """Imports what torch.onnx.export imports when it first runs."""
    import torch.onnx._internal.torchscript_exporter.utils  # noqa: F401


def exporter_settings() -> dict[str, Any]:
    """Returns the settings that one export leaves to the next, by name. To change the dictionary is to change them."""
    from torch.onnx._internal.torchscript_exporter._globals import GLOBALS

    return vars(GLOBALS)


@contextlib.contextmanager
def untold_of_export() -> Iterator[None]:
    """Lets torch.onnx.is_in_onnx_export answer no in the block: a forward that asks goes the way that it goes in eager."""
    settings, name = exporter_settings(), "_in_onnx_export"
    before, settings[name] = settings[name], False
    try:
        yield
    finally:
        settings[name] = before


def symbolic_functions(opset: int) -> Callable[[str], Callable[..., Any] | None]:
    """Returns a function that finds, by an operator's name, what writes it as ONNX; None where the exporter has nothing."""
    from torch.onnx._internal.torchscript_exporter.registration import registry

    def find(name: str) -> Callable[..., Any] | None:
        group = registry.get_function_group(name)
        return None if group is None else group.get(opset)

    return find


def added_symbolic_functions() -> Iterator[tuple[str, int, Callable[..., Any]]]:
    """Yields name, opset and function of each symbolic function that is not the exporter's own; none where it is not loaded."""
    loaded = sys.modules.get("torch.onnx._internal.torchscript_exporter.registration")
    groups = {} if loaded is None else loaded.registry._registry
    for name in sorted(name for name, group in list(groups.items()) if group._functions._overrides):
        for opset, function in groups[name]._functions._overrides.items():
            yield name, opset, function


# Autograd.
# The engine itself, which START_BACKWARD does not replace here.
def run_backward(*arguments: Any, **options: Any) -> Any:
    """Runs a backward in this thread alone, for what is watched, or changed, is of this thread."""
    with torch.autograd.set_multithreading_enabled(False):
        return torch.autograd.graph._engine_run_backward(*arguments, **options)


@contextlib.contextmanager
def watched_gradient(leaf: torch.Tensor, hook: Callable[[torch.Tensor | None], torch.Tensor | None]) -> Iterator[None]:
    """Lets `hook` see the gradient of a leaf that has no hooks, as register_hook does; counts no handle, which keys may hold."""
    leaf._backward_hooks = OrderedDict({0: hook})
    try:
        yield
    finally:
        leaf._backward_hooks = None


# Sets how often each of some tensors was written, as autograd counts it; and a context in which writes to one do not count.
set_version_counters: Callable[[tuple[torch.Tensor, ...], tuple[int, ...]], None] = torch._C._autograd._unsafe_set_version_counter
version_kept: Callable[[torch.Tensor], contextlib.AbstractContextManager[None]] = torch.autograd._unsafe_preserve_version_counter
# How a view came to be, which decides what a write to it is to autograd.
CreationMeta = torch._C._autograd.CreationMeta
creation_meta: Callable[[torch.Tensor], CreationMeta] = torch._C._autograd._get_creation_meta
set_creation_meta: Callable[[torch.Tensor, CreationMeta], None] = torch._C._autograd._set_creation_meta
# Tells whether the backward for which this thread runs keeps its graph for further ones.
keeps_graph: Callable[[], bool] = torch._C._autograd._get_current_graph_task_keep_graph

# What an autograd Function calls `ctx`, and a node of autograd's graph.
FunctionContext: type = torch._C._FunctionBase


def is_in_backward() -> bool:
    """Tells whether this thread runs for a backward: the hook of a tensor, say, or a checkpoint that computes something again."""
    return torch._C._current_graph_task_id() != -1


def saved_tensors_hooks() -> tuple[Any, Any] | None:
    """Returns the pair of hooks that is called for what autograd saves, if there is one."""
    return torch._C._autograd._top_saved_tensors_default_hooks(True)


@contextlib.contextmanager
def without_saved_tensors_hooks() -> Iterator[None]:
    """Lets autograd save tensors as they are in the block."""
    pairs = []
    while (pair := saved_tensors_hooks()) is not None:
        pairs.append(pair)
        torch._C._autograd._pop_saved_tensors_default_hooks()
    try:
        yield
    finally:
        for pair in reversed(pairs):
            torch._C._autograd._push_saved_tensors_default_hooks(*pair)


def is_in_forward_mode() -> bool:
    """Tells whether a level of forward-mode differentiation is open."""
    return torch.autograd.forward_ad._current_level >= 0


# Modes: those that see functions of torch, those that see operators; the innermost is the last of a stack.
disabled_torch_function: Callable[[], contextlib.AbstractContextManager[None]] = torch._C.DisableTorchFunction
function_modes: Callable[[], list[Any]] = _get_current_function_mode_stack
count_function_modes: Callable[[], int] = torch._C._len_torch_function_stack
pop_function_mode: Callable[[], Any] = _pop_mode
push_function_mode: Callable[[Any], None] = _push_mode
operator_modes: Callable[[], list[Any]] = _get_current_dispatch_mode_stack
without_operator_modes: Callable[[], contextlib.AbstractContextManager[Any]] = _disable_current_modes


@contextlib.contextmanager
def without_function_modes() -> Iterator[list[Any]]:
    """Runs the block without the modes that see functions of torch, as that of a default device; yields them, outermost first."""
    modes = [pop_function_mode() for _ in range(count_function_modes())][::-1]
    try:
        yield modes
    finally:
        for mode in modes:
            push_function_mode(mode)


@contextlib.contextmanager
def under_function_modes(modes: list[Any]) -> Iterator[None]:
    """Puts modes, which are not entered anew, around the block."""
    for mode in modes:
        push_function_mode(mode)
    try:
        yield
    finally:
        for _ in modes:
            pop_function_mode()


# The `__torch_dispatch__` of a class that leaves operators what they are.
NO_TORCH_DISPATCH: Any = torch._C._disabled_torch_dispatch_impl

# Transforms of torch.func. The innermost that is active; None without one.
innermost_transform: Callable[[], Any] = torch._C._functorch.peek_interpreter_stack


@contextlib.contextmanager
def outside_of_transforms() -> Iterator[None]:
    """Keeps what runs in the block away from transforms: it may draw random numbers."""
    level = torch._C._vmapmode_increment_nesting()
    for _ in range(level):
        torch._C._vmapmode_decrement_nesting()
    try:
        with temporarily_clear_interpreter_stack():
            yield
    finally:
        for _ in range(level - 1):
            torch._C._vmapmode_increment_nesting()


# Dispatch keys: those of a tensor; those that this thread adds and leaves out; a context that sets these two.
dispatch_keys: Callable[[torch.Tensor], Any] = torch._C._dispatch_keys
included_keys: Callable[[], Any] = torch._C._dispatch_tls_local_include_set
excluded_keys: Callable[[], Any] = torch._C._dispatch_tls_local_exclude_set
dispatching_by: Callable[[Any, Any], contextlib.AbstractContextManager[None]] = torch._C._ForceDispatchKeyGuard

# Where torch has its functions of C: the base of torch.Tensor, what `torch` itself offers, and modules by their names.
TensorBase = torch._C.TensorBase
TORCH_FUNCTIONS: Any = torch._C._VariableFunctions
NN_OPERATORS: Any = torch._C._nn
NN_MODULE, LINALG_MODULE, TRANSFORMS_MODULE = "torch._C._nn", "torch._C._linalg", "torch._C._functorch"
OPERATOR_MODULES = (NN_MODULE, LINALG_MODULE, *(f"torch._C.{name}" for name in ("_fft", "_special", "_sparse", "_nested")))

# Operators that were defined with torch.library.custom_op, by their names with the namespace.
CustomOperator = CustomOpDef
CUSTOM_OPERATORS: Mapping[str, CustomOperator] = OPDEFS
