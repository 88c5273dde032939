"""Memory budgets: results and gradients bit for bit those without one, whatever is computed again."""

from __future__ import annotations

import contextlib
import copy
import json
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import rekindle
import torch
from module_support import tiny_gpt, tokens
from torch import nn
from torch.nn import functional as F

BUDGETS = (0.9, 0.7, 0.5, 0.3, 1)


class Residual(nn.Module):
    """Convolutions with batch norms, whose statistics the forward writes."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.Conv2d(8, 8, 3, padding=1, bias=False), nn.BatchNorm2d(8), nn.ReLU()) for _ in range(3)
        )
        self.head = nn.Linear(8, 5)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.stem(images)
        for block in self.blocks:
            x = x + block(x)
        return self.head(F.max_pool2d(x, 2).mean((2, 3)))


class Double(torch.autograd.Function):
    """A user's code, which runs as often as in eager."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient * 2


class WithFunction(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = Double.apply(torch.tanh(layer(F.gelu(x))))
        return x


class Two(nn.Module):
    """Returns a loss and what it is made of, as models of transformers do."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(4))
        self.norm = nn.LayerNorm(64)
        self.head = nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        for layer in self.layers:
            x = x + F.dropout(F.silu(layer(self.norm(x))), 0.3, self.training)
        logits = self.head(x)
        return logits.logsumexp(-1).mean(), logits


@contextlib.contextmanager
def counted(function: Any) -> Iterator[list[str]]:
    """Yields a list that grows by one with each call of a function of Python's."""
    calls: list[str] = []

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code is function.__code__:
            calls.append(event)

    sys.setprofile(note)
    try:
        yield calls
    finally:
        sys.setprofile(None)


def images() -> torch.Tensor:
    return torch.randn(4, 3, 12, 12, generator=torch.Generator().manual_seed(3))


def rows() -> torch.Tensor:
    return torch.randn(32, 64, generator=torch.Generator().manual_seed(3))


CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[], torch.Tensor], Callable[[Any], torch.Tensor]]] = {
    "gpt": (lambda: tiny_gpt(0.1), tokens, lambda found: (found[0] if isinstance(found, tuple) else found).square().mean()),
    "residual": (Residual, images, lambda found: found.square().mean()),
    "function": (WithFunction, rows, lambda found: found.square().mean()),
    "loss": (Two, rows, lambda found: found[0]),
    "logits": (Two, rows, lambda found: found[1].square().mean()),
}


def made(make: Callable[[], nn.Module], budget: Any) -> tuple[nn.Module, rekindle.Module]:
    torch.manual_seed(1)
    module = make().train()
    return module, rekindle.Module(module, rekindle.Options(fallback="error", log="error", memory_budget=budget))


def trained(model: Any, module: nn.Module, data: torch.Tensor, loss_of: Callable[[Any], torch.Tensor]) -> list[torch.Tensor]:
    """Returns losses, gradients, parameters and buffers of three steps."""
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
    found = []
    for step in range(3):
        torch.manual_seed(step)
        loss = loss_of(model(data))
        optimizer.zero_grad()
        loss.backward()
        found += [loss.detach(), *(each.grad.clone() for each in module.parameters() if each.grad is not None)]
        optimizer.step()
    return found + [tensor.detach().clone() for tensor in module.state_dict().values()]


@pytest.mark.parametrize("name", CASES)
def test_no_budget_changes_a_bit(name: str) -> None:
    make, data, loss_of = CASES[name]
    module, model = made(make, None)
    expected = trained(model, module, data(), loss_of)
    full = rekindle.memory(model, data()).activations
    before = full
    for budget in BUDGETS:
        module, model = made(make, budget)
        with counted(Double.forward) as calls:
            found = trained(model, module, data(), loss_of)
        if name == "function":
            assert len(calls) == 3 * len(module.layers)
        assert len(found) == len(expected)
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(found, expected, strict=True))
        account = rekindle.memory(model, data())
        assert account.budget is not None and account.budget.without == full
        assert account.activations is not None and before is not None and account.activations <= before
        assert rekindle.status(model).source == "local", "a budget is no part of the key"
        before = account.activations
    assert account.budget.instructions > 0 or name == "residual"


@pytest.mark.parametrize("name", CASES)
def test_no_plan_changes_a_bit(name: str, tmp_path: pathlib.Path) -> None:
    make, data, loss_of = CASES[name]
    module, model = made(make, None)
    expected = trained(model, module, data(), loss_of)
    rekindle.memory(model, data()).save_plan(tmp_path / "plan.json")
    plan = json.loads((tmp_path / "plan.json").read_text())
    for part in (1, 2):  # all of each kind, and half
        for row in plan["subgraphs"]:
            row["recompute"] = -(-row["count"] // part)
        (tmp_path / "plan.json").write_text(json.dumps(plan))
        torch.manual_seed(1)
        module = make().train()
        options = rekindle.Options(fallback="error", log="error", memory_plan=tmp_path / "plan.json")
        model = rekindle.Module(module, options)
        found = trained(model, module, data(), loss_of)
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(found, expected, strict=True))
        rows = rekindle.memory(model, data()).subgraphs
        assert rows and {row["subgraph"]: row["recompute"] for row in plan["subgraphs"]} == {
            row.kind: row.recomputed for row in rows
        }


def test_another_backward_than_expected_finds_what_was_left() -> None:
    torch.manual_seed(1)
    plain = Two()
    for budget in (0.6, 1):
        wrapped = rekindle.Module(copy.deepcopy(plain), rekindle.Options(fallback="error", log="error", memory_budget=budget))
        for loss_of in (lambda found: found[0], lambda found: found[1].sum(), lambda found: found[0] + found[1].sum()) * 2:
            results = []
            for model in (plain, wrapped):
                torch.manual_seed(5)
                parameters = list(model.parameters())
                results.append(torch.autograd.grad(loss_of(model(rows())), parameters))
            for theirs, ours in zip(*results, strict=True):
                torch.testing.assert_close(ours, theirs)


def test_parts_of_a_backward_one_after_the_other() -> None:
    torch.manual_seed(1)
    plain = Two().eval()
    wrapped = rekindle.Module(copy.deepcopy(plain), rekindle.Options(fallback="error", log="error", memory_budget=0.5))
    found = []
    for model in (plain, wrapped):
        x = rows().requires_grad_()
        for _ in range(2):
            loss, logits = model(x)
            loss.backward(retain_graph=True)
            logits.square().sum().backward()
        found.append([x.grad, *(parameter.grad for parameter in model.parameters())])
    for theirs, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_fused_optimizer_steps_after_the_last_read() -> None:
    results = []
    for budget in (None, 0.4, 1):
        torch.manual_seed(1)
        module = Two()
        model = rekindle.Module(module, rekindle.Options(fallback="error", log="error", memory_budget=budget))
        fused = rekindle.optim.fuse(model, torch.optim.SGD(module.parameters(), lr=0.1))
        for step in range(3):
            torch.manual_seed(step)
            model(rows())[0].backward()
            fused.step()
        results.append([parameter.detach().clone() for parameter in module.parameters()])
    assert all(torch.equal(a, b) for other in results[1:] for a, b in zip(results[0], other, strict=True))


class Scaled(nn.Module):
    """Reads parameters whose gradients are complete before the other factors' are made."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Parameter(torch.full((64,), 0.5))
        self.outer = nn.Parameter(torch.full((64,), 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return ((self.outer + x) * (self.outer * (self.inner * x).tanh())).sum()


def test_a_parameter_may_be_written_as_soon_as_it_has_its_gradient() -> None:
    results = []
    for budget in (0, None, 1):
        model = module = Scaled()
        if budget != 0:
            model = rekindle.Module(module, rekindle.Options(fallback="error", log="error", memory_budget=budget))

        def zero(parameter: torch.Tensor) -> None:
            parameter.data.zero_()

        for parameter in module.parameters():
            parameter.register_post_accumulate_grad_hook(zero)
        model(rows()).backward()
        results.append([parameter.grad for parameter in module.parameters()])
    for found in results[1:]:
        for theirs, ours in zip(results[0], found, strict=True):
            torch.testing.assert_close(ours, theirs)


def test_a_budget_that_cannot_be_kept_is_said_and_training_goes_on(capfd: pytest.CaptureFixture[str]) -> None:
    torch.manual_seed(1)
    module = Two()
    model = rekindle.Module(module, rekindle.Options(fallback="error", memory_budget=1))
    model(rows())[0].backward()
    said = capfd.readouterr().err
    assert "the least that can be had" in said and "memory_budget" in said
    account = rekindle.memory(model, rows())
    assert "memory budget 1 B, not kept" in str(account)
    assert account.to_dict()["budget"]["bytes"] == 1


def test_a_level_buys_memory_with_time_and_changes_no_bit() -> None:
    make, data, loss_of = CASES["gpt"]
    activations, found = [], []
    for level in (0, 1, 2):
        torch.manual_seed(1)
        module = make().train()
        model = rekindle.Module(module, rekindle.Options(fallback="error", log="error", memory_level=level))
        found.append(trained(model, module, data(), loss_of))
        activations.append(rekindle.memory(model, data()).activations)
    assert activations[0] > activations[1] > activations[2]
    for level in (1, 2):
        assert all(torch.equal(ours, theirs) for ours, theirs in zip(found[level], found[0], strict=True))


def test_a_level_and_a_budget_are_not_both_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(rekindle.errors.OptionError, match=r"memory_level is 1 and memory_budget is 0\.5; set one of them"):
        rekindle.Options(memory_level=1, memory_budget=0.5)
    monkeypatch.setenv("REKINDLE_MEMORY_BUDGET", "50%")
    options = rekindle.Options(memory_level="2")
    assert (options.memory_level, options.memory_budget) == (2, None)
    monkeypatch.setenv("REKINDLE_MEMORY_LEVEL", "1")
    with pytest.raises(rekindle.errors.OptionError, match="set one of them"):
        rekindle.Options()
    for wrong in (3, -1, "high", True):
        with pytest.raises(rekindle.errors.OptionError, match="it must be 0, 1 or 2"):
            rekindle.Options(memory_level=wrong)
