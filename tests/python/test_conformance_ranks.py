"""The suite that trains programs of several ranks: what it compares, counts and says."""

from __future__ import annotations

import pathlib
import sys
from typing import Any

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "conformance"))
import ranks
import ranks_suite


def _report(losses: list[float]) -> dict[str, Any]:
    eager = {"losses": [1.0, 0.9]}
    return {
        "rekindle": {"losses": losses}, "eager": eager, "nudged": eager, "parameters": [[0.0, 1.0]],
        "nudged_parameters": [[0.0, 1.0]],
    }  # fmt: skip


def test_another_loss_of_any_rank_is_wrong() -> None:
    right, other = _report([1.0, 0.9]), _report([1.0, 0.8])
    assert ranks_suite._wrong([right, right], [right, right]) == ""
    assert ranks_suite._wrong([right, right], [right, other]).startswith("rank 1: after 1 steps the loss is")


def test_all_programs_are_there() -> None:
    folder = pathlib.Path(ranks.__file__).parent
    for module, names in ranks.PROGRAMS.items():
        text = (folder / f"{module}.py").read_text()
        assert [name for name in names if f"def {name}(job: Job)" not in text] == [], module


def test_layers_that_are_split_over_two_ranks_export_once() -> None:
    row = ranks_suite.try_program("split.tensor_parallel", 2, 2)
    # A rank that leads waits 0.2 s for the entry of another one, which is not there in time on a busy machine.
    assert row.place == "graph" and row.exports in ((1, 0, 0), (1, 0, 1)), row
    assert row.in_graphs is not None and 0.3 < row.in_graphs <= 1, row
    assert row.text().startswith("| split.tensor_parallel | 2 | graph | 1 / 0 / ")


def test_what_is_not_installed_is_absent_and_what_fails_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    for error, place in (("rank 0: ModuleNotFoundError: no deepspeed", "absent"), ("rank 1: ValueError: no", "wrong")):

        def fail(*_: Any, error: str = error) -> Any:
            raise ranks_suite.Failed(error)

        monkeypatch.setattr(ranks_suite, "_reports", fail)
        row = ranks_suite.try_program("deep_speed.stage_1", 2, 2)
        assert (row.place, row.reason) == (place, error)
