"""`rekindle diff` names the first tensor of a planted fault in real training, and none where two runs differ by rounding only."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
import rekindle
import torch
from diff_support import Training, diff, first
from rekindle.statistics import StatisticsSubscriber, inspect_activation, subscribe
from torch import nn
from torch.nn import functional as F


@pytest.fixture
def good(tmp_path: pathlib.Path) -> pathlib.Path:
    return Training(tmp_path / "good").run()


class OtherNorm(nn.Module):
    """Computes a LayerNorm by other kernels, or wrongly."""

    def __init__(self, norm: nn.LayerNorm, epsilon: float = 1e-5) -> None:
        super().__init__()
        self.weight, self.bias, self.epsilon = norm.weight, norm.bias, epsilon

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        centred = x - x.mean(-1, keepdim=True)
        return centred / (centred.square().mean(-1, keepdim=True) + self.epsilon).sqrt() * self.weight + self.bias


class OtherLinear(nn.Module):
    """Computes a Linear in two halves."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = linear.weight, linear.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        half = x.shape[-1] // 2
        return x[..., half:] @ self.weight.t()[half:] + x[..., :half] @ self.weight.t()[:half] + self.bias


def _other_kernels(net: nn.Module) -> None:
    for module in [*net.modules()]:
        for name, child in [*module.named_children()]:
            if isinstance(child, nn.LayerNorm):
                setattr(module, name, OtherNorm(child))
            if isinstance(child, nn.Linear):
                setattr(module, name, OtherLinear(child))


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16, torch.float64))
def test_other_kernels_are_rounding(tmp_path: pathlib.Path, dtype: torch.dtype) -> None:
    one = Training(tmp_path / "one", dtype=dtype, steps=12).run()
    other = Training(tmp_path / "other", _other_kernels, dtype=dtype, steps=12).run()
    status, report = diff(one, other)
    assert status == 0, report["first"]
    assert report["compared"] > 1000 and 0 < report["worst"] < 1
    assert (report["only_a"], report["only_b"]) == (0, 0)


@pytest.mark.parametrize("dtype", (torch.float32, torch.bfloat16))
def test_a_graph_is_rounding_beside_eager(tmp_path: pathlib.Path, dtype: torch.dtype) -> None:
    eager = Training(tmp_path / "eager", dtype=dtype, steps=6).run()
    wrapped = Training(tmp_path / "graph", dtype=dtype, steps=6, wrapped=True)
    status, report = diff(eager, wrapped.run())
    assert status == 0, report["first"]
    assert (report["only_a"], report["only_b"]) == (0, 0)
    assert rekindle.status(wrapped.model).bypass == []


def test_precisions_are_rounding(tmp_path: pathlib.Path, good: pathlib.Path) -> None:
    for dtype in (torch.bfloat16, torch.float64):
        status, report = diff(good, Training(tmp_path / str(dtype), dtype=dtype).run())
        assert status == 0, report["first"]


def _wrong_epsilon(net: Any) -> None:
    net.blocks[1].norm = OtherNorm(net.blocks[1].norm, 1e-4)


def _no_dropout_scale(net: Any) -> None:
    class Dropout(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return F.dropout(x, 0.2, self.training) * 0.8

    net.blocks[2].dropout = Dropout()


def _swapped_weights(net: Any) -> None:
    with torch.no_grad():
        one, other = net.blocks[0].attention.output.weight, net.blocks[2].attention.output.weight
        kept = one.clone()
        one.copy_(other)
        other.copy_(kept)


def _no_mask(net: Any) -> None:
    def forward(x: torch.Tensor) -> torch.Tensor:
        self = net.blocks[1].attention
        q, k, v = (part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.inputs(x).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v)
        return self.output(inspect_activation("mixed", mixed).transpose(1, 2).flatten(2))

    net.blocks[1].attention.forward = forward


class WrongGradient(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * 1.001


def _wrong_gradient(net: Any) -> None:
    net.blocks[1].mlp[2].register_forward_hook(lambda module, args, result: WrongGradient.apply(result))


FAULTS: dict[str, Any] = {
    "a LayerNorm's epsilon": (_wrong_epsilon, (0, "forward", "blocks.1.norm")),
    "a dropout's scale": (_no_dropout_scale, (0, "forward", "blocks.2.dropout")),
    "two weights swapped": (_swapped_weights, (0, "parameter", "blocks.0.attention.output.weight")),
    "a causal mask": (_no_mask, (0, "forward", "mixed")),
    "a gradient": (_wrong_gradient, (0, "backward", "blocks.1.mlp.1")),
}


@pytest.mark.parametrize("wrapped", (False, True), ids=("eager", "graph"))
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named(tmp_path: pathlib.Path, good: pathlib.Path, name: str, wrapped: bool) -> None:
    plant, expected = FAULTS[name]
    bad = Training(tmp_path / "bad", plant, wrapped=wrapped).run()
    assert first(good, bad) == expected
    assert first(bad, good) == expected


@pytest.mark.parametrize("name", ("a dropout's scale", "two weights swapped"))
def test_a_fault_is_named_in_half_precision(tmp_path: pathlib.Path, name: str) -> None:
    plant, (step, phase, tensor) = FAULTS[name]
    runs = [Training(tmp_path / str(plan), plan, dtype=torch.bfloat16).run() for plan in (None, plant)]
    assert first(*runs) == (step, phase, tensor)


def test_a_learning_rate_shows_in_the_parameters_of_the_next_step(tmp_path: pathlib.Path, good: pathlib.Path) -> None:
    step, phase, _ = first(good, Training(tmp_path / "bad", rate=1.5e-3).run())
    assert (step, phase) == (1, "parameter")


def test_an_overflow_is_named_at_its_step(tmp_path: pathlib.Path) -> None:
    def overflow(training: Training, step: int) -> None:
        training.net.gain.by = 3e38 if step == 17 else 1.0

    good = Training(tmp_path / "good", dtype=torch.bfloat16, steps=19).run()
    bad = Training(tmp_path / "bad", dtype=torch.bfloat16, steps=19, each_step=overflow).run()
    status, report = diff(good, bad)
    found = report["first"]
    assert (status, found["step"], found["phase"], found["name"]) == (1, 17, "forward", "gain")
    infs = next(one for one in found["statistics"] if one["name"] == "infs")
    assert infs["a"] == 0 and infs["b"] > 0 and infs["differs"]
    assert found["fed_by"][-1]["name"] == "blocks" and found["fed_by"][-1]["of_rounding"] <= 1


def test_a_rank_with_another_seed_is_named(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def other_seed(training: Training, step: int) -> None:
        training.seed = 2000 if step >= 2 else 1000

    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in (0, 1):
        monkeypatch.setenv("RANK", str(rank))
        Training(tmp_path / "good").run()
        Training(tmp_path / "bad", **({"each_step": other_seed} if rank == 1 else {})).run()
    status, report = diff(tmp_path / "good", tmp_path / "bad")
    found = report["first"]
    assert (status, found["rank"]) == (1, 1)
    assert (found["step"], found["phase"], found["name"]) == (2, "forward", "blocks.0.dropout")
    ranks = [tmp_path / "bad" / f"rank_{rank}.jsonl" for rank in (0, 1)]
    assert first(*ranks) == (2, "forward", "blocks.0.dropout")


def test_merged_ranks_are_the_run_of_one_process(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4)), torch.randn(12, 8)
    with subscribe(net, StatisticsSubscriber(tmp_path / "one")):
        net(x).square().sum().backward()
    monkeypatch.setenv("WORLD_SIZE", "3")
    for rank in range(3):
        monkeypatch.setenv("RANK", str(rank))
        with subscribe(net, StatisticsSubscriber(tmp_path / "three")):
            net.zero_grad()
            net(x[4 * rank : 4 * rank + 4]).square().sum().backward()
    status, report = diff("merge", tmp_path / "three", "-o", tmp_path / "merged")
    assert (status, report["ranks"]) == (0, 3)
    _, report = diff(tmp_path / "one", tmp_path / "merged")
    # Gradients of parameters are sums over a rank's rows: the first of these differs, and nothing before.
    assert report["first"]["phase"] == "gradient"
    assert report["compared"] > 4 + 3 + 1
