"""Compares a session with what eager computed: outputs, gradients, random numbers drawn.

Each result and each gradient is judged on its own scale, and its elements each beside others of their magnitude. Most are so near
to eager's that rounding needs no proof (distance.py), or are sums of what is much larger (contributions.py). Of the others
eager's rounding is measured (rounding.py).

An example, of the session of a Linear: `compare_session(session, Expected([x, weight, bias], [y], states), names, True)` returns
how eager's gradients of weight and bias lie, if y and these two agree; it raises Bypass naming what differs.
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
from rekindle.compare.doubts import Doubt, compared, failed, set_bounds, tolerance
from rekindle.compare.gradients import Arriving
from rekindle.errors import OF_TORCH, PythonOpError, first_line, ran_out_of_memory
from rekindle.process.nothing_saved import SavedNothing, nothing_saved
from rekindle.process.random_states import RandomStates, random_states, random_states_equal, set_random_states
from rekindle.results.layouts import same_strides
from rekindle.results.saved_groups import AutogradGraph, Group, Saved

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
    differentiated: bool = True  # whether gradients are compared where they are recorded


@dataclass(frozen=True)
class Gradients:
    """Describes eager's gradients."""

    values: list[torch.Tensor | None]  # one an input, on the device "meta": how it lies
    order: list[int]  # positions of inputs, as a backward reaches them
    groups: list[Group] | None = None  # see results/saved_groups.py; None where they are not known
    inner: list[list[int]] = field(default_factory=list)  # see results/saved_groups.py
    saved: list[Saved] = field(default_factory=list)  # of the inputs, the outputs, then the constants, where they are known
    ways: tuple[list[int], list[int]] = ([], [])  # inputs that are saved as given only, and in both ways; see saved_groups.py
    likely: list[bool] = field(default_factory=list)  # per result that requires a gradient, whether a training step gives it one


def compare_session(
    session: Any,
    eager: Expected,
    names: Sequence[str],
    grad: bool,
    check: Callable[[Sequence[torch.Tensor]], None] = lambda outputs: None,
) -> Gradients | None:
    """Runs `session` on eager's inputs from eager's random state and compares it with eager; returns eager's gradients.

    Eager's outputs cannot be differentiated once more, unless they were not to be: it returns None then.

    names: those of the inputs, for messages
    grad: whether gradients are computed
    check: sees the session's outputs before they are compared

    Compared are the outputs of eager that are not None and, for random cotangents, the gradients of every input that requires
    one. Raises Bypass(verification_failed) naming the first difference. What is not near eager's, eager's own rounding may still
    explain (rounding.py), if it can run again. If it cannot, relative errors of `tolerance` are right: the result's, the inputs'
    or one of the dtypes of autocast. Leaves the random state as it was before eager.
    """
    inputs, states = eager.inputs, eager.random_states
    try:
        set_random_states(states[0])
        actual = session.forward(inputs, grad)
        check(actual)
        if not random_states_equal(random_states(), states[1]):
            raise failed("the graph draws other random numbers than eager")
        expected = [ours.detach() if theirs is None else theirs for ours, theirs in zip(actual, eager.outputs, strict=True)]
        if not eager.differentiated:  # no backward will come, for which the session holds what it has computed
            actual = [ours.detach().requires_grad_(ours.requires_grad) for ours in actual]
            _native.release_idle_arenas()
        least = tolerance({*eager.autocast_dtypes, *(x.dtype for x in inputs)})
        doubts = _compare_outputs(actual, expected, grad, least, eager.laid_out)
        differentiate = differentiation(expected, inputs, states[1]) if grad and eager.differentiated else None
        gradients = Gradients([None] * len(inputs), []) if eager.differentiated else None
        if differentiate is not None:
            arriving = Arriving(differentiate(actual), names, len(expected))
            gradients, found = _compare_gradients(arriving, eager, expected, differentiate, least)
            doubts += found
        if doubts:
            of_gradients = any(doubt.position >= len(expected) for doubt in doubts)
            _settle(doubts, eager.again, differentiate if of_gradients else None, states[0])
        return gradients
    finally:
        set_random_states(states[0])


def _compare_gradients(
    arriving: Arriving, eager: Expected, expected: Sequence[torch.Tensor], differentiate: Differentiate, least: float
) -> tuple[Gradients, list[Doubt]]:
    """Compares a session's gradients with those of eager's outputs `expected`; returns eager's, and doubts about ours."""
    _native.release_idle_arenas()  # ours are there: eager's backward takes the place of that of the session
    ends = [theirs for theirs in expected if theirs.requires_grad]
    order = _native.gradient_order(ends, eager.inputs)
    likely = _likely_cotangents(ends, eager.inputs, order)
    graph, contributions = AutogradGraph(ends, eager.inputs), Contributions(eager.inputs)
    inner, saved = graph.inner(), graph.saved([] if eager.held is None else [*eager.held, *expected, *eager.constants])
    ways = (list(range(len(eager.inputs))), []) if eager.held is None else graph.ways_of_saving(eager.held)
    # A Function may run a backward in its own, which sends back a part of a gradient.
    streamed = [] if graph.has_functions else eager.inputs
    with contributions.noted(ends), arriving.watched(streamed):
        values = _of_eager(differentiate, expected)
    lying, found = arriving.finish(values, least)
    doubts = [x for x in found if not contributions.explain(x.position - len(expected), x.ours, x.theirs)]
    return Gradients(lying, order, graph.groups(), inner, saved, ways, likely), doubts


def _likely_cotangents(ends: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor], order: list[int]) -> list[bool]:
    """Guesses to which results a training step gives a gradient: to losses only, if these lead wherever the results do.

    A scalar that does not is likely a penalty, and comes beside the others. The first backward has its gradients in the right
    order only where the guess has led to them.

    order: of the gradients of all results
    """
    losses = [end for end in ends if end.dim() == 0]
    if not losses or len(_native.gradient_order(losses, inputs)) < len(order):
        return [True] * len(ends)
    return [end.dim() == 0 for end in ends]


def _of_eager(differentiate: Differentiate, expected: Sequence[torch.Tensor]) -> list[torch.Tensor | None]:
    """Differentiates eager's results; raises Bypass(verification_failed) that says so where its backward raises."""
    try:
        return differentiate(expected)
    except OF_TORCH as error:
        if isinstance(error, PythonOpError) or ran_out_of_memory(error):
            raise
        raise failed(f"eager's own backward raises {type(error).__name__}: {first_line(error)}") from error


def _compare_outputs(
    actual: Sequence[torch.Tensor], expected: Sequence[torch.Tensor], grad: bool, least: float, laid_out: int
) -> list[Doubt]:
    doubts: list[Doubt] = []
    for i, (ours, theirs) in enumerate(zip(actual, expected, strict=True)):
        if grad and ours.requires_grad != theirs.requires_grad:
            raise failed(f"output {i} requires a gradient: {ours.requires_grad}, in eager: {theirs.requires_grad}")
        doubts += compared(f"output {i}", i, ours.detach(), theirs.detach())
        if i < laid_out and not same_strides(ours, theirs):
            raise failed(f"output {i} has the strides {ours.stride()}, in eager {theirs.stride()}")
    set_bounds(doubts, max(map(norm, expected), default=0.0) if doubts else 0.0, least)
    return doubts


def _settle(doubts: list[Doubt], again: Again | None, differentiate: Differentiate | None, states: RandomStates) -> None:
    """Raises Bypass for the first doubt that eager's rounding does not explain."""
    if again is None:
        doubts = [doubt for doubt in doubts if doubt.distance.norm > doubt.bound]
    if again is not None and doubts:
        doubts = unexplained(doubts, _again(doubts, again, differentiate, states))
    if doubts:
        raise doubts[0].failed()


def _again(doubts: list[Doubt], again: Again, differentiate: Differentiate | None, states: RandomStates) -> Again:
    """Returns what computes eager's doubtful results again, by position.

    differentiate: None where no gradient is doubted
    """
    positions = {doubt.position for doubt in doubts}

    def run() -> list[torch.Tensor | None]:
        set_random_states(states)
        outputs = again()
        only = {position - len(outputs) for position in positions}
        return [*outputs, *(differentiate(outputs, only) if differentiate is not None else [])]

    def run_lightly() -> list[torch.Tensor | None]:
        set_random_states(states)
        try:
            with nothing_saved():
                return again()
        except SavedNothing:
            return run()

    return run if differentiate is not None else run_lightly


def unexplained(doubts: list[Doubt], run: Again) -> list[Doubt]:
    """Returns the doubts that eager's rounding does not explain; `run` computes eager's results again, by position."""
    from rekindle.compare.rounding import judgements, noisy

    near_enough = [doubt for doubt in doubts if doubt.distance.norm <= doubt.bound]
    for sample in noisy(run) if near_enough else ():
        for doubt in near_enough:
            _add_sample(doubt, sample[doubt.position])
        near_enough = [doubt for doubt in near_enough if not _is_sampled(doubt)]
        if not near_enough:
            break
    doubts = [doubt for doubt in doubts if not _is_sampled(doubt)]
    for judged in judgements(run) if doubts else ():
        doubts = [doubt for doubt in doubts if (one := judged[doubt.position]) is None or not one.admits(doubt.ours)]
        if not doubts:
            break
    return doubts


def _add_sample(doubt: Doubt, sample: torch.Tensor | None) -> None:
    if sample is not None and sample.shape == doubt.theirs.shape and sample.dtype == doubt.theirs.dtype:
        doubt.samples.append(Distance.between(sample, doubt.theirs))


def _is_sampled(doubt: Doubt) -> bool:
    is_small = doubt.distance.norm <= doubt.bound
    return is_small and doubt.distance.is_within(doubt.samples, _WIDER, near(doubt.distance.dtype))
