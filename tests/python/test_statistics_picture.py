"""The picture of two runs: which tensors and steps it has, and that it is written."""

from __future__ import annotations

import pathlib
import sys

import numpy
import pytest
import torch
from statistics_support import made, recorded


def _runs(tmp_path: pathlib.Path) -> list[pathlib.Path]:
    nets = made(), made()
    with torch.no_grad():
        nets[1].last.weight.mul_(2)
    for number, net in enumerate(nets):
        recorded(net, tmp_path / str(number), steps=3 - number)
    return [tmp_path / str(number) / "rank_0.jsonl" for number in (0, 1)]


def test_the_picture_has_a_row_per_tensor_and_a_column_per_step(tmp_path: pathlib.Path) -> None:
    picture = pytest.importorskip("rekindle.statistics.picture")
    rows, steps, apart = picture.norms_apart(*_runs(tmp_path))
    assert steps == [0, 1] and apart.shape == (len(rows), 2)
    assert rows[0] == ("parameter", "body.0.weight", None, 0)
    found = dict(zip(rows, apart[:, 0], strict=True))
    assert found["parameter", "last.weight", None, 0] == pytest.approx(0.5)
    assert found["forward", "hidden", None, 0] == 0
    assert found["forward", "last", 0, 0] > 0.1
    assert numpy.isnan(picture._apart(None, 1.0)) and picture._apart(1.0, numpy.inf) == numpy.inf


def test_the_png_is_written(tmp_path: pathlib.Path) -> None:
    picture = pytest.importorskip("rekindle.statistics.picture")
    picture.save_png(*_runs(tmp_path), tmp_path / "runs.png")
    assert (tmp_path / "runs.png").read_bytes().startswith(b"\x89PNG")
    recorded(made(), tmp_path / "late", steps=5, start_step=4)
    with pytest.raises(ValueError, match="no step in common"):
        picture.save_png(tmp_path / "0" / "rank_0.jsonl", tmp_path / "late" / "rank_0.jsonl", tmp_path / "none.png")


def test_without_matplotlib_the_error_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "rekindle.statistics.picture", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        import rekindle.statistics.picture  # noqa: F401
