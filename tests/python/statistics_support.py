"""Models that are subscribed to, the files that come of it, and what NumPy says of the same tensors."""

from __future__ import annotations

import json
import pathlib
from typing import Any

import numpy
import torch
from rekindle.statistics import StatisticsSubscriber, inspect_activation, subscribe
from torch import nn


class Net(nn.Module):
    """Inspects a value between its modules, writes in place, and draws random numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(8, 4))
        self.last = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = inspect_activation("hidden", self.body(x).sigmoid())
        return self.last(hidden).square().mean()


def made(kind: type[nn.Module] = Net, seed: int = 0) -> nn.Module:
    """Returns a module with the weights of a seed."""
    torch.manual_seed(seed)
    return kind()


def train(model: nn.Module, steps: int = 1, width: int = 4) -> list[torch.Tensor]:
    """Returns the losses of some steps on the data of their numbers, with everything that the last one left."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for step in range(steps):
        torch.manual_seed(100 + step)
        optimizer.zero_grad()
        loss = model(torch.randn(6, width))
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    return [*losses, *(p.grad for p in model.parameters() if p.grad is not None), *(b.clone() for b in model.buffers())]


def recorded(model: nn.Module, directory: pathlib.Path, steps: int = 1, **options: Any) -> list[dict[str, Any]]:
    """Trains a module that is subscribed to, and returns the records of its tensors."""
    with subscribe(model, StatisticsSubscriber(directory, **options)):
        train(model, steps)
    return records(directory)


def records(directory: pathlib.Path, kind: str = "tensor", rank: int = 0) -> list[dict[str, Any]]:
    """Returns the records of one kind that a rank has written."""
    lines = (directory / f"rank_{rank}.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


def by_numpy(tensor: torch.Tensor) -> dict[str, Any]:
    """Returns what NumPy says of a tensor, in double precision."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    x = tensor.detach().to(torch.float64).numpy().reshape(-1)
    finite = x[numpy.isfinite(x)]
    some = finite.size > 0
    scale = max(float(abs(finite).max()), 1e-300) if some else 1.0
    return {
        "count": x.size,
        "nans": int(numpy.isnan(x).sum()),
        "infs": int(numpy.isinf(x).sum()),
        "zeros": float((x == 0).mean()) if x.size else 0.0,
        "min": float(finite.min()) if some else None,
        "max": float(finite.max()) if some else None,
        "mean": float((finite / scale).mean() * scale) if some else None,
        "std": float((finite / scale).std() * scale) if some else None,
        "norm": float(numpy.linalg.norm(finite / scale) * scale),
    }
