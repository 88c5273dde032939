"""Blocks whose parameters a tool gathers, as DeepSpeed's ZeRO 3 does: what the tool sets on them is no part of the key.

The tool here has the names of DeepSpeed's classes and does what these do, on one rank.
"""

from __future__ import annotations

import sys
import types
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

import pytest
import rekindle
import torch
from torch import nn


class LinearFunctionForZeroStage3(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(input: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        output = input.matmul(weight.t())
        return output if bias is None else output + bias

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> Any:
        input, weight, _ = ctx.saved_tensors
        flat = gradients[0].reshape(-1, weight.shape[0])
        return gradients[0].matmul(weight), flat.t().matmul(input.reshape(-1, weight.shape[1])), flat.sum(0)


class ZeROOrderedDict(OrderedDict):
    def __getitem__(self, key: str) -> Any:
        STACK.append(self)  # which leads to all modules and the optimizer
        return super().__getitem__(key)


STACK: list[Any] = []


class _Optimizer:
    """Has no digest: it leads to tensors that require gradients."""

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self.params = dict.fromkeys(parameters, 1.0)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(4, 8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(x)))


class ReadsStatus(Block):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * self.up.weight.ds_status


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for module, found in (("linear", LinearFunctionForZeroStage3), ("parameter_offload", ZeROOrderedDict)):
        name = f"deepspeed.runtime.zero.{module}"
        monkeypatch.setattr(found, "__module__", name)
        made = types.ModuleType(name)
        setattr(made, found.__name__, found)
        monkeypatch.setitem(sys.modules, name, made)
    monkeypatch.setattr(nn.functional, "linear", lambda *given: LinearFunctionForZeroStage3.apply(*given))
    yield
    STACK.clear()


def _gathered(block: nn.Module) -> nn.Module:
    optimizer = _Optimizer([*block.parameters()])
    for number, parameter in enumerate(block.parameters()):
        parameter.ds_id, parameter.ds_status, parameter.ds_optimizer = number, 1, optimizer  # type: ignore[attr-defined]
        parameter.item = lambda item=parameter.item: item()  # type: ignore[method-assign]
    for module in block.modules():
        table = ZeROOrderedDict(module._parameters)
        module._parameters = table
    return block


def test_a_block_whose_parameters_are_gathered_runs_from_one_graph(tool: None) -> None:
    torch.manual_seed(0)
    plain, x = Block(), torch.randn(3, 4)
    block = _gathered(Block())
    block.load_state_dict(plain.state_dict())
    model = rekindle.Module(block, rekindle.Options(log="error", cache="off"))
    for step in range(3):
        for parameter in block.parameters():
            parameter.ds_status = step  # type: ignore[attr-defined]
        expected, found = plain(x), model(x)
        torch.testing.assert_close(found, expected)
        expected.sum().backward()
        found.sum().backward()
    for mine, theirs in zip(block.parameters(), plain.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad)
    status = rekindle.status(model)
    assert (status.exports, status.eager_calls) == (1, 0), status.bypass


def test_what_the_forward_reads_of_it_is_a_part_of_the_key(tool: None) -> None:
    torch.manual_seed(0)
    block, x = _gathered(ReadsStatus()), torch.randn(3, 4)
    for parameter in block.parameters():
        del parameter.ds_optimizer, parameter.item  # type: ignore[attr-defined]
    model = rekindle.Module(block, rekindle.Options(log="error", cache="off"))
    for status in (1, 2, 3):
        block.up.weight.ds_status = status  # type: ignore[union-attr]
        torch.testing.assert_close(model(x), block(x))
