"""Compares a session with what eager computed: outputs, gradients, random numbers drawn."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.graph import _engine_run_backward

from rekindle import _native
from rekindle.layouts import same_strides
from rekindle.reasons import Bypass, Reason

# Relative error in the 2-norm that different orders of summation can cause; a wrong graph is far outside.
_TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-3, torch.bfloat16: 5e-2, torch.float16: 2e-2}
_SLICE = 1 << 16
_FAINT = 1e-6  # norms from here on are far from where squares in single precision underflow


Again = Callable[[], Sequence[torch.Tensor | None]]  # runs eager once more on the same inputs; the outputs


@dataclass
class Gradients:
    """Eager's, one an input. order: positions of inputs, as a backward reaches them."""

    values: list[torch.Tensor | None]
    order: list[int]


@dataclass
class _Doubt:
    """A result that is farther from eager's than rounding usually makes it. position: among outputs, then gradients."""

    position: int
    ours: torch.Tensor
    message: str


def compare_session(
    session: Any,
    inputs: list[torch.Tensor],
    expected: Sequence[torch.Tensor | None],
    states: tuple[torch.Tensor, torch.Tensor],
    names: Sequence[str],
    grad: bool,
    autocast_dtypes: Iterable[torch.dtype] = (),
    laid_out: int = 0,
    again: Again | None = None,
    check: Callable[[Sequence[torch.Tensor]], None] = lambda outputs: None,
    keep: bool = False,
) -> Gradients:
    """Run `session` on `inputs` from random state `states[0]` and compare with eager's `expected` outputs that are not None.

    Gradients with respect to every input that requires one are compared for random cotangents. Raises
    Bypass(verification_failed) naming the first difference. The tolerance is that of a result's own dtype or, where it is
    larger, of the inputs' dtypes and of `autocast_dtypes`, in which a part of it may have been computed. The first `laid_out`
    outputs must have eager's strides as well. What is beyond the tolerance, eager's own rounding may still explain
    (rounding.py), if it can run `again`. `check` sees the session's outputs first. If `keep`, `expected` can be compared with
    once more. Leaves the random state at `states[0]`. Returns eager's gradients.
    """
    try:
        torch.set_rng_state(states[0])
        actual = session.forward(inputs, grad)
        check(actual)
        if not torch.equal(torch.get_rng_state(), states[1]):
            raise _failed("the graph draws other random numbers than eager")
        expected = [ours.detach() if theirs is None else theirs for ours, theirs in zip(actual, expected, strict=True)]
        dtypes = {*autocast_dtypes, *(tensor.dtype for tensor in inputs)}
        least = max(_TOLERANCE.get(dtype, 0.0) for dtype in dtypes) if dtypes else 0.0
        doubts = _compare_outputs(actual, expected, grad, least, laid_out)
        differentiate = _differentiation(expected, inputs, states[1], keep) if grad else None
        gradients = Gradients([None] * len(inputs), [])
        if differentiate is not None:
            order = _native.gradient_order([theirs for theirs in expected if theirs.requires_grad], inputs)
            gradients = Gradients(differentiate(expected), order)
            doubts += _compare_gradients(differentiate(actual), gradients.values, names, least, len(expected))
        if doubts:
            _settle(doubts, again, differentiate, states[0])
        return gradients
    finally:
        torch.set_rng_state(states[0])


def _compare_outputs(
    actual: Sequence[torch.Tensor], expected: Sequence[torch.Tensor], grad: bool, least: float, laid_out: int
) -> list[_Doubt]:
    for i, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
        if grad and ours.requires_grad != theirs.requires_grad:
            raise _failed(f"output {i} requires a gradient: {ours.requires_grad}, in eager: {theirs.requires_grad}")
    doubts: list[_Doubt] = []
    sizes = [_norm(tensor) for tensor in expected]
    scale = max(sizes, default=0.0)
    for i, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
        doubts += _compare(f"output {i}", i, ours.detach(), theirs.detach(), sizes[i], 1e-3 * scale, least)
        if i < laid_out and not same_strides(ours, theirs):
            raise _failed(f"output {i} has the strides {ours.stride()}, in eager {theirs.stride()}")
    return doubts


def _differentiation(
    expected: Sequence[torch.Tensor], inputs: list[torch.Tensor], random_state: torch.Tensor, keep: bool
) -> Callable[[Sequence[torch.Tensor]], list[torch.Tensor | None]] | None:
    """What differentiates results like `expected` by the inputs, one gradient an input; None if no gradient is wanted."""
    leaves = tuple(tensor for tensor in inputs if tensor.requires_grad)
    outputs = [i for i, tensor in enumerate(expected) if tensor.requires_grad]
    if not leaves or not outputs:
        return None
    generator = torch.Generator().manual_seed(0)
    cotangents = tuple(_cotangent(expected[i], generator) for i in outputs)

    def differentiate(results: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
        torch.set_rng_state(random_state)  # the backward of an autograd Function may draw
        # torch.autograd.grad without its checks of the cotangents, for which it imports seconds of Python code.
        ends = tuple(results[i] for i in outputs)
        found = iter(_engine_run_backward(ends, cotangents, keep, False, leaves, True, accumulate_grad=False))
        return [next(found) if tensor.requires_grad else None for tensor in inputs]

    return differentiate


def _compare_gradients(
    ours: list[torch.Tensor | None], theirs: list[torch.Tensor | None], names: Sequence[str], tolerance: float, outputs: int
) -> list[_Doubt]:
    """outputs: how many there are; gradients are counted on from there."""
    doubts: list[_Doubt] = []
    sizes = [0.0 if gradient is None else _norm(gradient) for gradient in theirs]
    scale = max(sizes, default=0.0)
    for i, (name, mine, other, size) in enumerate(zip(names, ours, theirs, sizes, strict=True)):
        if (mine is None) != (other is None):
            here, in_eager = ("None" if gradient is None else "there" for gradient in (mine, other))
            raise _failed(f"the gradient of {name} is {here}, in eager {in_eager}")
        if mine is not None and other is not None:
            doubts += _compare(f"the gradient of {name}", outputs + i, mine, other, size, 1e-3 * scale, tolerance)
    return doubts


def _settle(doubts: list[_Doubt], again: Again | None, differentiate: Any, random_state: torch.Tensor) -> None:
    """Raises Bypass for the first doubt that eager's rounding does not explain."""
    from rekindle.rounding import judge

    def run() -> list[torch.Tensor | None]:
        assert again is not None
        torch.set_rng_state(random_state)
        outputs = again()
        return [*outputs, *(differentiate(outputs) if differentiate is not None else [])]

    judged = judge(run) if again is not None else None
    for doubt in doubts:
        one = None if judged is None else judged[doubt.position]
        if one is None or not one.admits(doubt.ours):
            raise _failed(doubt.message)


def _cotangent(output: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    """Random numbers that lie as the output does, as what an elementwise loss sends back: gradients lie accordingly."""
    numbers = torch.randn(output.shape, generator=generator, dtype=torch.float64)
    return torch.empty_like(output, requires_grad=False).copy_(numbers)


def _norm(tensor: torch.Tensor, minus: torch.Tensor | None = None, faint: bool = True) -> float:
    """The 2-norm of `tensor` or of its difference to `minus`, NaN as zero.

    Computed in the tensor's own precision, a slice at a time, or in double where that is too little: for NaN and infinities
    and, if `faint`, where the norm is small.
    """
    if tensor.is_complex():
        tensor, minus = _as_real(tensor), None if minus is None else _as_real(minus)
    if not tensor.is_floating_point() or tensor.numel() == 0:
        return 0.0
    flat, other = tensor.detach().reshape(-1), None if minus is None else minus.detach().reshape(-1)
    norm = math.sqrt(_sum_of_squares(flat, other, torch.promote_types(flat.dtype, torch.float32), _as_it_is))
    if math.isfinite(norm) and not (faint and norm < _FAINT):
        return norm
    return math.sqrt(_sum_of_squares(flat, other, torch.float64, _without_nan))


def _sum_of_squares(
    flat: torch.Tensor, minus: torch.Tensor | None, dtype: torch.dtype, clean: Callable[[torch.Tensor], torch.Tensor]
) -> float:
    """Of a vector's elements, each slice in `dtype`, the slices in double: tensors can be large."""
    total = 0.0
    for start in range(0, flat.numel(), _SLICE):
        part = clean(flat[start : start + _SLICE].to(dtype))
        if minus is not None:
            part = part - clean(minus[start : start + _SLICE].to(dtype))
        total += float(torch.dot(part, part))
    return total


def _as_it_is(part: torch.Tensor) -> torch.Tensor:
    return part


def _without_nan(part: torch.Tensor) -> torch.Tensor:
    return part.nan_to_num(0.0, 0.0, 0.0)


def _compare(
    what: str, position: int, ours: torch.Tensor, theirs: torch.Tensor, size: float, floor: float, tolerance: float
) -> list[_Doubt]:
    """size: the norm of `theirs`. Raises Bypass for a difference that is no matter of rounding, and returns one that may be."""
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        raise _failed(f"{what} is {ours.dtype}{tuple(ours.shape)}, in eager {theirs.dtype}{tuple(theirs.shape)}")
    if theirs.is_complex():
        for doubt in _compare(what, position, _as_real(ours), _as_real(theirs), size, floor, tolerance):
            raise _failed(doubt.message)  # rounding is judged of real numbers only
        return []
    if not theirs.is_floating_point():
        if not torch.equal(ours, theirs):
            raise _failed(f"{what} differs")
        return []
    if not (math.isfinite(float(ours.sum())) and math.isfinite(float(theirs.sum()))) and not torch.equal(
        ours.isfinite(), theirs.isfinite()
    ):
        raise _failed(f"{what} is finite elsewhere than in eager")
    error = _norm(ours, theirs, faint=size < _FAINT)
    bound = max(_TOLERANCE.get(theirs.dtype, 1e-3), tolerance) * (size + floor)
    message = f"{what} is off by {error:.3g} in the 2-norm, more than {bound:.3g}"
    return [_Doubt(position, ours, message)] if error > bound else []


def _as_real(tensor: torch.Tensor) -> torch.Tensor:
    return torch.view_as_real(tensor.detach().resolve_conj())


def _failed(message: str) -> Bypass:
    return Bypass(Reason.VERIFICATION_FAILED, message)
