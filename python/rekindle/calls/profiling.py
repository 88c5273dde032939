"""Runs training steps while torch.profiler records, and makes a profile of what it saw."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import nn
from torch.profiler import ProfilerActivity, record_function
from torch.profiler import profile as torch_profile

from rekindle.account.record import MemoryAccount
from rekindle.calls.accounting import Served, account
from rekindle.compare.compared_runs import state_kept
from rekindle.modules.module_tables import named_parameters
from rekindle.results.contract import flatten_arguments
from rekindle.timing.node_time import NodeTime
from rekindle.timing.node_times import PHASE_PREFIX, node_times
from rekindle.timing.record import Profile

_BEFORE = 2  # steps before those that count: a lookup or an export, a plan for this backward


@dataclass
class _Steps:
    """Runs a call and its backward, again and again; gradients go nowhere."""

    call: Callable[[], Any]
    loss: Callable[[Any], torch.Tensor] | None
    leaves: list[torch.Tensor]
    device: torch.device
    phases: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))  # seconds, by phase

    def run(self) -> None:
        """Runs one step."""
        result = self._timed("forward", self.call)
        wanted = _differentiated(result, self.loss)
        if wanted and self.leaves:
            ones = [torch.ones_like(tensor) for tensor in wanted]
            self._timed("backward", lambda: torch.autograd.grad(wanted, self.leaves, ones, allow_unused=True))

    def _timed(self, phase: str, run: Callable[[], Any]) -> Any:
        start = time.perf_counter()
        with record_function(PHASE_PREFIX + phase):
            found = run()
            if self.device.type != "cpu":
                torch.accelerator.synchronize(self.device)
        self.phases[phase].append(time.perf_counter() - start)
        return found

    def median(self, phase: str) -> float | None:
        """Returns a phase's median time; None where no step had it."""
        return statistics.median(self.phases[phase]) if self.phases[phase] else None


def _differentiated(result: Any, loss: Callable[[Any], torch.Tensor] | None) -> list[torch.Tensor]:
    """Returns what a backward begins at: the loss; without one the first scalar that has a gradient; else all that have one."""
    if loss is None:
        found = [tensor for tensor in flatten_arguments((result,), {}) if tensor.requires_grad]
        return [tensor for tensor in found if tensor.numel() == 1][:1] or found
    value = loss(result)
    if not isinstance(value, torch.Tensor) or not value.requires_grad:
        what = "a tensor without a gradient" if isinstance(value, torch.Tensor) else f"a {type(value).__name__}"
        raise TypeError(f"loss(result) has to be a tensor that requires a gradient; it is {what}")
    return [value]


def profile_steps(
    module: nn.Module,
    served: Served,
    call: Callable[[], Any],
    arguments: tuple[tuple[Any, ...], dict[str, Any]],
    loss: Callable[[Any], torch.Tensor] | None,
    steps: int,
) -> Profile:
    """Returns the profile of `steps` training steps. Buffers and random states are then what they were before.

    served: serves the calls of the module
    call: runs the module on `arguments`, (args, kwargs)

    Raises what the call and its backward raise.
    """
    given = flatten_arguments(*arguments)
    parameters = [*named_parameters(module).values()]
    leaves = list({id(tensor): tensor for tensor in (*parameters, *given) if tensor.requires_grad}.values())
    device = next((tensor.device for tensor in (*parameters, *given)), torch.device("cpu"))
    with state_kept(module):
        before = _Steps(call, loss, leaves, device)
        for _ in range(_BEFORE):
            before.run()
        plain = _Steps(call, loss, leaves, device)
        for _ in range(steps):
            plain.run()
        events, began = _recorded(_Steps(call, loss, leaves, device), steps)
    memory = account(module, served, *arguments)
    nodes = node_times(events, steps, on_device=device.type == "cuda")
    return Profile(
        type(module).__qualname__,
        memory.source,
        memory.reason,
        str(device),
        steps,
        plain.median("forward") or 0.0,
        plain.median("backward"),
        _with_bytes(nodes, memory),
        memory,
        events,
        began,
    )


def _recorded(running: _Steps, steps: int) -> tuple[Sequence[Any], int]:
    """Returns torch.profiler's events of so many steps, and when they begin, in nanoseconds since 1970."""
    activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if running.device.type == "cuda" else [])
    with torch_profile(activities=activities, acc_events=True) as recorder:
        for _ in range(steps):
            running.run()
    assert recorder.profiler is not None, "torch.profiler has recorded, so it has what it recorded"
    return recorder.events() or (), recorder.profiler.kineto_results.trace_start_ns()


def _with_bytes(nodes: list[NodeTime], memory: MemoryAccount) -> tuple[NodeTime, ...]:
    """Adds what each node makes, by the memory's account."""
    sizes: dict[tuple[str, str, str], int] = {}
    for one in (memory, *memory.parts):
        for value in one.values:
            sizes.setdefault((value.op, value.name, value.source), value.bytes)
    return tuple(replace(node, bytes=sizes.get((node.op, node.value, node.source))) for node in nodes)
