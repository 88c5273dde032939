"""Ranks whose forked processes call wrapped modules: workers of a DataLoader, and children that a forward's process forks."""

from __future__ import annotations

import pathlib

import pytest
from rank_support import run_job

# Each rank has a cache directory of its own, and so have its workers, so that all of them ask for entries.
_JOB = """
import faulthandler, json, os, sys
import module_support
import torch, rekindle
import torch.distributed as dist
from rekindle.lookup import ranks
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset

faulthandler.dump_traceback_later(100, exit=True)
rank, start = int(os.environ["RANK"]), sys.argv[2]
dist.init_process_group("gloo")
cache_dir = os.path.join(sys.argv[1], f"rank{rank}")

def wrap(module):
    return rekindle.Module(module, rekindle.Options(cache_dir=cache_dir, log="off", start=start))

class Features(Dataset):
    def __init__(self, modules):
        self.modules = modules
    def __len__(self):
        return 24
    def __getitem__(self, index):
        with torch.no_grad():
            return self.modules[index % len(self.modules)](torch.full((1, 4), index / 24))[0]

def trained(wrap):
    torch.manual_seed(0)
    net = wrap(nn.Sequential(nn.Linear(6, 8), nn.ReLU(), nn.Linear(8, 3)))
    model = DistributedDataParallel(net)
    features = [wrap(nn.Sequential(nn.Linear(4, 6), *[nn.Tanh()] * i)) for i in range(3)]
    features[0](torch.ones(1, 4))  # which the workers inherit, with what the ranks agree on
    model(torch.ones(4, 6)).sum().backward()
    losses = []
    for x in DataLoader(Features(features), 4, num_workers=2, multiprocessing_context="fork"):
        loss = model(x).square().mean()
        loss.backward()
        with torch.no_grad():
            losses += [loss.item(), net(x[:1]).sum().item()]
    return losses

found = {"losses": trained(wrap), "expected": trained(lambda module: module)}
read, written = os.pipe()
if (child := os.fork()) == 0:
    os.write(written, str(ranks.share("forked")).encode())
    os._exit(0)
os.waitpid(child, 0)
found["of a child"] = os.read(read, 100).decode()
found["leads"] = ranks.share("forked").leads
dist.barrier()
print(json.dumps(found))
dist.destroy_process_group()
"""


@pytest.mark.parametrize("start", ["wait", "background"])
def test_forked_processes_leave_the_ranks_alone(start: str, tmp_path: pathlib.Path) -> None:
    found = run_job(_JOB, 2, str(tmp_path), start)
    for rank in found:
        assert rank["losses"] == pytest.approx(rank["expected"], rel=1e-4)
        assert rank["of a child"] == "None"
    # Those who ask are the ranks only.
    assert sorted(rank["leads"] for rank in found) == [False, True]
