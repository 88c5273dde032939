"""Partial capture: submodules of a module that stays in eager run from graphs; all that is seen is what eager shows."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import torch
from module_support import Twins
from parts_support import Model, compared, rows, sources, straight
from rekindle.errors import FallbackError
from torch import nn
from torch.utils.checkpoint import checkpoint


def branches(self: Model, x: torch.Tensor) -> torch.Tensor:
    x = self.first(x)
    if x.sum() > 0:
        x = x * 2
    return self.head(self.second(x))


def counts(self: Model, x: torch.Tensor) -> torch.Tensor:
    self.calls += 1
    return straight(self, x) * self.calls


def encodes(self: Model, x: torch.Tensor) -> torch.Tensor:
    return self.head(self.encoder(self.first(x)))


def writes_in_place(self: Model, x: torch.Tensor) -> torch.Tensor:
    x = self.first(x)
    x += float(x.detach().mean())
    x = self.second(x)
    x.mul_(2)
    return self.head(x)


def recomputes(self: Model, x: torch.Tensor) -> torch.Tensor:
    x = checkpoint(self.first, x, use_reentrant=False)
    x = checkpoint(self.second, x, use_reentrant=True)
    return self.head(self.first(x)) * float(x.detach().mean())


def mixes_modes(self: Model, x: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        target = self.first(x)
    with torch.autocast("cpu", torch.bfloat16):
        x = self.second(x)
    return self.head(self.first(x.float()) - target) * float(target.mean())


FORWARDS: dict[str, tuple[Callable[..., Any], dict[str, str]]] = {
    "control flow on values": (branches, {"": "eager", "first": "local", "second": "local"}),
    "a changed attribute": (counts, {"": "eager", "first": "local", "second": "local"}),
    "a submodule that cannot": (
        encodes,
        {
            "": "eager",
            "first": "local",
            "encoder": "eager",
            "encoder.layers.0": "local",
            "encoder.layers.1": "eager",
            "encoder.layers.2": "local",
        },
    ),
    "writes to results of parts": (writes_in_place, {"": "eager", "first": "local", "second": "local"}),
    "checkpoints": (recomputes, {"": "eager", "first": "local", "second": "local"}),
    "regions without gradient and in lower precision": (mixes_modes, {"": "eager", "first": "local", "second": "local"}),
}


@pytest.mark.parametrize("name", FORWARDS)
def test_parts_run_from_graphs(name: str) -> None:
    forward, expected = FORWARDS[name]
    assert sources(compared(lambda: Model(forward))) == expected


def test_the_status_says_why_and_prints_as_lines() -> None:
    torch.manual_seed(0)
    model = rekindle.Module(Model(encodes), rekindle.Options(log="error"))
    for step in range(3):
        model(rows(step))
    reasons = {part.name: part.reason for part in rekindle.status(model).parts}
    assert reasons["first"] is None
    assert reasons["encoder.layers.1"].startswith("value_specialized: ")
    lines = [str(part) for part in rekindle.status(model).parts]
    assert lines[0].startswith("(the module): eager (value_specialized: ")
    assert lines[1] == "first: export"
    assert "encoder.layers.2: export" in lines


def test_a_part_whose_inputs_always_have_other_sizes_is_not_exported_for_ever() -> None:
    def selects(self: Model, x: torch.Tensor) -> torch.Tensor:
        return self.second(x[x.sum(-1) > 0] if x.sum() > 0 else x)

    torch.manual_seed(0)
    module = Model(selects).eval()
    model = rekindle.Module(copy.deepcopy(module), rekindle.Options(log="error", dynamic="static"))
    for count in range(2, 42, 2):
        x = torch.ones(count, 4)
        torch.testing.assert_close(model(x), module(x))
    status = rekindle.status(model)
    assert 10 < status.exports <= 16
    assert sources(status)["second"] == "eager"
    torch.testing.assert_close(model(torch.ones(2, 4)), module(torch.ones(2, 4)))
    assert sources(rekindle.status(model))["second"] == "export"


def test_errors_leave_the_modules_as_they_were() -> None:
    def fails(self: Model, x: torch.Tensor) -> torch.Tensor:
        x = branches(self, x)
        if len(seen) == 3:
            raise KeyError("own error")
        return x

    seen: list[int] = []
    module = Model(fails)
    model = rekindle.Module(module, rekindle.Options(log="error"))
    for step in range(5):
        seen.append(step)
        if len(seen) == 3:
            with pytest.raises(KeyError, match="own error"):
                model(rows(step))
        else:
            model(rows(step))
        assert not any("forward" in part.__dict__ for part in module.modules())
    with pytest.raises(RuntimeError, match=r"running_mean|size|shape"):
        model(torch.randn(6, 5))


def test_a_module_copied_in_the_middle_of_a_call_is_its_own() -> None:
    copies: list[Any] = []

    def copying(self: Model, x: torch.Tensor) -> torch.Tensor:
        x = branches(self, x)
        copies[:] = [copy.deepcopy(self.first), pickle.loads(pickle.dumps(self.first))]
        return x

    torch.manual_seed(0)
    module = Model(copying)
    module.eval()
    model = rekindle.Module(module, rekindle.Options(log="error"))
    for step in range(3):
        model(rows(step))
    assert sources(rekindle.status(model))["first"] == "export"
    for other in copies:
        with torch.no_grad():
            other.up.weight.zero_(), other.up.bias.zero_(), other.down.bias.zero_()
        torch.testing.assert_close(other(rows(0)), rows(0))


def test_threads_share_a_module_with_parts() -> None:
    torch.manual_seed(0)
    module = Model(branches).eval()
    model = rekindle.Module(module, rekindle.Options(log="error"))
    expected = [module(rows(step)).detach() for step in range(8)]
    results: dict[tuple[int, int], torch.Tensor] = {}

    def run(thread: int) -> None:
        for step in range(8):
            results[thread, step] = model(rows(step)).detach()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    for (_, step), ours in results.items():
        torch.testing.assert_close(ours, expected[step])
    assert len(results) == 32
    model(rows(0))
    assert not any("forward" in part.__dict__ for part in module.modules())


def test_without_eager_there_are_no_parts() -> None:
    model = rekindle.Module(Model(branches), rekindle.Options(fallback="error", log="error"))
    for step in range(3):
        with pytest.raises(FallbackError, match="value_specialized"):
            model(rows(step))


class _Forces(nn.Module):
    """Differentiates one of its submodules in the forward, as potentials of molecules do."""

    def __init__(self) -> None:
        super().__init__()
        self.energy = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        x = x.detach().requires_grad_()
        energy = self.energy(x).sum()
        (gradient,) = torch.autograd.grad(energy, x, create_graph=True)
        return energy, -gradient


def test_a_part_is_differentiated_twice_inside_of_the_forward() -> None:
    torch.manual_seed(2)
    twins = Twins(_Forces())
    for _ in range(5):
        twins.call(torch.randn(4, 3))
        for model in (twins.eager, twins.module):
            for parameter in model.parameters():
                parameter.data -= 0.1 * parameter.grad
                parameter.grad = None
    assert {part.name: part.source for part in twins.status.parts}["energy"] != "eager"
