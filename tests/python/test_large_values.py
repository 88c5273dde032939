"""Large tensors that a module holds as plain values, as tables of rotary embeddings, are inputs of its graphs, as buffers are."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import rekindle
import torch
from torch import nn

Forward = Callable[["Tables", torch.Tensor], torch.Tensor]


class Tables(nn.Module):
    """Holds three tables of more than 1 MiB each."""

    def __init__(self, compute: Forward) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner, self.compute = nn.Linear(32, 32), compute
        self.mask = torch.tril(torch.ones(600, 600))
        angles = torch.arange(9000.0)[:, None] * torch.arange(16)[None] * 0.01
        self.rotations = torch.polar(torch.ones(9000, 16), angles)
        self.seen = torch.zeros(600, 600)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.compute(self, self.inner(x))


def masked(tables: Tables, y: torch.Tensor) -> torch.Tensor:
    return tables.mask[: y.shape[1], : y.shape[1]] @ y


def rotated(tables: Tables, y: torch.Tensor) -> torch.Tensor:
    pairs = torch.view_as_complex(y.reshape(y.shape[0], y.shape[1], 16, 2))
    return torch.view_as_real(pairs * tables.rotations[: y.shape[1]]).flatten(2)


def rotated_and_masked(tables: Tables, y: torch.Tensor) -> torch.Tensor:
    parts = torch.view_as_real(tables.rotations[: y.shape[1]])[..., 0].repeat(1, 2)
    return tables.mask[: y.shape[1], : y.shape[1]] @ (y * parts)


def kept(tables: Tables, y: torch.Tensor) -> torch.Tensor:
    tables.seen[: y.shape[0], : y.shape[1]] = y.detach().sum(-1)
    return y * tables.seen.sum()


FORWARDS = [masked, rotated, rotated_and_masked, kept]


def _step(module: nn.Module, called: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> list[torch.Tensor]:
    module.zero_grad()
    result = called(x)
    result.square().mean().backward()
    return [result, *(parameter.grad.clone() for parameter in module.parameters())]  # type: ignore[union-attr]


@pytest.mark.parametrize("compute", FORWARDS, ids=lambda compute: compute.__name__)
def test_graphs_follow_large_tables(cache_dir: str, compute: Forward) -> None:
    module, other = Tables(compute), Tables(compute)
    wrapped = rekindle.Module(module)
    for step in range(6):
        x = torch.randn(2, 5 + step % 3, 32, generator=torch.Generator().manual_seed(step))
        for found, expected in zip(_step(module, wrapped, x), _step(other, other.forward, x), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(module.seen, other.seen)
        for one in (module, other):
            one.mask.mul_(0.5)
            if step == 3:
                one.mask, one.rotations = one.mask * 4, one.rotations.conj().resolve_conj()
    status = rekindle.status(wrapped)
    assert (status.exports, status.eager_calls) == (1, 0)


def test_another_process_may_have_other_numbers(cache_dir: str) -> None:
    for exports, factor in ((1, 1.0), (0, 3.0)):
        module = Tables(masked)
        module.mask *= factor
        wrapped = rekindle.Module(module)
        x = torch.randn(2, 5, 32)
        torch.testing.assert_close(wrapped(x), module.forward(x))
        assert rekindle.status(wrapped).exports == exports


def test_a_table_that_shares_memory_with_a_buffer_is_written_by_eager(cache_dir: str) -> None:
    module = Tables(kept)
    module.register_buffer("whole", torch.zeros(1200, 600))
    module.seen = module.whole[:600]  # type: ignore[index,assignment]
    wrapped = rekindle.Module(module)
    x = torch.randn(2, 5, 32)
    expected = module.forward(x)
    module.seen.zero_()
    torch.testing.assert_close(wrapped(x), expected)
    torch.testing.assert_close(module.whole[:2, :5], module.inner(x).detach().sum(-1))  # type: ignore[index]


def test_a_branch_on_a_large_table_stays_in_eager(cache_dir: str) -> None:
    module = Tables(lambda tables, y: y if tables.mask[0, 0] > 0 else -y)
    wrapped = rekindle.Module(module)
    x = torch.randn(2, 5, 32)
    torch.testing.assert_close(wrapped(x), module.forward(x))
    module.mask.neg_()
    torch.testing.assert_close(wrapped(x), module.forward(x))
