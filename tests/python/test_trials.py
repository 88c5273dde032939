"""Exports after the first ones of a module take a bounded share of the time that a process runs."""

from __future__ import annotations

import pathlib

import pytest
import torch
from module_support import Twins
from rekindle.lookup import trials
from rekindle.lookup.store import flush
from rekindle.miss import pipeline
from torch import nn


@pytest.fixture(autouse=True)
def _no_time_for_further_exports(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trials, "_AT_LEAST", 0.0)
    monkeypatch.setattr(trials, "_SHARE", 0.0)


class Loops(nn.Module):
    """Needs a graph for each length."""

    def __init__(self) -> None:
        super().__init__()
        self.cell = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        state = x[:, 0]
        for row in range(x.shape[1]):
            state = torch.tanh(self.cell(state) + x[:, row])
        return state


class Branches(Loops):
    """Has no graph for any length."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) if x.sum() > 0 else -super().forward(x)


def _called(twins: Twins, *lengths: int) -> list[str]:
    found = []
    for length in lengths:
        twins.call(torch.randn(2, length, 4))
        found.append(twins.status.source)
    return found


def test_three_graphs_are_made_at_once_and_one_more_uses_up_the_time(capfd: pytest.CaptureFixture[str]) -> None:
    twins = Twins(Loops())
    assert _called(twins, 2, 3, 4, 5, 6, 7, 6) == ["export"] * 4 + ["eager"] * 3
    assert twins.reasons() == ["tried_enough"]
    assert capfd.readouterr().err.count("tried_enough: further exports") == 1
    assert "eager" not in _called(twins, 2, 5)


def test_exports_go_on_when_there_is_time_again(monkeypatch: pytest.MonkeyPatch) -> None:
    twins = Twins(Loops())
    assert _called(twins, 2, 3, 4, 5, 6)[-1] == "eager"
    monkeypatch.setattr(trials, "_SHARE", 1e9)
    assert _called(twins, 6, 7) == ["export", "export"]


def test_what_is_in_the_cache_is_found_meanwhile(tmp_path: pathlib.Path) -> None:
    _called(Twins(Loops(), cache_dir=tmp_path, fallback="error"), 2, 3, 4, 5, 6, 7)
    flush()
    twins = Twins(Loops(), cache_dir=tmp_path)
    twins.module.load_state_dict(twins.eager.state_dict())
    assert "eager" not in _called(twins, 2, 3, 4, 5, 6, 7)
    assert twins.status.exports == 0


def test_where_eager_is_forbidden_every_call_has_its_export() -> None:
    twins = Twins(Loops(), fallback="error")
    assert _called(twins, 2, 3, 4, 5, 6, 7) == ["export"] * 6


def test_what_failed_is_not_tried_again_without_time(monkeypatch: pytest.MonkeyPatch) -> None:
    twins, tried = Twins(Branches(), cache="refresh"), []  # which does not believe what is stored
    export = pipeline.export_entry
    monkeypatch.setattr(pipeline, "export_entry", lambda *args: tried.append(1) or export(*args))
    for _ in range(4):
        _called(twins, 2)
        for module in (twins.eager, twins.module):
            module.cell.weight.requires_grad_(not module.cell.weight.requires_grad)
    assert twins.reasons() == ["value_specialized", "tried_enough"]
    assert len(tried) == 2
