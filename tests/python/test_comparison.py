"""rekindle.verify compares one call with eager, and finds what is wrong."""

from __future__ import annotations

from typing import Any

import pytest
import rekindle
import torch
from module_support import mlp, rows, tiny_gpt, tokens
from torch import nn


def test_a_language_model_agrees_and_is_left_as_it_was() -> None:
    model = rekindle.Module(tiny_gpt(0.1))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    found = rekindle.verify(model, tokens(), tokens())
    assert found, str(found)
    assert found.source == "export"
    assert {row.kind for row in found.rows} == {"result", "gradient", "random"}
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert all(parameter.grad is None for parameter in model.parameters())
    assert str(found).endswith("agrees with eager (graph: export)")


def test_inputs_and_buffers_are_compared_in_training() -> None:
    model = rekindle.Module(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3)))
    found = rekindle.verify(model, rows().requires_grad_())
    assert found, str(found)
    assert {"input 0", "1.running_mean", "1.num_batches_tracked"} <= {row.what for row in found.rows}
    assert int(model.get_buffer("1.num_batches_tracked")) == 0


class Tampered(rekindle.Module):
    """Goes wrong in one way after the graph has run."""

    def __init__(self, module: nn.Module, wrong: str) -> None:
        super().__init__(module)
        self.__dict__["wrong"] = wrong

    def forward(self, x: torch.Tensor) -> Any:
        result = super().forward(x)
        match self.__dict__["wrong"]:
            case "result":
                return result + 1e-3
            case "nan":
                return torch.where(result > 0, torch.nan, result)
            case "gradient":
                return result + (result - result.detach())
            case "missing gradient":
                return result.detach() + self.module.second(torch.relu(self.module.first(x))) * 0
            case "structure":
                return [result]
            case "strides":
                return result.t().contiguous().t()
            case "dtype":
                return result.double()
            case "random state":
                torch.rand(1)
            case "input":
                x.data.add_(1)
        return result


@pytest.mark.parametrize(
    ("wrong", "kind"),
    [("result", "result"), ("nan", "result"), ("gradient", "gradient"), ("missing gradient", "gradient"), ("structure", "result"),
     ("strides", "result"), ("dtype", "result"), ("random state", "random"), ("input", "result")],
)  # fmt: skip
def test_what_differs_is_named(wrong: str, kind: str) -> None:
    found = rekindle.verify(Tampered(mlp(), wrong), rows())
    assert not found
    assert kind in {row.kind for row in found.differences}
    assert "DIFFERS" in str(found)


def test_only_wrapped_modules_are_verified() -> None:
    with pytest.raises(TypeError, match="not a Mlp"):
        rekindle.verify(mlp(), rows())  # type: ignore[arg-type]
