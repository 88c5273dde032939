"""Compares a session with what eager computed: outputs, gradients, random numbers drawn.

Each result and each gradient is judged on its own scale, and its elements each beside others of their magnitude. Most are so near
to eager's that rounding needs no proof (distance.py), or are sums of what is much larger (contributions.py). Of the others
eager's rounding is measured (rounding.py).

An example, with theirs float32 [1., 2.]: `compared("output 0", 0, ours, theirs)` is [] for ours 1e-7 off, a Doubt for ours 1 off,
which eager's rounding does not explain; it raises Bypass for another dtype.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from rekindle import _native
from rekindle.compare.contributions import Contributions
from rekindle.compare.differentiation import Differentiate, differentiation, norm
from rekindle.compare.distance import Distance, near
from rekindle.process.random_states import RandomStates, random_states, random_states_equal, set_random_states
from rekindle.reasons import Bypass, Reason
from rekindle.results.layouts import same_strides
from rekindle.results.saved_groups import AutogradGraph, Group, Saved

# Relative error in the 2-norm up to which eager with other rounding errors is proof enough of a difference: what is discrete may
# have changed in it, too.
_TOLERANCE = {torch.float64: 1e-8, torch.float32: 1e-3, torch.bfloat16: 5e-2, torch.float16: 2e-2}
_FLOOR = 1e-3  # of the largest gradient, or output, that such an error is relative to at least
_WIDER = 4.0  # times as far as eager with other rounding errors is from eager

Again = Callable[[], Sequence[torch.Tensor | None]]  # runs eager once more on the same inputs; the outputs


@dataclass(frozen=True)
class Expected:
    """Holds what eager made of a call, for a session to be compared with."""

    inputs: list[torch.Tensor]  # of the graph: gradients are compared with respect to those that require one
    outputs: Sequence[torch.Tensor | None]  # of the graph; None for what eager does not have
    random_states: tuple[RandomStates, RandomStates]  # before and after
    autocast_dtypes: Iterable[torch.dtype] = ()  # those in which autocast computed some of it
    laid_out: int = 0  # how many of the first outputs have to have eager's strides, too
    again: Again | None = None  # runs eager once more
    held: Sequence[torch.Tensor] | None = None  # the inputs as the module had them; None where it had others
    constants: Sequence[torch.Tensor] = ()  # plain tensors that the module had


@dataclass(frozen=True)
class Gradients:
    """Describes eager's gradients."""

    values: list[torch.Tensor | None]  # one an input, on the device "meta": how it lies
    order: list[int]  # positions of inputs, as a backward reaches them
    groups: list[Group] | None = None  # see results/saved_groups.py; None where they are not known
    inner: list[list[int]] = field(default_factory=list)  # see results/saved_groups.py
    saved: list[Saved] = field(default_factory=list)  # of the inputs, the outputs, then the constants, where they are known


@dataclass
class Doubt:
    """Holds a result that is farther from eager's than rounding usually makes it."""

    position: int  # among outputs, then gradients
    what: str  # names it, for a message
    ours: torch.Tensor
    theirs: torch.Tensor
    distance: Distance
    bound: float = 0.0  # a distance, in the 2-norm, that is no proof of a wrong graph by itself
    samples: list[Distance] = field(default_factory=list)  # distances of eager with other rounding errors from eager

    def failed(self) -> Bypass:
        """Returns the error that says so."""
        allowed = near(self.distance.dtype)[0] * self.distance.scale
        return _failed(
            f"{self.what} is off by {self.distance.norm:.3g} in the 2-norm, more than {allowed:.3g}, or in small elements"
        )


def compare_session(
    session: Any,
    eager: Expected,
    names: Sequence[str],
    grad: bool,
    check: Callable[[Sequence[torch.Tensor]], None] = lambda outputs: None,
    keep: bool = False,
) -> Gradients:
    """Runs `session` on eager's inputs from eager's random state and compares it with eager; returns eager's gradients.

    names: those of the inputs, for messages
    grad: whether gradients are computed
    check: sees the session's outputs before they are compared
    keep: whether eager's outputs can be differentiated once more

    Compared are the outputs of eager that are not None and, for random cotangents, the gradients of every input that requires
    one. Raises Bypass(verification_failed) naming the first difference. What is not near eager's, eager's own rounding may still
    explain (rounding.py), if it can run again. If it cannot, or other processes take part, relative errors of _TOLERANCE are
    right: the result's, the inputs' or one of the dtypes of autocast. Leaves the random state as it was before eager.
    """
    inputs, states = eager.inputs, eager.random_states
    try:
        set_random_states(states[0])
        actual = session.forward(inputs, grad)
        check(actual)
        if not random_states_equal(random_states(), states[1]):
            raise _failed("the graph draws other random numbers than eager")
        expected = [ours.detach() if theirs is None else theirs for ours, theirs in zip(actual, eager.outputs, strict=True)]
        least = max((_TOLERANCE.get(dtype, 0.0) for dtype in {*eager.autocast_dtypes, *(x.dtype for x in inputs)}), default=0.0)
        doubts = _compare_outputs(actual, expected, grad, least, eager.laid_out)
        differentiate = differentiation(expected, inputs, states[1], keep) if grad else None
        gradients = Gradients([None] * len(inputs), [])
        if differentiate is not None:
            seen = [] if eager.held is None else [*eager.held, *expected, *eager.constants]
            gradients, values, contributions = _gradients_of_eager(expected, inputs, differentiate, keep, seen)
            found = _compare_gradients(differentiate(actual), values, names, least, len(expected))
            del values
            doubts += [x for x in found if not contributions.explain(x.position - len(expected), x.ours, x.theirs)]
        if doubts:
            _settle(doubts, eager.again, differentiate, states[0])
        return gradients
    finally:
        set_random_states(states[0])


def _gradients_of_eager(
    expected: Sequence[torch.Tensor],
    inputs: list[torch.Tensor],
    differentiate: Differentiate,
    keep: bool,
    seen: list[torch.Tensor],
) -> tuple[Gradients, list[torch.Tensor | None], Contributions]:
    """Computes eager's gradients, and what they are sums of; `seen`: the tensors of which to tell if they were saved."""
    ends = [theirs for theirs in expected if theirs.requires_grad]
    order = _native.gradient_order(ends, inputs)
    graph, contributions = AutogradGraph(ends, inputs), Contributions(inputs)
    inner, saved = graph.inner(), graph.saved(seen)
    with contributions.noted(ends):
        values = differentiate(expected)
    lying = [None if value is None else _without_numbers(value) for value in values]
    return Gradients(lying, order, None if keep else graph.groups(), inner, saved), values, contributions


def _without_numbers(tensor: torch.Tensor) -> torch.Tensor:
    """Returns a tensor that lies as this one does and takes no memory."""
    if tensor.layout is not torch.strided:
        return tensor
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


def _compare_outputs(
    actual: Sequence[torch.Tensor], expected: Sequence[torch.Tensor], grad: bool, least: float, laid_out: int
) -> list[Doubt]:
    doubts: list[Doubt] = []
    for i, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
        if grad and ours.requires_grad != theirs.requires_grad:
            raise _failed(f"output {i} requires a gradient: {ours.requires_grad}, in eager: {theirs.requires_grad}")
        doubts += compared(f"output {i}", i, ours.detach(), theirs.detach())
        if i < laid_out and not same_strides(ours, theirs):
            raise _failed(f"output {i} has the strides {ours.stride()}, in eager {theirs.stride()}")
    set_bounds(doubts, expected, least)
    return doubts


def set_bounds(doubts: list[Doubt], theirs: Sequence[torch.Tensor | None], least: float) -> None:
    """Sets the bounds of doubts about `theirs`: all outputs, or all gradients."""
    if doubts:
        scale = max(doubt.distance.scale for doubt in doubts)
        scale = max([scale, *(norm(x) for x in theirs if x is not None)])
        for doubt in doubts:
            tolerance = max(_TOLERANCE.get(doubt.distance.dtype, 0.0), least)
            doubt.bound = tolerance * (doubt.distance.scale + _FLOOR * scale)


def _compare_gradients(
    ours: list[torch.Tensor | None], theirs: list[torch.Tensor | None], names: Sequence[str], least: float, outputs: int
) -> list[Doubt]:
    """Compares gradients. Their positions are counted on from `outputs`, the number of outputs."""
    doubts: list[Doubt] = []
    for i, (name, mine, other) in enumerate(zip(names, ours, theirs, strict=True)):
        if (mine is None) != (other is None):
            here, in_eager = ("None" if gradient is None else "there" for gradient in (mine, other))
            raise _failed(f"the gradient of {name} is {here}, in eager {in_eager}")
        if mine is not None and other is not None:
            doubts += compared(f"the gradient of {name}", outputs + i, mine, other)
    set_bounds(doubts, theirs, least)
    return doubts


def compared(what: str, position: int, ours: torch.Tensor, theirs: torch.Tensor) -> list[Doubt]:
    """Returns a doubt about a difference that may be a matter of rounding, and raises Bypass for one that is not."""
    if ours.dtype != theirs.dtype or ours.shape != theirs.shape:
        raise _failed(f"{what} is {ours.dtype}{tuple(ours.shape)}, in eager {theirs.dtype}{tuple(theirs.shape)}")
    if not theirs.is_floating_point() and not theirs.is_complex():
        if not torch.equal(ours, theirs):
            raise _failed(f"{what} differs")
        return []
    distance = Distance.between(ours, theirs)
    if not distance.is_like:
        raise _failed(f"{what} is finite elsewhere than in eager, or infinite with another sign")
    return [] if distance.is_near else [Doubt(position, what, ours, theirs, distance)]


def _settle(doubts: list[Doubt], again: Again | None, differentiate: Differentiate | None, states: RandomStates) -> None:
    """Raises Bypass for the first doubt that eager's rounding does not explain."""
    if again is None or _has_company():
        doubts = [doubt for doubt in doubts if doubt.distance.norm > doubt.bound]
    if again is not None and doubts:
        doubts = unexplained(doubts, _again(doubts, again, differentiate, states))
    if doubts:
        raise doubts[0].failed()


def _has_company() -> bool:
    """Tells whether other processes may wait for this one in what eager computes: it must not run more often than theirs."""
    distributed = torch.distributed
    return distributed.is_available() and distributed.is_initialized() and distributed.get_world_size() > 1


def _again(doubts: list[Doubt], again: Again, differentiate: Differentiate | None, states: RandomStates) -> Again:
    """Returns what computes eager's doubtful results again, by position."""
    positions = {doubt.position for doubt in doubts}

    def run() -> list[torch.Tensor | None]:
        set_random_states(states)
        outputs = again()
        only = {position - len(outputs) for position in positions}
        return [*outputs, *(differentiate(outputs, only) if differentiate is not None and max(only) >= 0 else [])]

    return run


def unexplained(doubts: list[Doubt], run: Again) -> list[Doubt]:
    """Returns the doubts that eager's rounding does not explain; `run` computes eager's results again, by position."""
    from rekindle.compare.rounding import judge, noisy

    near_enough = [doubt for doubt in doubts if doubt.distance.norm <= doubt.bound]
    for sample in noisy(run) if near_enough else ():
        for doubt in near_enough:
            _add_sample(doubt, sample[doubt.position])
        near_enough = [doubt for doubt in near_enough if not _is_sampled(doubt)]
        if not near_enough:
            break
    doubts = [doubt for doubt in doubts if not _is_sampled(doubt)]
    judged = judge(run) if doubts else []
    return [doubt for doubt in doubts if (one := judged[doubt.position]) is None or not one.admits(doubt.ours)]


def _add_sample(doubt: Doubt, sample: torch.Tensor | None) -> None:
    if sample is not None and sample.shape == doubt.theirs.shape and sample.dtype == doubt.theirs.dtype:
        doubt.samples.append(Distance.between(sample, doubt.theirs))


def _is_sampled(doubt: Doubt) -> bool:
    is_small = doubt.distance.norm <= doubt.bound
    return is_small and doubt.distance.is_within(doubt.samples, _WIDER, near(doubt.distance.dtype))


def _failed(message: str) -> Bypass:
    return Bypass(Reason.VERIFICATION_FAILED, message)
