"""Refuses what a forward may do with torch that no graph can repeat. What it may ask: questions.py."""

from __future__ import annotations

import types
from collections.abc import Callable, Container, Mapping
from typing import Any, TypeAlias

import torch

from rekindle.export.trace.in_place import written_by
from rekindle.export.trace.leaves import tensors_of
from rekindle.export.trace.questions import name_of
from rekindle.export.trace.user_place import user_place
from rekindle.process.torch_internals import innermost_transform, saved_tensors_hooks, tracing_state
from rekindle.reasons import Bypass, Reason

_GRADIENTS = {torch.Tensor.grad.__get__, torch.Tensor.grad.__set__}
_HOOKS = {
    torch.Tensor.register_hook,
    torch.Tensor.register_post_accumulate_grad_hook,
    torch.Tensor.retain_grad,
    torch.Tensor.grad_fn.__get__,
}
_REQUIRES_GRAD = {torch.Tensor.requires_grad.__set__, torch.Tensor.requires_grad_}
_GENERATORS = {torch.manual_seed, torch.seed, torch.set_rng_state}
# What Functions have kept, by address, with the name of the Function; the tensor keeps the memory.
Kept: TypeAlias = Mapping[int, tuple[torch.Tensor, str]]
OF_VALUES = {torch.tensor, torch.as_tensor, torch.asarray, torch.Tensor.new_tensor}  # these take numbers out of tensors in a list


def refuse(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], caller: types.FrameType, given: Container[int]) -> None:
    """Raises Bypass for a function of torch that a forward calls, if no graph can repeat what it does.

    given: the identities of the tensors that the forward has not made: its arguments, parameters and buffers
    """
    if innermost_transform() is not None:
        message = f"{user_place()} runs in a transform of torch.func, whose tensors no trace follows"
        raise Bypass(Reason.UNSUPPORTED_OP, message)
    refuse_saved_tensors_hooks()
    if function in _GRADIENTS:
        raise Bypass(
            Reason.STATE_MUTATED, f"{user_place()} reads or writes the gradient of a tensor in the forward; do so outside"
        )
    if (name := _set_for_good(function, args, kwargs, given)) is not None:
        message = f"{user_place()} sets {name} of a tensor, which a graph would not do; write in place, or do so outside"
        raise Bypass(Reason.STATE_MUTATED, message)
    # A checkpoint asks whether what it was given has a gradient.
    if function in _HOOKS and caller.f_globals.get("__name__") != "torch.utils.checkpoint":
        raise Bypass(
            Reason.SIDE_EFFECT,
            f"{user_place()} uses {name_of(function)} of a tensor in the forward, where the graph has none; register it outside",
        )
    if function in OF_VALUES and _has_listed_tensors(function, args, kwargs):
        message = f"{user_place()} makes a tensor of a list of tensors ({name_of(function)}), whose numbers would be constants"
        raise Bypass(Reason.VALUE_SPECIALIZED, f"{message}; use torch.stack")
    if function in _GENERATORS or kwargs.get("generator") is not None:
        raise Bypass(Reason.NONDETERMINISTIC, f"{user_place()} uses a random generator of its own; use torch's default one")


def refuse_saved_tensors_hooks() -> None:
    """Raises Bypass within a region of the user's saved-tensor hooks, which may change what the backward reads.

    Those of torch give it back as it was: a graph needs no save_on_cpu, and has checkpoints of its own.
    """
    hooks = saved_tensors_hooks() if torch.is_grad_enabled() else None
    if hooks is not None and any(str(getattr(hook, "__module__", "")).partition(".")[0] != "torch" for hook in hooks):
        message = f"{user_place()} runs under a pair of saved-tensor hooks, which a graph would not call"
        raise Bypass(Reason.UNSUPPORTED_OP, message)


def _has_listed_tensors(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Tells whether what a call makes a tensor of is no tensor and contains some."""
    given = [*args[function is torch.Tensor.new_tensor :], *kwargs.values()]
    return any(not isinstance(value, torch.Tensor) and bool(tensors_of(value)) for value in given)


def _set_for_good(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], given: Container[int]) -> str | None:
    """Returns the attribute of a tensor that a call exchanges, if that is seen after the forward, or by the trace not at all."""
    if function == torch.Tensor.data.__set__:
        return "data"
    if function not in _REQUIRES_GRAD or id(args[0]) not in given:
        return None
    wanted = args[1] if len(args) > 1 else kwargs.get("requires_grad", True)
    return "requires_grad" if args[0].requires_grad is not wanted else None


def refuse_write(
    function: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    is_writable: Callable[[Any], bool],
    protected: Container[int],
    kept: Kept,
) -> None:
    """Raises Bypass for a call that writes to a parameter, or to an argument that requires a gradient.

    is_writable: tells of a tensor whether it is, or shares the memory of, an argument or a buffer
    protected: the addresses of the parameters' memory
    kept: what autograd Functions read in their backwards
    """
    for target in written_by(function, args, kwargs):
        if target.layout is torch.strided:
            refuse_kept(target.untyped_storage().data_ptr(), kept, user_place)
        if is_writable(target) and target.is_leaf and target.requires_grad:
            message = f"{user_place()} writes in place to an input that requires a gradient; write to a clone"
            raise Bypass(Reason.INPUT_MUTATED, message)
        if target.layout is torch.strided and target.untyped_storage().data_ptr() in protected:
            name = getattr(function, "__name__", function)
            raise Bypass(Reason.STATE_MUTATED, f"{user_place()} writes a parameter in place ({name})")


def refuse_kept(address: int, kept: Kept, writer: Callable[[], str]) -> None:
    """Raises Bypass for a write, by whom `writer` names, to memory that a Function has kept as an attribute of its context.

    Eager's backward reads there what was written, as autograd does not see it; a graph's has what was there before.
    """
    if address in kept:
        message = (
            f"{writer()} writes in place to what the autograd Function {kept[address][1]} keeps as an attribute of its context"
        )
        raise Bypass(Reason.PYTHON_OP, f"{message}; use ctx.save_for_backward, or write to a copy")


def refused_in_trace(run_backward: Callable[..., Any]) -> Callable[..., Any]:
    """Does what `run_backward` does, but raises Bypass within a trace.

    A trace follows no backward, and one that accumulates gradients may run once only.
    """

    def run(*args: Any, **kwargs: Any) -> Any:
        if tracing_state() is None:
            return run_backward(*args, **kwargs)
        if kwargs.get("accumulate_grad", True):
            raise Bypass(Reason.SIDE_EFFECT, f"{user_place()} runs a backward, which accumulates gradients; do so outside")
        message = f"{user_place()} asks for gradients in the forward (torch.autograd.grad), which a graph has only after it"
        raise Bypass(Reason.UNSUPPORTED_OP, message)

    return run
