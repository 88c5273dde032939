"""scripts/conformance models: what it tells apart."""

from __future__ import annotations

import copy
import random

import models
import pytest
import rekindle
import torch
from model_zoo import MODELS, Model
from module_support import Twins
from torch import nn
from torch.utils._pytree import tree_map_only


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
    assert models.try_model(_model(Small), options).is_open
    eager = models.try_model(_model(Noisy), options)
    assert (eager.place, eager.is_open) == ("eager", False)
    assert "nondeterministic" in eager.text()
    assert models.try_model(_model(Small, "no_such_package"), options).place == "absent"


def test_what_differs_is_wrong(monkeypatch) -> None:
    def other(self: Small, x: torch.Tensor) -> torch.Tensor:
        return nn.functional.linear(x, self.weight) + 2 * self.bias

    run = models.step
    found = []

    def with_another_forward(called, module, *rest):
        if called is not module:  # the wrapped one
            monkeypatch.setattr(Small, "forward", other)
        found.append(run(called, module, *rest))
        monkeypatch.undo()
        return found[-1]

    models.step, before = with_another_forward, models.step
    try:
        row = models.try_model(_model(Small), rekindle.Options())
    finally:
        models.step = before
    assert row.place == "wrong"
    assert "output 0" in row.runs[0].reason


def test_a_model_of_the_table_has_one_export() -> None:
    row = models.try_model(next(model for model in MODELS if model.name == "autoencoder"), rekindle.Options())
    assert row.is_open, row.text()


def _doubled(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.double() if tensor.is_floating_point() else tensor


@pytest.mark.parametrize("name", ["unet", "clip", "wav2vec2_unmasked"])
def test_one_export_serves_all_sizes_cold_and_warm(name: str) -> None:
    (model,) = (model for model in MODELS if model.name == name)
    pytest.importorskip(model.package)
    torch.manual_seed(0)
    module = model.make(0.1).train().double()  # what it computes is compared to the rounding of its dtype
    for exports in (1, 0):
        twins = Twins(copy.deepcopy(module), fallback="error", log="error")
        for sizes in model.sizes:
            twins.call(**tree_map_only(torch.Tensor, _doubled, model.inputs(*sizes)))
        assert twins.status.exports == exports
        rekindle.cache.stats()  # waits until everything is stored
