"""Ranks of a torch.distributed job: one looks up and exports, the others use what it offers, and nobody hangs."""

from __future__ import annotations

import pathlib

from rank_support import run_job

# Every rank has a cache directory of its own, as on machines that share no disk.
_JOB = """
import json, os, sys, time
import module_support
import torch, rekindle
import torch.distributed as dist
from torch import nn
from module_support import mlp, rows

rank = int(os.environ["RANK"])
dist.init_process_group("gloo")
cache_dir = os.path.join(sys.argv[1], f"rank{rank}")

class Reducing(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
    def forward(self, x):
        y = self.linear(x).detach()
        dist.all_reduce(y)
        return y

class PerRank(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
    def forward(self, x):
        return self.linear(x) * (2.0 if os.environ["RANK"] == "0" else 3.0)

class Scaling(nn.Module):
    def __init__(self, factor):
        super().__init__()
        self.linear, self.factor = nn.Linear(4, 4), factor
    def forward(self, x):
        return self.linear(x) * self.factor

def run(module, **options):
    torch.manual_seed(0)
    wrapped = rekindle.Module(module, rekindle.Options(cache_dir=cache_dir, **options))
    x = rows()
    expected, actual = module(x), wrapped(x)
    assert torch.allclose(actual, expected, atol=1e-6), (actual, expected)
    status = rekindle.status(wrapped)
    return {"source": status.source, "exports": status.exports, "bypass": [code for code, _ in status.bypass]}

found = {}
found["together"] = run(mlp())
rekindle.lookup.store.flush()
found["mine"] = len(rekindle.cache.ls(cache_dir))
dist.barrier()
if rank == 1:
    rekindle.cache.clear(cache_dir)
dist.barrier()
found["one warm"] = run(mlp())
rekindle.lookup.store.flush()
found["filled"] = len(rekindle.cache.ls(cache_dir))
torch.manual_seed(0)
found["collective"] = run(Reducing())
torch.manual_seed(0)
found["per rank"] = run(PerRank())
torch.manual_seed(0)
found["another key"] = run(Scaling(2.0 + rank))
if rank == 0:
    found["alone"] = run(mlp().eval())
dist.barrier()
if rank == 1:
    found["late"] = run(mlp().eval())
dist.barrier()
print(json.dumps(found))
dist.destroy_process_group()
"""


def test_ranks_decide_together(tmp_path: pathlib.Path) -> None:
    found = run_job(_JOB, 2, str(tmp_path))
    # One export between them; the other rank's cache is filled as well.
    assert sorted(one["together"]["source"] for one in found) == ["export", "remote"]
    assert sum(one["together"]["exports"] for one in found) == 1
    assert [one["mine"] for one in found] == [1, 1]
    # Whoever leads, the cold rank gets the warm one's entry.
    assert [one["one warm"]["source"] for one in found] == ["local", "remote"]
    assert found[1]["filled"] == 1
    # A forward whose collectives a graph would leave out runs in eager on all ranks.
    assert [one["collective"]["source"] for one in found] == ["eager", "eager"]
    # What is right on one rank only is not used on the other.
    assert [one["per rank"]["exports"] for one in found] == [1, 1]
    said = "".join(one["said"] for one in found)
    assert "is not right here: environment variable RANK changed: " in said
    # What differs between keys is named, with the rank.
    assert [one["another key"]["exports"] for one in found] == [1, 1]
    assert "__main__.Scaling gets a graph of its own on this rank: rank " in said
    assert "factor" in said
    # A rank that asks alone waits for nobody, and leaves its answer for those who ask later.
    assert found[0]["alone"]["source"] == "export"
    assert found[1]["late"]["source"] == "remote"
