"""scripts/conformance models: what it tells apart."""

from __future__ import annotations

import pathlib
import random
import sys

import rekindle
import torch
from torch import nn

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "scripts"))

import conformance_models
from model_zoo import MODELS, Model


class Small(nn.Linear):
    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return super().forward(x)


class Noisy(Small):
    def forward(self, x: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return super().forward(x) * random.random()


def _model(make: type[Small], package: str = "torch") -> Model:
    return Model("small", package, lambda dropout: make(4, 3), lambda rows: {"x": torch.randn(rows, 4)}, [(2,), (3,), (5,)])


def test_rows_tell_where_a_model_ran() -> None:
    options = rekindle.Options()
    assert conformance_models.try_model(_model(Small), options).is_open
    eager = conformance_models.try_model(_model(Noisy), options)
    assert (eager.place, eager.is_open) == ("eager", False)
    assert "nondeterministic" in eager.text()
    assert conformance_models.try_model(_model(Small, "no_such_package"), options).place == "absent"


def test_what_differs_is_wrong(monkeypatch) -> None:
    def other(self: Small, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.weight) + 2 * self.bias

    run = conformance_models.step
    found = []

    def with_another_forward(called, module, *rest):
        if called is not module:  # the wrapped one
            monkeypatch.setattr(Small, "forward", other)
        found.append(run(called, module, *rest))
        monkeypatch.undo()
        return found[-1]

    conformance_models.step, before = with_another_forward, conformance_models.step
    try:
        row = conformance_models.try_model(_model(Small), rekindle.Options())
    finally:
        conformance_models.step = before
    assert row.place == "wrong"
    assert "output 0" in row.runs[0].reason


def test_a_model_of_the_table_has_one_export() -> None:
    row = conformance_models.try_model(next(model for model in MODELS if model.name == "autoencoder"), rekindle.Options())
    assert row.is_open, row.text()
