"""Makes the account of a call's memory, from the plan that the call runs and the tensors that are alive.

An example: a module has a graph for `model(x)`. `account` makes the graph's plan for the sizes of `x`, if it has none yet, and
reads it; no instruction runs. Of a module that is refused, and whose submodules run from graphs, the call is run once, without a
backward and on copies of its tensors, as nothing else tells what the submodules are called with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Protocol

import torch
from torch import nn

from rekindle.account.live import bytes_of, state_of
from rekindle.account.record import MemoryAccount
from rekindle.account.subgraphs import subgraphs_of, summed_up
from rekindle.account.values import Phase, Uncounted, Value, budget_of, largest_scratch, uncounted_of, values_of
from rekindle.compare.compared_runs import state_kept
from rekindle.graphs.ready_graph import ReadyGraph
from rekindle.modules.module_tables import named_modules, named_parameters
from rekindle.modules.partial_capture import Call
from rekindle.reasons import Bypass
from rekindle.results.contract import flatten_arguments, rebuild_arguments
from rekindle.results.layouts import copied


class Served(Protocol):
    """Serves the calls of one module: what an account needs of a Runtime."""

    def serving_graph(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ReadyGraph | Bypass:
        """Returns the graph that would serve a call, or why the call would run in eager."""

    def run_refused(self, why: Bypass, args: tuple[Any, ...], kwargs: dict[str, Any], serving: Callable[..., Call]) -> None:
        """Runs a call in eager that is refused for `why`, its parts by what `serving(name, module, runtime)` returns."""

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Returns the result of a call."""


def account(
    module: nn.Module, served: Served, args: tuple[Any, ...], kwargs: dict[str, Any], optimizer: Any = None, name: str = ""
) -> MemoryAccount:
    """Returns the account of the call `module(*args, **kwargs)`.

    served: serves the calls of the module
    optimizer: the one that trains the module, if it counts
    name: of the module, if it is a part

    Raises what eager raises for a call that has no graph.
    """
    alive = _alive(module, flatten_arguments(args, kwargs), optimizer, name)
    found = served.serving_graph(args, kwargs)
    if isinstance(found, ReadyGraph):
        try:
            plan, written = found.plan_memory(flatten_arguments(args, kwargs))
            return _of_plan(plan, bytes_of(written), found.record, alive)
        except Bypass as bypass:
            found = bypass.forgotten()
    parts = _of_parts(module, served, found, args, kwargs)
    own = [part if not name else replace(part, model=f"{name}.{part.model}") for part in parts]
    return _summed(replace(alive, reason=str(found)), tuple(own))


def _of_parts(
    module: nn.Module, served: Served, why: Bypass, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> list[MemoryAccount]:
    """Runs a refused call once, and returns an account of every call of a part, those of its own parts after it."""
    found: list[MemoryAccount] = []

    def serving(name: str, part: nn.Module, runtime: Served) -> Call:
        def serve(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            of_part = account(part, runtime, args, kwargs, name=name)
            found.extend((replace(of_part, parts=()), *of_part.parts))
            return runtime.call(args, kwargs)

        return serve

    tensors = [copied(tensor) for tensor in flatten_arguments(args, kwargs)]
    own_args, own_kwargs = rebuild_arguments(args, kwargs, tensors)
    with state_kept(module):
        served.run_refused(why, own_args, own_kwargs, serving)
    return found


def _summed(alive: MemoryAccount, parts: tuple[MemoryAccount, ...]) -> MemoryAccount:
    """Adds up the parts that have a graph. Arenas of a training step are there at the same time, others one after the other."""
    graphs = [part for part in parts if part.source == "graph"]
    if not graphs:
        return alive
    training = [part for part in graphs if part.trains]
    others = [part.arena or 0 for part in graphs if not part.trains]
    return replace(
        alive,
        source="parts",
        trains=bool(training),
        gradients_made=sum(part.gradients_made or 0 for part in training) if training else None,
        saved=sum(part.saved or 0 for part in training) if training else None,
        scratch=max(part.scratch or 0 for part in graphs),
        constants=sum({part.model: part.constants or 0 for part in graphs}.values()),
        written=sum(part.written or 0 for part in graphs),
        arena=sum(part.arena or 0 for part in training) + max(others, default=0),
        uncounted=tuple(what for part in graphs for what in part.uncounted),
        subgraphs=summed_up(part.subgraphs for part in training),
        parts=parts,
    )


def _alive(module: nn.Module, arguments: Iterable[torch.Tensor], optimizer: Any, name: str) -> MemoryAccount:
    """Returns an account of what is there before the call."""
    parameters = [*named_parameters(module).values()]
    buffers = [tensor for part in named_modules(module).values() for tensor in part._buffers.values() if tensor is not None]
    state = [] if optimizer is None else state_of(optimizer)
    return MemoryAccount(
        model=f"{name} ({type(module).__qualname__})" if name else type(module).__qualname__,
        source="eager",
        reason=None,
        trains=None,
        parameters=bytes_of(parameters),
        gradients=bytes_of(parameter.grad for parameter in parameters if parameter.grad is not None),
        buffers=bytes_of(buffers),
        inputs=bytes_of(arguments),
        optimizer_state=bytes_of(state) if state else None,
    )


def _of_plan(plan: Any, written: int, trains: bool, alive: MemoryAccount) -> MemoryAccount:
    values, uncounted = values_of(plan), uncounted_of(plan)

    def known(is_one: Callable[[Value | Uncounted], bool]) -> int | None:
        """Returns the bytes of some values; None if there are some, and none of them is counted."""
        counted = [value.bytes for value in values if is_one(value)]
        return None if not counted and any(map(is_one, uncounted)) else sum(counted)

    made = known(lambda value: value.use == "gradient")
    held = alive.parameters + alive.buffers + alive.inputs + (alive.optimizer_state or 0) + plan.constant_bytes

    def phase(of: Any, given: int) -> Phase:
        outside = of.outside_peak + written + given
        return Phase(held, of.live_peak, of.live_peak_at, outside, held + plan.arena_bytes + outside, of.instructions)

    trains = trains and plan.backward.instructions > 0
    own = plan.arena_bytes + (made or 0)
    steps = trains and alive.optimizer_state is not None and not any(value.use == "gradient" for value in uncounted)
    return replace(
        alive,
        source="graph",
        trains=trains,
        results=known(lambda value: value.use == "result"),
        gradients_made=made if trains else None,
        saved=known(lambda value: value.saved) if trains else None,
        scratch=largest_scratch(values),
        constants=plan.constant_bytes,
        written=written,
        arena=plan.arena_bytes,
        activations=plan.activation_bytes,
        budget=budget_of(plan),
        live_peak=max(plan.forward.live_peak, plan.backward.live_peak),
        forward=phase(plan.forward, 0),
        backward=phase(plan.backward, plan.cotangent_bytes) if trains else None,
        optimizer=Phase(held + (made or 0), 0, 0, 0, held + own, 0) if steps else None,
        values=values,
        uncounted=uncounted,
        subgraphs=subgraphs_of(plan) if trains else (),
    )
