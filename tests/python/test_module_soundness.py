"""What a graph cannot hold runs in eager with a reason; what it holds means the same. Always compared with eager."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import pytest
import torch
from module_support import GPT, Twins, assert_same, mlp, rows, tiny_gpt, tokens
from torch import nn
from torch.autograd import forward_ad


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("total", torch.zeros(4))
        self.counter = 0


class ReplacesBuffer(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.total = self.total + x.detach().sum(0)
        return self.linear(x) + self.total


class WritesInput(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.copy_(self.linear(x.clone())) * 2


class Counts(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.counter += 1
        return self.linear(x) * self.counter


class Appends(Base):
    def __init__(self) -> None:
        super().__init__()
        self.history: list[int] = []
        self.seen: dict[str, int] = {}

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.history.append(len(self.history))
        self.seen[f"call {len(self.history)}"] = x.shape[0]
        return self.linear(x) * len(self.history)


class Branches(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return self.linear(x)
        return self.linear(-x) * 2


class ReadsValue(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * x.abs().max().item()


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 5  # not the derivative


class UsesFunction(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Double.apply(self.linear(x))


class OwnGenerator(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(3)
        return nn.functional.dropout(self.linear(x), 0.3)


EAGER = {
    ReplacesBuffer: "buffer_mutated",
    WritesInput: "input_mutated",
    Counts: "state_mutated",
    Appends: "state_mutated",
    Branches: "value_specialized",
    ReadsValue: "value_specialized",
    OwnGenerator: "verification_failed",
}


@pytest.mark.parametrize("kind", EAGER, ids=lambda kind: kind.__name__)
def test_what_a_graph_cannot_hold_runs_in_eager(kind: type[Base]) -> None:
    twins = Twins(kind())
    assert torch.is_autocast_cache_enabled()
    for step in range(4):
        ours_input, theirs_input = rows(step), rows(step)
        inputs = iter((theirs_input, ours_input))
        theirs, ours = twins.both(lambda model: model(next(inputs)))  # noqa: B023
        assert_same(ours, theirs)
        assert torch.equal(ours_input, theirs_input)
        theirs.square().sum().backward()
        ours.square().sum().backward()
        twins.compare()
        for name in ("counter", "history", "seen"):
            assert getattr(twins.module, name, None) == getattr(twins.eager, name, None)
    assert torch.is_autocast_cache_enabled(), "the exporter must not leave it off"
    assert set(twins.reasons()) == {EAGER[kind]}
    assert twins.status.source == "eager"
    assert twins.status.eager_calls == 4


def test_a_branch_on_a_value_is_named_by_file_and_line() -> None:
    twins = Twins(Branches())
    twins.call(rows())
    [(_, message)] = twins.status.bypass
    line = Branches.forward.__code__.co_firstlineno + 1
    assert f"test_module_soundness.py:{line}" in message


def test_a_forward_that_changes_its_module_is_not_exported_at_every_call() -> None:
    twins = Twins(Counts())
    calls = []
    from rekindle.miss import pipeline

    original = pipeline.export_entry
    try:
        pipeline.export_entry = lambda *args: calls.append(1) or original(*args)  # type: ignore[assignment]
        for step in range(5):
            twins.call(rows(step))
    finally:
        pipeline.export_entry = original
    # One finds the counter set, one finds it read before that, one that the first call was not the only one to do so.
    assert len(calls) == 3


class Noisy(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(self.linear(x), 0.3) + torch.rand(x.shape) + torch.randn_like(x)


class PartlyWithoutGradient(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            scale = self.linear(x).abs().mean()
            shift = x.mean(0)
        return self.linear(x) * scale + shift


class Detached(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        return y * y.detach() + self.linear.weight.data.sum()


class LocalInPlace(Base):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        y += 1
        return y.mul_(2)


@pytest.mark.parametrize("kind", [Noisy, PartlyWithoutGradient, Detached, LocalInPlace], ids=lambda kind: kind.__name__)
def test_these_mean_the_same_from_a_graph_or_in_eager(kind: type[Base]) -> None:
    twins = Twins(kind())
    for step in range(3):
        twins.call(rows(step))
        twins.call(rows(step).requires_grad_())
    if kind is not Noisy:
        assert twins.status.eager_calls == 0, twins.status.bypass


class Regions(Base):
    """Autocast around, off and on inside; a weight that is used twice."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        with torch.autocast("cpu", enabled=False):
            y = y.float() @ self.linear.weight
        with torch.autocast("cpu", torch.bfloat16):
            z = self.linear(x) @ self.linear.weight
        return torch.softmax(y, -1) + z


@pytest.mark.parametrize("kind", [Regions, lambda: tiny_gpt(0.1)], ids=["regions", "gpt"])
def test_autocast_is_followed_call_by_call(kind: Callable[[], nn.Module]) -> None:
    twins = Twins(kind(), fallback="error")
    call = (tokens(), tokens()) if isinstance(twins.eager, GPT) else (rows(),)
    exports = []
    other = torch.float16 if len(call) == 2 else torch.bfloat16  # eager cannot mix the dtypes of nested regions
    for dtype in (None, torch.bfloat16, None, other, torch.bfloat16):
        for model in (twins.eager, twins.wrapped):
            model.zero_grad()
        with torch.autocast("cpu", dtype) if dtype else contextlib.nullcontext():
            theirs, ours = twins.both(lambda model: model(*call))
        torch.testing.assert_close(ours, theirs)
        theirs.sum().backward()
        ours.sum().backward()
        for mine, other in zip(twins.module.parameters(), twins.eager.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, other.grad, rtol=2e-2, atol=2e-2 * float(other.grad.abs().max()))
        exports.append(twins.status.exports)
    assert exports == ([1, 2, 2, 3, 3] if len(call) == 2 else [1, 2, 2, 2, 2])


def test_function_modes_and_saved_tensor_hooks_are_honoured() -> None:
    seen: list[Any] = []
    twins = Twins(mlp())
    twins.call(rows())
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: seen.append(tensor) or tensor, lambda tensor: tensor):
        for model in (twins.eager, twins.wrapped):
            seen.clear()
            model(rows()).sum().backward()
            assert seen
    twins.compare()
    assert twins.reasons() == ["mode_stack"]


def test_a_wrapped_module_can_be_traced_and_mapped() -> None:
    twins = Twins(mlp())
    twins.call(rows())
    traced = torch.jit.trace(twins.wrapped, rows(), check_trace=False)
    torch.testing.assert_close(traced(rows(2)), twins.eager(rows(2)))
    mapped = torch.func.vmap(twins.wrapped)(rows())
    torch.testing.assert_close(mapped, twins.eager(rows()))


def _input_tangent(model: Any, x: torch.Tensor) -> torch.Tensor | None:
    with forward_ad.dual_level():
        return forward_ad.unpack_dual(model(forward_ad.make_dual(x, torch.ones_like(x)))).tangent


def test_forward_mode_differentiation_is_eagers() -> None:
    twins = Twins(mlp())
    twins.call(rows())
    theirs, ours = twins.both(lambda model: _input_tangent(model, rows()))
    assert theirs is not None
    assert_same(ours, theirs)
    assert twins.reasons() == ["mode_stack"]
    twins.call(rows())
    assert twins.status.source != "eager"


@pytest.mark.parametrize("switch", [
    (torch.autograd.set_detect_anomaly, True, False),
    (torch.backends.mha.set_fastpath_enabled, False, True),
    (torch.utils.deterministic.__class__.fill_uninitialized_memory.fset, False, True),
], ids=["anomaly mode", "fast path of attention", "filled memory"])  # fmt: skip
def test_a_switch_of_the_process_is_followed(switch: tuple[Callable[..., Any], bool, bool]) -> None:
    change, other, usual = switch
    arguments = (torch.utils.deterministic,) if "fill" in change.__name__ else ()
    twins = Twins(mlp())
    twins.call(rows())
    change(*arguments, other)
    try:
        twins.call(rows())
        assert twins.status.exports == 2, "the key has the switch, so the guard must too"
    finally:
        change(*arguments, usual)
    twins.call(rows())
    assert twins.status.exports == 2
