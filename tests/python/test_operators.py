"""Operators that the graph takes from PyTorch as they are: those of libraries, and a sample of PyTorch's own database."""

from __future__ import annotations

import pathlib

import opinfo
import pytest
import rekindle
import rows as rows_suite
import torch
from comparison import Outcome, difference
from comparison import Step as Trial
from module_support import Twins, rows
from rekindle.lookup.store import flush
from torch import nn


def scale(x: torch.Tensor, factor: float, shift: torch.Tensor | None = None) -> torch.Tensor:
    return x * factor if shift is None else x * factor + shift


def scale_fake(x: torch.Tensor, factor: float, shift: torch.Tensor | None = None) -> torch.Tensor:
    return torch.empty_like(x)


def remember(ctx, inputs, output) -> None:
    ctx.factor = inputs[1]


def gradient(ctx, gradient):
    return gradient * (ctx.factor + 1), None, None  # not the derivative: whose it is shows


def fill(x: torch.Tensor) -> None:
    x.fill_(1)


def positive(x: torch.Tensor) -> torch.Tensor:
    return x[x > 0].clone()


scaled = torch.library.custom_op("rekindle_test::scaled", scale, mutates_args=())
scaled.register_fake(scale_fake)
scaled.register_autograd(gradient, setup_context=remember)
torch.library.custom_op("rekindle_test::fill", fill, mutates_args=("x",))
torch.library.custom_op("rekindle_test::positive", positive, mutates_args=())


class Layer(nn.Module):
    """A linear layer, then a function."""

    def __init__(self, function) -> None:
        super().__init__()
        self.linear, self.function = nn.Linear(4, 4), function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self.linear(x))


def test_an_operator_of_a_library_runs_in_the_graph_with_its_own_gradient(tmp_path: pathlib.Path) -> None:
    for source in ("export", "local"):
        torch.manual_seed(0)
        twins = Twins(Layer(lambda y: torch.ops.rekindle_test.scaled(y, 1 / 3)), fallback="error", cache_dir=tmp_path)
        twins.call(rows(1))
        [kind] = twins.wrapped._runtime._kinds
        assert " = rekindle_test.scaled.default" in kind.graphs[0].session.describe_plan()
        assert twins.status.source == source
        flush()


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda y: (torch.ops.rekindle_test.fill(z := y * 2), z)[1], "unsupported_op"),
        (lambda y: torch.ops.rekindle_test.positive(y.detach()).sum() * y, "unsupported_op"),
    ],
    ids=["writes", "no fake"],
)
def test_what_cannot_be_a_node_stays_in_eager(function, reason: str) -> None:
    twins = Twins(Layer(function))
    for step in range(2):
        twins.call(rows(step))
    assert twins.reasons() == [reason]


SAMPLE = (
    "nn.functional.conv2d", "nn.functional.max_pool2d", "nn.functional.grid_sample", "nn.functional.interpolate.bicubic",
    "nn.functional.group_norm", "nn.functional.ctc_loss", "topk", "einsum", "linalg.svd", "fft.rfft", "index_put",
    "masked_select", "cumprod", "squeeze.multiple",
)  # fmt: skip


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SAMPLE)
def test_a_sample_of_pytorchs_operator_database(name: str) -> None:
    options = rekindle.Options(cache="off", log="off")
    outcomes = [each for each in opinfo.run(name, 1, options) if each.name == f"{name}#0"]
    [outcome] = outcomes
    assert outcome.right, outcome
    assert outcome.place in ("onnx", "torch"), outcome


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", ["nn.functional.dropout", "trapezoid", "cumulative_trapezoid", "corrcoef"])
def test_a_sample_of_them_on_rows_that_a_mask_chooses(name: str) -> None:
    outcomes = [
        each for each in rows_suite.run(name, 1, rekindle.Options(cache="off", log="off")) if each.name.startswith(f"{name}#0")
    ]
    assert [outcome for outcome in outcomes if not outcome.right] == []
    assert {outcome.name.rpartition(":")[2] for outcome in outcomes} >= {"0", "1"}


def test_the_comparison_sees_what_differs() -> None:
    def step(**changes: list) -> Trial:
        fields = {
            "outputs": [torch.ones(3)],
            "gradients": [None],
            "state": [],
            "random_state": torch.zeros(1),
        }
        return Trial(**{**fields, **changes})

    assert difference(step(), step()) == ""
    assert "output 0" in difference(step(outputs=[torch.ones(3) + 1e-3]), step())
    assert "output 0" in difference(step(outputs=[torch.ones(3).double()]), step())
    assert "gradient 1" in difference(step(gradients=[torch.zeros(3)]), step())
    assert "random" in difference(step(random_state=torch.ones(1)), step())
    assert Outcome("x", "onnx").right
