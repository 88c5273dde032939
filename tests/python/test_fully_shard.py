"""FSDP2: sharded blocks run from graphs, whether they or the whole is wrapped: fully_shard gathers parameters around them."""

from __future__ import annotations

import os
import pathlib
from typing import Any

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


def _trained(wrapped: str, rank: int, reshard: bool) -> tuple[list[float], list[torch.Tensor], list[Any]]:
    """Returns losses, parameters after the last step, and the source and exports of what is wrapped: "", "blocks" or "whole"."""
    torch.manual_seed(0)
    model = nn.Sequential(Block(), Block(), nn.Linear(16, 4))
    mesh = init_device_mesh("cpu", (_RANKS,))
    if wrapped == "blocks":
        model[0], model[1] = rekindle.Module(model[0]), rekindle.Module(model[1])
    for block in (model[0], model[1]):
        fully_shard(block, mesh=mesh, reshard_after_forward=reshard)
    fully_shard(model, mesh=mesh)
    called = rekindle.Module(model) if wrapped == "whole" else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    for step in range(_STEPS):
        x = torch.randn(8, 16, generator=torch.Generator().manual_seed(10 * step + rank))
        loss = called(x).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    found: list[Any] = []
    if wrapped == "blocks":
        found = [(status.source, status.exports) for status in map(rekindle.status, (model[0], model[1]))]
    elif wrapped == "whole":
        status = rekindle.status(called)
        found = [(part.source, status.exports) for part in status.parts if part.name in ("0", "1")]
    return losses, [parameter.full_tensor().detach() for parameter in model.parameters()], found  # type: ignore[attr-defined]


def _run(rank: int, directory: str, warm: bool) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{directory}/{warm}", rank=rank, world_size=_RANKS)
    for wrapped, reshard in (("blocks", True), ("blocks", False), ("whole", True)):
        expected, parameters, _ = _trained("", rank, reshard)
        losses, own, found = _trained(wrapped, rank, reshard)
        torch.testing.assert_close(losses, expected)
        torch.testing.assert_close(own, parameters)
        assert len(found) == 2, (wrapped, reshard)
        assert all(source not in ("eager", "none") for source, _ in found), (wrapped, reshard, found)
        assert not warm or [exports for _, exports in found] == [0, 0], (wrapped, reshard, found)
    rekindle.lookup.store.flush()
    dist.destroy_process_group()
    os._exit(0)  # threads of gloo's may outlive their group, which ends a process by abort


def test_sharded_blocks_train_as_in_eager_from_graphs(cache_dir: str, tmp_path: pathlib.Path) -> None:
    for warm in (False, True):
        spawn(_run, (str(tmp_path), warm), nprocs=_RANKS)
