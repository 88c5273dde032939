"""An attention Function as flash-attn has it: called back with random numbers that its backward replays, or exported whole."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Iterator
from typing import Any

import onnx
import pytest
import rekindle
import torch
from module_support import assert_same
from torch import nn
from torch.autograd import Function
from torch.nn import functional as F


@contextlib.contextmanager
def _drawing_from(state: torch.Tensor) -> Iterator[None]:
    now = torch.get_rng_state()
    torch.set_rng_state(state)
    try:
        yield
    finally:
        torch.set_rng_state(now)


class FlashAttention(Function):
    """q, k, v [batch, length, heads, width] -> (out, softmax_lse [batch, heads, length], rng_state).

    Keeps no weights: the backward computes them again, and draws the same dropout from the state that the forward returned.
    """

    @staticmethod
    def forward(ctx: Any, q: Any, k: Any, v: Any, dropout: float, scale: float, causal: bool) -> Any:
        rng_state = torch.get_rng_state()
        scores = FlashAttention.scores(q, k, scale, causal)
        lse = scores.logsumexp(-1)
        weights = F.dropout((scores - lse[..., None]).exp(), dropout, dropout > 0)
        ctx.save_for_backward(q, k, v, lse, rng_state)
        ctx.dropout, ctx.scale, ctx.causal = dropout, scale, causal
        ctx.mark_non_differentiable(lse, rng_state)
        return torch.einsum("bhqk,bkhd->bqhd", weights, v), lse, rng_state

    @staticmethod
    def scores(q: Any, k: Any, scale: float, causal: bool) -> torch.Tensor:
        scores = torch.einsum("bqhd,bkhd->bhqk", q, k) * scale
        ahead = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        return scores.masked_fill(ahead, -torch.inf) if causal else scores

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor, *_: Any) -> Any:
        q, k, v, lse, rng_state = ctx.saved_tensors
        weights = (FlashAttention.scores(q, k, ctx.scale, ctx.causal) - lse[..., None]).exp()
        with _drawing_from(rng_state):
            kept = F.dropout(torch.ones_like(weights), ctx.dropout, ctx.dropout > 0)
        dv = torch.einsum("bhqk,bqhd->bkhd", weights * kept, gradient)
        dweights = torch.einsum("bqhd,bkhd->bhqk", gradient, v) * kept
        dscores = weights * (dweights - (weights * dweights).sum(-1, keepdim=True)) * ctx.scale
        return (
            torch.einsum("bhqk,bkhd->bqhd", dscores, k),
            torch.einsum("bhqk,bqhd->bkhd", dscores, q),
            dv,
            None,
            None,
            None,
        )


def as_attention(q: Any, k: Any, v: Any, dropout: float, scale: float, causal: bool) -> Any:
    """The export: one attention node. Dropout stays with the Function, whose random numbers are its own."""
    if dropout > 0:
        return NotImplemented
    heads_first = (x.transpose(1, 2) for x in (q, k, v))
    out = F.scaled_dot_product_attention(*heads_first, is_causal=causal, scale=scale).transpose(1, 2)
    with torch.no_grad():  # for who reads them; otherwise they are no part of the graph
        lse = FlashAttention.scores(q, k, scale, causal).logsumexp(-1)
    return out, lse, torch.empty(0, dtype=torch.uint8)  # nothing is drawn: nothing to replay


class Attends(nn.Module):
    def __init__(self, dropout: float) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.project, self.out, self.dropout = nn.Linear(16, 48), nn.Linear(16, 16), dropout

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.project(x).view(*x.shape[:2], 3, 4, 4).unbind(2)
        attended, _, _ = FlashAttention.apply(q, k, v, self.dropout, 0.5, True)
        return self.out(F.dropout(attended.reshape(x.shape), self.dropout, self.training)) + x


@pytest.fixture
def exported() -> Iterator[None]:
    rekindle.register_python_op(FlashAttention, export=as_attention)
    yield
    rekindle.register_python_op(FlashAttention)


def _step(model: Any, module: nn.Module, length: int) -> list[torch.Tensor | None]:
    torch.manual_seed(length)
    module.zero_grad()
    x = torch.randn(2, length, 16).requires_grad_()
    result = model(x)
    result.square().mean().backward()
    return [
        result.detach(),
        x.grad,
        *(parameter.grad for parameter in module.parameters()),
        torch.get_rng_state(),
    ]


def _ops(dropout: float) -> list[str]:
    """Trains cold and warm, compared with eager; the ops of the warm graph."""
    module = Attends(dropout)
    found: list[str] = []

    def look(mode: str, graph: bytes) -> None:
        found[:] = [node.op_type for node in onnx.load_model_from_string(graph).graph.node]

    for source in ("export", "local"):
        own = copy.deepcopy(module)
        model = rekindle.Module(own, rekindle.Options(fallback="error", log="error"))
        model._runtime.on_graph = look
        for length in (6, 6, 6):
            assert_same(_step(model, own, length), _step(module, module, length))
        assert rekindle.status(model).source == source
        rekindle.lookup.store.flush()
    return found


@pytest.mark.parametrize("dropout", [0.0, 0.25])
def test_called_back_it_replays_its_random_numbers(dropout: float) -> None:
    ops = _ops(dropout)
    assert ops.count("rekindle.call_host.default") == 1
    assert "ScaledDotProductAttention" not in ops


def test_exported_it_is_one_attention_node(exported: None) -> None:
    ops = _ops(0.0)
    assert ops.count("ScaledDotProductAttention") == 1
    assert "rekindle.call_host.default" not in ops
    assert "ReduceLogSumExp" not in ops


def test_what_an_export_does_not_cover_is_called_back(exported: None) -> None:
    ops = _ops(0.25)
    assert ops.count("rekindle.call_host.default") == 1
    assert "ScaledDotProductAttention" not in ops
