"""Modes that see operators, around a call or around a backward alone: they see eager's, and leave nothing behind."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import torch
from torch import nn
from torch.autograd.graph import save_on_cpu, saved_tensors_hooks
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts
from torch.utils.flop_counter import FlopCounterMode


class Seen(TorchDispatchMode):
    """Notes what operators are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is not torch.ops.aten.detach.default:  # whoever keeps a gradient may, or may not
            self.names.append(str(function))
        return function(*args, **(kwargs or {}))


class Faulty(TorchDispatchMode):
    """Changes each number that is read from a tensor, as tools that look for the effects of faults do."""

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = function(*args, **(kwargs or {}))
        return result + 0.5 if isinstance(result, float) else result


class TwoResults(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.norm, self.last = nn.Linear(4, 4), nn.LayerNorm(4), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.norm(self.first(x)).tanh()
        return hidden, nn.functional.elu(self.last(hidden), 0.3)


def both(run: Callable[[nn.Module, nn.Module], Any], **options: Any) -> tuple[Any, Any, Any]:
    """Runs `run(called, module)` in eager and on a wrapped module; returns both results, and the status of the wrapped one."""
    eager, module = TwoResults(), TwoResults()
    wrapped = rekindle.Module(module, rekindle.Options(start="wait", **options))
    return run(eager, eager), run(wrapped, module), rekindle.status(wrapped)


def gradients(module: nn.Module) -> list[torch.Tensor | None]:
    found = [None if one.grad is None else one.grad.clone() for one in module.parameters()]
    module.zero_grad()
    return found


def data(rows: int = 3) -> torch.Tensor:
    return torch.randn(rows, 4, generator=torch.Generator().manual_seed(rows))


@pytest.mark.parametrize("mode", [Faulty, Seen])
def test_no_plan_is_made_under_a_mode_around_a_call(mode: Callable[[], TorchDispatchMode]) -> None:
    def run(called: nn.Module, _: nn.Module) -> Any:
        called(data(4))
        with mode() as around:
            called(data(3))
        return called(data(3)), getattr(around, "names", None)

    theirs, ours, status = both(run)
    torch.testing.assert_close(ours[0], theirs[0])
    assert ours[1] == theirs[1]
    assert [reason for reason, _ in status.bypass] == ["mode_stack"] and status.eager_calls == 1


def test_no_plan_is_made_under_a_mode_around_a_backward() -> None:
    def run(called: nn.Module, module: nn.Module) -> Any:
        called(data())[1].sum().backward()
        found = [gradients(module)]
        results = called(data())
        with Faulty():
            results[0].square().sum().backward()  # of a result that no backward has begun with so far
        found.append(gradients(module))
        called(data())[0].square().sum().backward()
        return [*found, gradients(module)]

    theirs, ours, _ = both(run, fallback="error")
    torch.testing.assert_close(ours, theirs)


def test_a_mode_around_a_backward_sees_eagers_operators() -> None:
    def run(called: nn.Module, module: nn.Module) -> Any:
        results = called(data())
        with Seen() as seen:
            results[1].sum().backward()
        results = called(data())
        with FlopCounterMode(display=False) as count:
            results[1].sum().backward()
        return gradients(module), seen.names, count.get_total_flops()

    theirs, ours, _ = both(run, fallback="error")
    torch.testing.assert_close(ours[0], theirs[0])
    assert ours[1:] == theirs[1:]


CONTEXTS = {
    "save_on_cpu": save_on_cpu,
    "saved_tensors_hooks": lambda: saved_tensors_hooks(lambda tensor: tensor, lambda tensor: tensor),
    "mode": Seen,
    "flops": lambda: FlopCounterMode(display=False),
}


@pytest.mark.parametrize("name", CONTEXTS)
def test_gradients_of_gradients_under_what_was_not_there_at_the_forward(name: str) -> None:
    def penalty(result: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        return torch.autograd.grad(result.sum(), x, create_graph=True)[0].square().sum()

    def run(called: nn.Module, module: nn.Module) -> Any:
        x = data().requires_grad_()
        results = called(x)
        with CONTEXTS[name]():
            penalty(results[1], x).backward()
        return gradients(module), x.grad

    theirs, ours, _ = both(run, fallback="error")
    torch.testing.assert_close(ours, theirs)


def test_a_block_of_a_selective_checkpoint() -> None:
    def contexts() -> tuple[contextlib.AbstractContextManager[Any], contextlib.AbstractContextManager[Any]]:
        return create_selective_checkpoint_contexts(lambda *_, **__: CheckpointPolicy.PREFER_SAVE)

    def run(called: nn.Module, module: nn.Module) -> Any:
        called(data(4))[1].sum().backward()
        found = [gradients(module)]
        for rows in (4, 3, 5):
            result = checkpoint(called, data(rows), use_reentrant=False, context_fn=contexts)[1]
            result.sum().backward()
            found.append(gradients(module))
        return found

    theirs, ours, _ = both(run)
    torch.testing.assert_close(ours, theirs)
