"""Tensors of a module that its forward does not read, and what is set on its parameters: no part of its key."""

from __future__ import annotations

import pytest
import rekindle
import torch
from torch import nn
from unread_attributes_support import Keeper, assert_as_eager, rows


def test_what_is_set_on_a_parameter(cache_dir: str) -> None:
    module = Keeper(lambda _: 1.0)
    module.inner.weight.optimizer = iter(())  # type: ignore[attr-defined]
    wrapped = rekindle.Module(module)
    for step in range(4):
        assert_as_eager(module, wrapped, rows(step))
        module.inner.weight.steps = step  # type: ignore[attr-defined]
    assert rekindle.status(wrapped).eager_calls == 0

    module.read = lambda owner: float(owner.inner.weight.steps)
    for step in range(4):
        module.inner.weight.steps = step  # type: ignore[attr-defined]
        assert_as_eager(module, wrapped, rows(step))


@pytest.mark.parametrize("is_read", [False, True])
def test_a_sparse_buffer_matters_where_it_is_read(cache_dir: str, is_read: bool) -> None:
    module = Keeper(lambda owner: float(owner.heads.to_dense().sum()) if is_read else 1.0)
    module.register_buffer("before", torch.ones(4))
    module.register_buffer("heads", torch.eye(4).to_sparse(), persistent=False)
    module.register_buffer("after", torch.ones(4))
    wrapped = rekindle.Module(module)
    for step in range(3):
        assert_as_eager(module, wrapped, rows(step))
        module.heads = torch.eye(4).to_sparse() * step
    assert rekindle.status(wrapped).eager_calls == 3 * is_read
    for _, message in rekindle.status(wrapped).bypass:
        assert "model.heads is a tensor with layout torch.sparse_coo" in message


@pytest.mark.parametrize("is_read", [False, True])
def test_a_tensor_without_memory_is_not_looked_at(cache_dir: str, is_read: bool) -> None:
    module = Keeper(lambda owner: float(owner.freed.shape[0]) if is_read else 1.0)
    module.freed = torch.ones(4)
    module.freed.untyped_storage().resize_(0)
    wrapped = rekindle.Module(module)
    for step in range(2):
        assert_as_eager(module, wrapped, rows(step))
    assert rekindle.status(wrapped).eager_calls == 2 * is_read


def test_a_parameter_without_memory_is_named(cache_dir: str) -> None:
    module = Keeper(lambda _: 1.0)
    module.gathered = nn.Parameter(torch.ones(4))
    module.gathered.untyped_storage().resize_(0)
    wrapped = rekindle.Module(module)
    assert_as_eager(module, wrapped, rows(0))
    ((_, message),) = rekindle.status(wrapped).bypass
    assert "model.gathered has no memory now" in message
