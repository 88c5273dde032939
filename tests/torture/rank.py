"""Trains a small model as one rank of a job, in eager and then through Rekindle; prints what came out as one JSON object.

    RANK=0 WORLD_SIZE=4 PORT=29500 python rank.py DIRECTORY CACHE '{"rate": 3.0, "rows": 5, "late": 2, "bytes": 4096}' 4

DIRECTORY is that of the job. The model is split over the ranks: its autograd Functions sum over them, forward and backward. The
JSON object says what is another one in this rank: a number in the model's code, the rows of its inputs, the seconds after which
it comes, the size that its files may have. The last word is how many steps the job takes.
"""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import resource
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import rekindle
import torch
import torch.distributed as dist
from rekindle.lookup.background import Background
from torch import nn

SECONDS = 40  # for which a collective waits for the others
_MODEL = """
import os
import torch
import torch.distributed as dist
from torch import nn

class Summed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, tag):
        ctx.tag = tag
        total = x * tag
        dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx, gradient):
        total = gradient * ctx.tag
        dist.all_reduce(total)
        return total, None

class Split(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.drop = nn.Linear(4, 4), nn.Linear(4, 4), nn.Dropout(0.1)

    def forward(self, x):
        mean = Summed.apply(x.mean(0), 1.0)
        one, other = Summed.apply(self.first(mean).sin(), 2.0), Summed.apply(self.second(mean), RATE)
        return self.drop(x) * other * one.tanh() * float(os.environ.get("SCALE", "0.5"))
"""


def _model_of(directory: pathlib.Path, rank: str, rate: float) -> Callable[[], nn.Module]:
    """Returns what makes a model whose code is a file of this rank's own."""
    path = directory / f"rank{rank}" / "model.py"
    path.parent.mkdir(exist_ok=True)
    path.write_text(_MODEL.replace("RATE", str(rate)))
    spec = importlib.util.spec_from_file_location("split_model", path)
    assert spec is not None and spec.loader is not None
    module = sys.modules["split_model"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)

    def make() -> nn.Module:
        torch.manual_seed(0)
        return module.Split()

    return make


def _trained(model: nn.Module, rows: int, rank: int, steps: int) -> list[torch.Tensor]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    torch.manual_seed(1 + rank)
    found = []
    for _ in range(steps):
        loss = (model(torch.randn(rows, 4)) - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.detach())
        time.sleep(0.01 if steps > 10 else 0.0)  # a helper has the lowest priority
    return found + [parameter.detach().clone() for parameter in model.parameters()]


def main(directory: pathlib.Path, cache: str, other: dict[str, Any], steps: int) -> None:
    """Trains, and prints whether losses and parameters are eager's, and how the calls ran."""
    torch.set_num_threads(1)
    rank, world = os.environ["RANK"], int(os.environ["WORLD_SIZE"])
    place = f"tcp://127.0.0.1:{os.environ['PORT']}"
    dist.init_process_group("gloo", init_method=place, rank=int(rank), world_size=world, timeout=timedelta(seconds=SECONDS))
    rate, rows = other.get("rate", 3.0), other.get("rows", 5)
    make = _model_of(directory, rank, rate)
    expected = _trained(make(), rows, int(rank), steps)
    (directory / f"begun{rank}").touch()
    time.sleep(other.get("late", 0))
    if "bytes" in other:
        resource.setrlimit(resource.RLIMIT_FSIZE, (other["bytes"], other["bytes"]))
    model = rekindle.Module(make(), rekindle.Options(cache_dir=cache, log="warning"))
    found = _trained(model, rows, int(rank), steps)
    apart = max(float((a - b).abs().max() / b.abs().max().clamp(min=1e-6)) for a, b in zip(found, expected, strict=True))
    status = rekindle.status(model)
    print(
        json.dumps({"apart": apart, "source": status.source, "eager": status.eager_calls, "exports": status.exports}), flush=True
    )
    rekindle.lookup.store.flush()
    while (helper := Background._at_work) is not None and helper.check():
        time.sleep(0.01)
    dist.barrier()
    os._exit(0)  # threads of gloo's may outlive their group, which ends a process by abort


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]), int(sys.argv[4]))
