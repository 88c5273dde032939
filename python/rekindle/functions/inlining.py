"""Traces the operations of some Functions instead of a call: of those that are inlined or have an export of their own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd.function import FunctionCtx, _is_setup_context_defined
from torch.utils._pytree import tree_leaves, tree_map_only
from torch.utils.checkpoint import CheckpointFunction, _NoopSaveInputs

from rekindle.functions.interception import Handler, intercepted
from rekindle.functions.joined_results import Joined, joined
from rekindle.functions.quantized import matmul_4bit
from rekindle.functions.registry import declaration_of
from rekindle.process.random_states import random_states, random_states_equal
from rekindle.process.torch_internals import builtin_linear
from rekindle.reasons import Bypass, Reason


def inlined(function: type, arguments: tuple[Any, ...], every: bool) -> tuple[bool, Any]:
    """Traces the operations of a call, if its Function is not to be called back.

    every: whether Functions that say nothing are inlined

    Returns (True, the result) when they were traced, and (False, None) when the Function is to be called back.
    """
    declared = declaration_of(function)
    export = declared.export
    if export is None and declared.inline is None:
        export = _EXPORTS.get(function) or _EXPORTS_OF_LIBRARIES.get((function.__module__, function.__qualname__))
    if export is not None and (result := export(*arguments)) is not NotImplemented:
        return True, result
    if declared.inline or (every and declared.inline is None):
        return True, _traced(function, arguments)
    return False, None


class _Context(FunctionCtx):
    """Stands for `ctx` in a forward that autograd differentiates itself."""

    def __init__(self, arguments: tuple[Any, ...]) -> None:
        self.needs_input_grad = tuple(isinstance(each, torch.Tensor) and each.requires_grad for each in arguments)


def _traced(function: Any, arguments: tuple[Any, ...]) -> Any:
    context = _Context(arguments)
    if _is_setup_context_defined(function.setup_context):
        result = function.forward(*arguments)
        function.setup_context(context, arguments, result)
    else:
        result = function.forward(context, *arguments)
    without = getattr(context, "non_differentiable", ())
    return tree_map_only(
        torch.Tensor, lambda tensor: tensor.detach() if any(tensor is each for each in without) else tensor, result
    )


def run_checkpoint(run: Callable[..., Any], preserve_rng_state: bool, *arguments: Any) -> Any:
    """Runs a re-entrant activation checkpoint with eager's numbers and gradients, and its forward once instead of twice."""
    before = random_states()
    result = run(*arguments)
    if not preserve_rng_state and not random_states_equal(before, random_states()):
        raise Bypass(
            Reason.PYTHON_OP, "a checkpoint with preserve_rng_state=False draws other numbers in its backward than in its forward"
        )
    if torch.is_grad_enabled() and any(isinstance(each, torch.Tensor) and each.requires_grad for each in arguments):
        return _as_seen_by_autograd(result)
    return _detached(result)


def _as_seen_by_autograd(result: Any) -> Any:
    """Returns the result of a Function without the gradients of tensors within containers, but the tuple that it may return."""
    if isinstance(result, tuple):
        return tuple(each if isinstance(each, torch.Tensor) else _detached(each) for each in result)
    return result if isinstance(result, torch.Tensor) else _detached(result)


def _detached(result: Any) -> Any:
    return tree_map_only(torch.Tensor, lambda tensor: tensor.detach(), result)


def _save_inputs(*arguments: Any) -> torch.Tensor:
    """Returns what a checkpoint that is not re-entrant keeps its inputs in: an empty tensor, which nothing reads."""
    assert any(isinstance(each, torch.Tensor) for each in tree_leaves(arguments))
    return torch.empty((0,), device="cpu")


def checkpoints_inlined(
    watch: Handler = lambda function, arguments, run: run(*arguments),
) -> contextlib.AbstractContextManager[None]:
    """Runs checkpoints of this thread as graphs do: the gradients of a re-entrant one can then be asked for.

    watch: gets the other Functions
    """

    def handle(function: type, arguments: tuple[Any, ...], run: Callable[..., Any]) -> Any:
        if function is CheckpointFunction:
            return joined(run_checkpoint(*arguments))
        return run(*arguments) if function is Joined else watch(function, arguments, run)

    return intercepted(handle)


# By module and name: the libraries need not be there.
_EXPORTS_OF_LIBRARIES: dict[tuple[str, str], Callable[..., Any]] = {
    ("bitsandbytes.autograd._functions", "MatMul4Bit"): matmul_4bit,
    # By which ZeRO 3 replaces torch.nn.functional.linear, to save no weight.
    ("deepspeed.runtime.zero.linear", "LinearFunctionForZeroStage3"): builtin_linear,
}
_EXPORTS: dict[type, Callable[..., Any]] = {CheckpointFunction: run_checkpoint, _NoopSaveInputs: _save_inputs}
