"""Graphs that a helper of one rank makes for a whole job: who makes it, who waits, and when all go over to it."""

from __future__ import annotations

import pathlib
from typing import Any

import pytest
from rank_support import run_job

# Each rank trains for as long as some rank runs in eager, and two steps more; its cache directory is its own.
_JOB = """
import json, os, pathlib, signal, sys, time
import module_support
import torch, rekindle
import torch.distributed as dist
from rekindle.lookup.background import Background
from rekindle.lookup.source import GraphSource
from torch import nn
from torch.nn.parallel import DistributedDataParallel

rank = int(os.environ["RANK"])
directory, what = pathlib.Path(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo")
os.environ["SCALE"] = "2" if what == "per rank" and rank == 1 else "3"

make = GraphSource._make_beside
def begun(*given):
    while not (directory / "go on").exists():
        time.sleep(0.01)
    return make(*given)
GraphSource._make_beside = begun

class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.GELU(), nn.Linear(4, 4))
    def forward(self, x):
        return self.linear(x) * float(os.environ["SCALE"])

class Printing(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder, self.decoder = Scaled(), Scaled()
    def forward(self, x):
        hidden = self.encoder(x)
        print(f"mean {hidden.mean().item():.3f}")
        return self.decoder(hidden)

def trained(wrap, until):
    torch.manual_seed(0)
    inner = wrap(Printing() if what == "parts" else Scaled())
    model = DistributedDataParallel(inner)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    for step in range(3000):
        x = torch.randn(3 + rank if what == "killed" else 3, 4, generator=torch.Generator().manual_seed(step))
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if until(step, inner):
            return losses
    raise AssertionError(rekindle.status(inner))

sources = []
def gone_over(step, model):
    status = rekindle.status(model)
    sources.append([part.source for part in status.parts] if status.parts else status.source)
    helper = Background._at_work
    if step == 3 and helper is not None:
        if what == "killed":
            os.kill(helper.number, signal.SIGKILL)
        (directory / "go on").touch()
    time.sleep(0.01)
    waits = torch.tensor([float("eager" in sources[-1][-2:] or sources[-1] == "eager" or (what == "parts") > len(status.parts))])
    dist.all_reduce(waits)
    return waits.item() == 0 and step > 8

options = {"cache_dir": directory / f"cache{rank}", "log": "off"}
options["start"] = "wait" if what == "one waits" and rank == 1 else "background"
wrapped = []
def wrap(module):
    wrapped.append(rekindle.Module(module, rekindle.Options(**options)))
    return wrapped[0]
losses = trained(wrap, gone_over)
expected = trained(lambda module: module, lambda step, _: step + 1 == len(losses))
status = rekindle.status(wrapped[0])
print(json.dumps({
    "sources": sources, "losses": losses, "expected": expected, "exports": status.exports, "eager": status.eager_calls,
    "entries": (rekindle.lookup.store.flush(), len(rekindle.cache.ls(options["cache_dir"])))[1],
}))
dist.barrier()
dist.destroy_process_group()
"""


def _run(directory: pathlib.Path, what: str) -> list[dict[str, Any]]:
    """Runs the job, and compares its losses with eager's: the same bits until the first graph runs."""
    found = run_job(_JOB, 3, str(directory), what)
    switch = min(next(i for i, source in enumerate(rank["sources"]) if source != "eager") for rank in found)
    for rank in found:
        assert rank["losses"][:switch] == rank["expected"][:switch]
        assert rank["losses"] == pytest.approx(rank["expected"], rel=1e-4)
    return found


def _switches(found: list[dict[str, Any]]) -> list[int]:
    return [sum(source == "eager" for source in rank["sources"]) for rank in found]


def test_all_ranks_go_over_at_one_step_though_a_helper_is_killed(tmp_path: pathlib.Path) -> None:
    found = _run(tmp_path, "killed")
    assert len(set(_switches(found))) == 1
    assert _switches(found)[0] > 3
    assert sorted(rank["sources"][-1] for rank in found) == ["background", "remote", "remote"]
    assert sum(rank["exports"] for rank in found) == 1
    assert [rank["entries"] for rank in found] == [1, 1, 1]


def test_parts_of_what_has_no_graph_follow_at_one_step(tmp_path: pathlib.Path) -> None:
    found = _run(tmp_path, "parts")
    assert len({str([[source == "eager" for source in step] for step in rank["sources"]]) for rank in found}) == 1
    assert sum(rank["exports"] for rank in found) <= 2


def test_a_rank_for_which_the_graph_is_wrong_makes_its_own(tmp_path: pathlib.Path) -> None:
    found = _run(tmp_path, "per rank")
    assert found[1]["exports"] == 1
    assert sum(rank["exports"] for rank in found) in (2, 3)  # three where that rank was the first to ask


def test_a_rank_that_does_not_train_in_the_background_waits_for_nobody(tmp_path: pathlib.Path) -> None:
    found = _run(tmp_path, "one waits")
    assert found[1]["sources"][0] in ("export", "remote")
    assert found[1]["eager"] == 0
