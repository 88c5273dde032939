"""Attention on an accelerator does without a mask that follows from sizes and shows everything, or all that came before."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from device_twins import Made, Twins
from torch.nn import functional as F


def attended(mask_of: Callable[[torch.Tensor], torch.Tensor]) -> Made:
    """A module that attends from [batch, 4] as [1, 2 heads, batch, 2] under a mask."""

    def forward(self: Made, x: torch.Tensor) -> torch.Tensor:
        heads = lambda y: y.view(1, -1, 2, 2).transpose(1, 2)  # noqa: E731
        return F.scaled_dot_product_attention(heads(self.a(x)), heads(x), heads(x * 2), mask_of(x))

    return Made(forward)


def places(x: torch.Tensor) -> torch.Tensor:
    """The place of each row."""
    return torch.arange(x.shape[0], device=x.device)


def causal(x: torch.Tensor) -> torch.Tensor:
    """[batch, batch]: each row sees those up to it."""
    return places(x)[:, None] >= places(x)


LEFT_OUT: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "causal": causal,
    "causal, of each head": lambda x: causal(x).expand(1, 2, -1, -1),
    "causal, by tril": lambda x: torch.ones(x.shape[0], x.shape[0], dtype=torch.bool, device=x.device).tril(),
    "everything": lambda x: torch.ones(1, 1, 1, x.shape[0], dtype=torch.bool, device=x.device),
}
KEPT: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "a window": lambda x: causal(x) & (places(x)[:, None] - places(x) < 2),
    "of data": lambda x: (x[:, 0] > -9)[None, :],
    "causal and of data": lambda x: (
        causal(x) & ((x[:, 0] > 0)[None, :] | torch.eye(x.shape[0], dtype=torch.bool, device=x.device))
    ),
    "added": lambda x: torch.zeros(x.shape[0], x.shape[0], device=x.device).masked_fill(~causal(x), float("-inf")),
}


@pytest.mark.parametrize("name", {**LEFT_OUT, **KEPT})
def test_a_mask_is_left_out_where_it_may_be(name: str) -> None:
    twins = Twins(attended({**LEFT_OUT, **KEPT}[name]))
    for rows in (4, 4, 6):
        twins.call(torch.randn(rows, 4, device="test:0"))
    assert twins.status.eager_calls == 0, twins.status.bypass
    (graph, *_) = twins.wrapped._runtime._kinds.graphs()
    (attention,) = [line for line in graph.session.describe_plan().splitlines() if "= aten.scaled_dot_product" in line]
    assert attention.endswith(" _") == (name in LEFT_OUT), attention


def test_one_row_sees_itself() -> None:
    """At one size a mask is another than at the next: a graph is for both."""
    twins = Twins(attended(causal))
    for rows in (3, 1, 5, 1):
        twins.call(torch.randn(rows, 4, device="test:0"))
    assert twins.status.eager_calls == 0, twins.status.bypass
