"""scripts/conformance training: a program that is right is told so, and one that is not is told to be wrong."""

from __future__ import annotations

from typing import Any

import training_suite


def test_a_program_runs_from_a_graph_cold_and_warm() -> None:
    row = training_suite.try_program("vision.vae", 3)
    assert (row.place, row.exports, row.reason) == ("graph", (1, 0), "")
    assert min(row.first) > 0


def _report(losses: list[float], parameters: list[list[float]]) -> dict[str, Any]:
    return {"rekindle": {"losses": losses}, "eager": {"losses": [1.0, 0.9, 0.8]}, "parameters": parameters}


def test_losses_and_parameters_elsewhere_are_wrong() -> None:
    right = _report([1.0, 0.9, 0.8], [[0.0, 1.0]])
    unmoved = [0.0, 0.0, 0.0]
    assert training_suite.difference(right, unmoved, [0.0]) == ""
    other_loss = _report([1.0, 0.92, 0.8], [[0.0, 1.0]])
    assert "after 1 steps the loss is 2.00e-02 from eager's 0.9" in training_suite.difference(other_loss, unmoved, [0.0])
    assert training_suite.difference(other_loss, [0.0, 0.01, 0.0], [0.0]) == ""  # as far as rounding carries
    other_parameter = _report([1.0, 0.9, 0.8], [[0.0, 1.0], [0.1, 1.0]])
    assert "parameter 1 is 1.00e-01 from eager's" in training_suite.difference(other_parameter, unmoved, [0.0, 0.0])
    assert training_suite.difference(other_parameter, unmoved, [0.0, 0.05]) == ""  # as far as rounding carries
    assert training_suite.difference(_report([1.0, float("nan"), 0.8], []), unmoved, []) != ""


def test_a_program_that_fails_is_told_with_its_error() -> None:
    row = training_suite.try_program("vision.there_is_none", 1)
    assert row.place == "wrong"
    assert "there_is_none" in row.reason
