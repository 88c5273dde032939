"""Models of the main script in processes that multiprocessing has spawned, as DDP's tutorials have them."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys
from typing import Any

_PROGRAM = """
import json
import rekindle, torch
import torch.multiprocessing as mp
from torch import nn

SCALE = 2.0

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x):
        return scaled(self.linear(x))

def scaled(x):
    return x * SCALE

def set_scale(value):
    global SCALE
    SCALE = value

def work(rank, queue):
    net = Net()
    model = rekindle.Module(net)
    x, found = torch.ones(2, 3), []
    for scale in (2.0, 3.0, 2.0):
        set_scale(scale)
        right = torch.allclose(model(x), net.linear(x) * scale)
        found.append([rekindle.status(model).source, right])
    queue.put([found, rekindle.status(model).bypass])

if __name__ == "__main__":
    queue = mp.get_context("spawn").SimpleQueue()
    mp.spawn(work, (queue,), nprocs=1)
    print(json.dumps(queue.get()))
"""


def _run(directory: pathlib.Path) -> Any:
    (directory / "program.py").write_text(_PROGRAM)
    done = subprocess.run([sys.executable, "program.py"], cwd=directory, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_model_of_a_spawned_main_script_runs_from_a_graph_and_its_globals_are_followed(tmp_path: pathlib.Path) -> None:
    assert _run(tmp_path) == [[["export", True]] * 3, []]
    assert _run(tmp_path) == [[["local", True]] * 3, []]
