"""Differentiates results like eager's, with cotangents that let no result's share of the gradients hide another's.

An example: of the results [loss float32[], logits float32[8, 1000]] the first is of size 1 and the second of size 100; the
cotangent of the first is 64 times as large as random numbers, that of the second 1 time.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Sequence

import torch

from rekindle.process.random_states import RandomStates, set_random_states
from rekindle.process.torch_internals import run_backward

_LARGEST_SCALE = 100  # binary exponents
_PERIOD, _STEP = 65_537, 7_919  # of the numbers in cotangents; primes, so that rows of a matrix get other ones

Differentiate = Callable[..., list[torch.Tensor | None]]


def norm(tensor: torch.Tensor) -> float:
    """Returns the 2-norm, 0 for what has no such."""
    return float(torch.linalg.vector_norm(tensor.detach())) if tensor.is_floating_point() else 0.0


def differentiation(expected: Sequence[torch.Tensor], inputs: list[torch.Tensor], states: RandomStates) -> Differentiate | None:
    """Returns what differentiates results like `expected` by the inputs, one gradient an input; None if no gradient is wanted."""
    positions = {i for i, tensor in enumerate(inputs) if tensor.requires_grad}
    outputs = [i for i, tensor in enumerate(expected) if tensor.requires_grad]
    if not positions or not outputs:
        return None
    generator = torch.Generator("cpu").manual_seed(0)
    scales = _scales([expected[i] for i in outputs])
    cotangents = tuple(_cotangent(expected[i], generator, scale) for i, scale in zip(outputs, scales, strict=True))

    def differentiate(results: Sequence[torch.Tensor], only: Container[int] = positions) -> list[torch.Tensor | None]:
        """Computes the gradients of the inputs whose positions are in `only`."""
        set_random_states(states)  # the backward of an autograd Function may draw
        # torch.autograd.grad without its checks of the cotangents, for which it imports seconds of Python code.
        ends, leaves = tuple(results[i] for i in outputs), tuple(inputs[i] for i in sorted(positions) if i in only)
        found = iter(run_backward(ends, cotangents, False, False, leaves, True, accumulate_grad=False) if leaves else ())
        return [_in_memory(next(found)) if i in positions and i in only else None for i in range(len(inputs))]

    return differentiate


def _in_memory(gradient: torch.Tensor | None) -> torch.Tensor | None:
    """Gives memory to zeros such as those of the backward of `sgn`, which have none."""
    return gradient.clone() if gradient is not None and gradient._is_zerotensor() else gradient


def _scales(outputs: Sequence[torch.Tensor]) -> list[float]:
    """Returns powers of two to multiply cotangents by, so that no output's share of the gradients hides another's."""
    sizes = [norm(x.real if x.is_complex() else x) / math.sqrt(max(x.numel(), 1)) for x in outputs]
    exponents = [math.frexp(size)[1] if 0 < size < math.inf else 0 for size in sizes]
    largest = max(exponents)
    halves = {torch.float16: 8}
    return [
        2.0 ** min(largest - exponent, halves.get(x.dtype, _LARGEST_SCALE))
        for x, exponent in zip(outputs, exponents, strict=True)
    ]


def _cotangent(output: torch.Tensor, generator: torch.Generator, scale: float) -> torch.Tensor:
    """Makes random numbers that lie as the output does, as what an elementwise loss sends back: gradients lie accordingly.

    Those of a large one come again and again, from other places on.
    """
    numbers = torch.randn(min(output.numel(), 2 * _PERIOD), generator=generator, dtype=torch.float64, device="cpu") * scale
    numbers = numbers.to(output.dtype).to(output.device)
    cotangent = torch.empty(output.shape, dtype=output.dtype, device=output.device)
    for i, part in enumerate(cotangent.view(-1).split(_PERIOD)):
        start = min(i * _STEP % _PERIOD, numbers.numel() - part.numel())
        part.copy_(numbers[start : start + part.numel()])
    laid_out = torch.empty_like(output, requires_grad=False)
    return cotangent if laid_out.stride() == cotangent.stride() else laid_out.copy_(cotangent)
