"""A small transformer whose training is recorded, and `rekindle diff` over two such runs."""

from __future__ import annotations

import json
import pathlib
import subprocess
from collections.abc import Callable
from typing import Any

import rekindle
import torch
from rekindle import _native
from rekindle.statistics import StatisticsSubscriber, inspect_activation, subscribe
from torch import nn
from torch.nn import functional as F

WIDTH = 32


class Attention(nn.Module):
    """Mixes the positions of [batch, length, WIDTH]; the gradient of the keys' bias is zero but for rounding."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs, self.output = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (part.unflatten(-1, (4, -1)).transpose(1, 2) for part in self.inputs(x).chunk(3, -1))
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.output(inspect_activation("mixed", mixed).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.attention, self.dropout = nn.LayerNorm(WIDTH), Attention(), nn.Dropout(0.2)
        self.mlp = nn.Sequential(nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 64), nn.ReLU(), nn.Linear(64, WIDTH))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.dropout(self.attention(self.norm(x)))
        return x + self.mlp(x)


class Gain(nn.Module):
    """Scales by a factor that somebody sets."""

    def __init__(self) -> None:
        super().__init__()
        self.by = 1.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.by


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, WIDTH)
        self.blocks = nn.Sequential(Block(), Block(), Block())
        self.gain, self.head = Gain(), nn.Linear(WIDTH, 50)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        logits = self.head(self.gain(self.blocks(self.embedding(tokens))))
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


class Training:
    """One run: what the tests change of it are its attributes and what `before` and `each_step` do.

    before: is given the module once it has its weights
    each_step: is given this object and the step's number, before the step
    """

    def __init__(self, directory: pathlib.Path, before: Callable[[Any], None] | None = None, **options: Any) -> None:
        torch.manual_seed(0)
        self.net: Any = Net().to(options.get("dtype", torch.float32))
        if before is not None:
            before(self.net)
        self.model = rekindle.Module(self.net) if options.get("wrapped") else self.net
        self.rate, self.seed = options.get("rate", 1e-3), 1000
        self._each_step = options.get("each_step", lambda training, step: None)
        self._directory, self._steps = directory, options.get("steps", 4)

    def run(self) -> pathlib.Path:
        """Trains, and returns where the statistics are."""
        optimizer = torch.optim.AdamW(self.net.parameters(), lr=self.rate)
        with subscribe(self.model, StatisticsSubscriber(self._directory, text_files=False)):
            for step in range(self._steps):
                self._each_step(self, step)
                torch.manual_seed(step)
                tokens = torch.randint(0, 50, (4, 16))
                torch.manual_seed(self.seed + step)
                optimizer.zero_grad()
                self.model(tokens).backward()
                optimizer.step()
        return self._directory


def diff(*words: Any) -> tuple[int, Any]:
    """Returns the exit status and the object that the command prints."""
    program = pathlib.Path(_native.__file__).resolve().parents[1] / "cli" / "rekindle"
    done = subprocess.run([program, "diff", *map(str, words), "--json"], capture_output=True, text=True, check=False)
    return done.returncode, json.loads(done.stdout)


def first(*words: Any) -> tuple[int, str, str]:
    """Returns step, phase and name of the first difference."""
    status, report = diff(*words)
    assert status == 1
    found = report["first"]
    return found["step"], found["phase"], found["name"]
