"""Runs one training step in a process of its own and prints what rekindle.memory had said and by how much the process grew.

memory_growth.py MODEL      the second run of a model in one cache directory measures: the first one exports
"""

from __future__ import annotations

import gc
import json
import pathlib
import sys

import rekindle
import torch
from rekindle import _native
from torch import nn


class Loss(nn.Module):
    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.body(x).square().mean()


def perceptron() -> tuple[nn.Module, torch.Tensor]:
    layers = [layer for _ in range(6) for layer in (nn.Linear(256, 256), nn.GELU(), nn.LayerNorm(256))]
    return Loss(nn.Sequential(*layers)), torch.randn(16384, 256)


def transformer() -> tuple[nn.Module, torch.Tensor]:
    layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True)
    return Loss(nn.TransformerEncoder(layer, 3)), torch.randn(16, 256, 256)


def resident(field: str) -> int:
    """Returns a line of /proc/self/status in bytes: VmRSS is now, VmHWM the peak."""
    lines = pathlib.Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{field}:"))


def main() -> None:
    torch.set_num_threads(1)
    made, x = {"perceptron": perceptron, "transformer": transformer}[sys.argv[1]]()
    model = rekindle.Module(made, rekindle.Options(fallback="error", log="error"))
    account = rekindle.memory(model, x)
    for _ in range(2):  # what the libraries allocate once
        model(x[:2]).backward()
        model.zero_grad()
    _native.release_idle_arenas()
    gc.collect()
    pathlib.Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
    before = resident("VmRSS")
    model(x).backward()
    grown = resident("VmHWM") - before
    arena = _native.release_idle_arenas()
    print(json.dumps({"growth": account.growth, "grown": grown, "arena": account.arena, "taken": arena}))


if __name__ == "__main__":
    main()
