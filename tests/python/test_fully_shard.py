"""FSDP2: blocks that are wrapped first and sharded then run from graphs, as fully_shard gathers their parameters around them."""

from __future__ import annotations

import os
import pathlib

import pytest
import rekindle
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.multiprocessing.spawn import spawn

_RANKS, _STEPS = 2, 4


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(16), nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


def _trained(wrapped: bool, rank: int, reshard: bool) -> tuple[list[float], list[torch.Tensor], list[rekindle.Status]]:
    """Returns losses, parameters after the last step, and how the blocks ran."""
    torch.manual_seed(0)
    model = nn.Sequential(Block(), Block(), nn.Linear(16, 4))
    mesh = init_device_mesh("cpu", (_RANKS,))
    if wrapped:
        model[0], model[1] = rekindle.Module(model[0]), rekindle.Module(model[1])
    for block in (model[0], model[1]):
        fully_shard(block, mesh=mesh, reshard_after_forward=reshard)
    fully_shard(model, mesh=mesh)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(_STEPS):
        x = torch.randn(8, 16, generator=torch.Generator().manual_seed(10 * step + rank))
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    found = [rekindle.status(model[i]) for i in (0, 1)] if wrapped else []
    return losses, [parameter.full_tensor().detach() for parameter in model.parameters()], found  # type: ignore[attr-defined]


def _run(rank: int, directory: str, reshard: bool, warm: bool) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{directory}/{warm}", rank=rank, world_size=_RANKS)
    expected, parameters, _ = _trained(False, rank, reshard)
    losses, own, found = _trained(True, rank, reshard)
    torch.testing.assert_close(losses, expected)
    torch.testing.assert_close(own, parameters)
    assert [status.eager_calls for status in found] == [0, 0]
    assert not warm or [status.exports for status in found] == [0, 0]
    rekindle.lookup.store.flush()
    dist.destroy_process_group()
    os._exit(0)  # threads of gloo's may outlive their group, which ends a process by abort


@pytest.mark.parametrize("reshard", [True, False])
def test_sharded_blocks_train_as_in_eager_from_graphs(cache_dir: str, tmp_path: pathlib.Path, reshard: bool) -> None:
    for warm in (False, True):
        spawn(_run, (str(tmp_path), reshard, warm), nprocs=_RANKS)
