"""A subscriber's files: which steps and tensors they have, in which order and layout, and what is said when they cannot be."""

from __future__ import annotations

import json
import pathlib
import sys

import pytest
import python_process
import torch
from rekindle import errors
from rekindle.statistics import StatisticsSubscriber, inspect_activation, subscribe
from statistics_support import by_numpy, made, recorded, records, train
from torch import nn

MODULES = ["body.0", "body.1", "body.2", "body.3", "body.4", "body", "hidden", "last", ""]


def _names(found: list[dict], phase: str, step: int = 0) -> list[str]:
    return [record["name"] for record in found if record["phase"] == phase and record["step"] == step]


def test_each_step_has_parameters_outputs_and_gradients_in_order(tmp_path: pathlib.Path) -> None:
    net = made()
    found = recorded(net, tmp_path, steps=2)
    for step in (0, 1):
        assert _names(found, "parameter", step) == [name for name, _ in net.named_parameters()]
        assert _names(found, "forward", step) == MODULES
        assert _names(found, "backward", step)[:3] == ["", "last", "hidden"]
        assert sorted(_names(found, "backward", step)) == sorted(MODULES)
        assert sorted(_names(found, "gradient", step)) == sorted(name for name, _ in net.named_parameters())
    assert [(record["step"], record["training"]) for record in records(tmp_path, "step")] == [(0, True), (1, True)]
    (header,) = records(tmp_path, "run")
    assert (header["format"], header["version"], header["rank"], header["model"]) == ("rekindle.statistics", 1, 0, "Net")


def test_values_are_those_of_the_tensors(tmp_path: pathlib.Path) -> None:
    kept = {}
    net = made()
    for name in ("body.0", "last"):
        module = net.get_submodule(name)
        module.register_forward_hook(lambda module, args, result, name=name: kept.__setitem__(("forward", name), result))
        module.register_full_backward_hook(lambda module, inner, outer, name=name: kept.__setitem__(("backward", name), outer[0]))
    kept |= {("parameter", name): parameter.detach().clone() for name, parameter in net.named_parameters()}
    found = {(record["phase"], record["name"]): record for record in recorded(net, tmp_path)}
    kept |= {("gradient", name): parameter.grad for name, parameter in net.named_parameters()}
    for key, tensor in kept.items():
        if key == ("forward", "body.0"):  # what follows writes to it
            continue
        for field, expected in by_numpy(tensor).items():
            assert found[key][field] == pytest.approx(expected, rel=1e-12, abs=1e-15), (key, field)
        assert found[key]["shape"] == list(tensor.shape) and found[key]["dtype"] == "float32"


class Several(nn.Module):
    """A module whose output is a structure, and which is called twice."""

    class Part(nn.Module):
        def forward(self, x: torch.Tensor) -> dict[str, object]:
            return {"a": x * 2, "b": [x.argmax(-1), "text", (x + 1, None)]}

    def __init__(self) -> None:
        super().__init__()
        self.part, self.scale = self.Part(), nn.Parameter(torch.ones(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first = self.part(x * self.scale)
        second = self.part(first["a"])
        return second["b"][2][0].sum() + first["b"][0].sum()


def test_each_tensor_of_a_structure_and_each_call_has_a_record(tmp_path: pathlib.Path) -> None:
    found = recorded(made(Several), tmp_path)
    parts = [(r["phase"], r["output"], r["call"], r["dtype"]) for r in found if r["name"] == "part"]
    assert parts == [
        ("forward", 0, 0, "float32"),
        ("forward", 1, 0, "int64"),
        ("forward", 2, 0, "float32"),
        ("forward", 0, 1, "float32"),
        ("forward", 1, 1, "int64"),
        ("forward", 2, 1, "float32"),
        ("backward", 2, 1, "float32"),
        ("backward", 0, 0, "float32"),
    ]


@pytest.mark.parametrize("window, steps", (((None, None), [0, 1, 2, 3]), ((1, 3), [1, 2]), ((2, None), [2, 3]), ((None, 1), [0])))
def test_only_the_steps_of_the_window_are_written(tmp_path: pathlib.Path, window: tuple, steps: list[int]) -> None:
    found = recorded(made(), tmp_path, steps=4, start_step=window[0], end_step=window[1])
    assert sorted({record["step"] for record in found}) == steps
    assert sorted(path.name for path in tmp_path.glob("step_*")) == [f"step_{step}" for step in steps]


def test_text_files_have_the_layout_of_ortmodule(tmp_path: pathlib.Path) -> None:
    recorded(made(), tmp_path)
    order = (tmp_path / "step_0" / "order.txt").read_text().splitlines()
    assert order[:3] == ["Linear_2_0th_output_forward", "BatchNorm1d_3_0th_output_forward", "ReLU_4_0th_output_forward"]
    assert "hidden_forward" in order and "hidden_backward" in order
    assert sorted([*order, "order.txt"]) == sorted(path.name for path in (tmp_path / "step_0").iterdir())
    lines = (tmp_path / "step_0" / "Linear_2_0th_output_forward").read_text().splitlines()
    assert lines[0].startswith(">>Linear_2_0th_output forward run shape: torch.Size([6, 8]) dtype: torch.float32")
    assert lines[1].startswith("min: ") and lines[2] == "nan: 0, inf: 0" and lines[3].startswith("samples(top 128): [")
    assert lines[-1] == "=" * 16


def test_text_files_can_be_left_out(tmp_path: pathlib.Path) -> None:
    recorded(made(), tmp_path, text_files=False)
    assert [path.name for path in tmp_path.iterdir()] == ["rank_0.jsonl"]


def test_an_earlier_run_is_removed_on_demand_only(tmp_path: pathlib.Path) -> None:
    recorded(made(), tmp_path, steps=2)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match=r"rank_0\.jsonl.*override=True"):
        StatisticsSubscriber(tmp_path)
    found = recorded(made(), tmp_path, override=True)
    assert {record["step"] for record in found} == {0}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt", "rank_0.jsonl", "step_0"]


def test_each_rank_has_a_file(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    for rank in (0, 1):
        monkeypatch.setenv("RANK", str(rank))
        recorded(made(), tmp_path)
        assert len(records(tmp_path, rank=rank)) > 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rank_0", "rank_0.jsonl", "rank_1", "rank_1.jsonl"]
    monkeypatch.undo()
    recorded(made(), tmp_path, override=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rank_0.jsonl", "step_0"]


@pytest.mark.parametrize("options", ({"start_step": -1}, {"start_step": 3, "end_step": 3}, {"end_step": 0}, {"bucket_size": 0}))
def test_options_that_mean_nothing_are_refused(tmp_path: pathlib.Path, options: dict[str, int]) -> None:
    with pytest.raises(ValueError, match=r"step|bucket_size"):
        StatisticsSubscriber(tmp_path, **options)


def test_a_directory_that_cannot_be_is_refused(tmp_path: pathlib.Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="file"):
        StatisticsSubscriber(tmp_path / "file")


def test_a_module_and_a_subscriber_have_one_subscription(tmp_path: pathlib.Path) -> None:
    net, subscriber = made(), StatisticsSubscriber(tmp_path / "a")
    with subscribe(net, subscriber):
        with pytest.raises(ValueError, match="this Net has a subscription"):
            subscribe(net, StatisticsSubscriber(tmp_path / "b"))
        with pytest.raises(ValueError, match="this subscriber has a subscription"):
            subscribe(made(), subscriber)
    with subscribe(net, StatisticsSubscriber(tmp_path / "c")):
        train(net)
    for wrong in ((net, "directory"), ("net", subscriber)):
        with pytest.raises(TypeError, match="subscribe takes a"):
            subscribe(*wrong)


class _Full:
    """A file on a disk that is full after some lines."""

    closed = False

    def __init__(self, lines: int) -> None:
        self._lines = lines

    def write(self, text: str) -> None:
        self._lines -= 1
        if self._lines < 0:
            raise OSError(28, "No space left on device")

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def test_an_error_of_the_writer_is_raised_by_the_next_step_and_at_the_end(tmp_path: pathlib.Path) -> None:
    net = made()
    handle = subscribe(net, StatisticsSubscriber(tmp_path))
    handle.flush()
    handle._writer._file.close()
    handle._writer._file = _Full(10)
    train(net)
    with pytest.raises(errors.StatisticsError, match=r"rank_0\.jsonl.*No space left"):
        handle.flush()
    with pytest.raises(errors.StatisticsError, match="No space left") as raised:
        train(net)
    assert isinstance(raised.value.__cause__, OSError)
    with pytest.raises(errors.StatisticsError, match="No space left"):
        handle.remove()
    train(net)  # goes on without


def test_what_cannot_be_summarized_is_an_error_of_the_next_step(tmp_path: pathlib.Path) -> None:
    class Odd(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            inspect_activation("meta", torch.empty(3, device="meta"))
            return x

    with pytest.raises(errors.StatisticsError), subscribe(model := Odd(), StatisticsSubscriber(tmp_path)):
        model(torch.ones(2))


def test_the_file_has_a_bound(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(StatisticsSubscriber, "max_bytes", 10_000)
    recorded(made(), tmp_path, steps=5)
    assert (tmp_path / "rank_0.jsonl").stat().st_size < 10_100
    assert len(records(tmp_path, "limit")) == 1


def test_all_is_written_when_a_program_ends_without_remove(tmp_path: pathlib.Path) -> None:
    program = (
        f"import sys; sys.path[:0] = {sys.path!r}\n"
        "from statistics_support import *\n"
        "net = made()\n"
        "subscribe(net, StatisticsSubscriber(sys.argv[1]))\n"
        "train(net, 2)\n"
    )
    python_process.run("-c", program, str(tmp_path / "run"), check=True)
    assert {record["step"] for record in records(tmp_path / "run")} == {0, 1}
    last = (tmp_path / "run" / "rank_0.jsonl").read_text().splitlines()[-1]
    assert json.loads(last)["phase"] == "gradient"


def test_a_forked_child_writes_nothing(tmp_path: pathlib.Path) -> None:
    program = (
        f"import os, sys; sys.path[:0] = {sys.path!r}\n"
        "from statistics_support import *\n"
        "net = made()\n"
        "handle = subscribe(net, StatisticsSubscriber(sys.argv[1]))\n"
        "child = os.fork()\n"
        "train(net)\n"
        "handle.remove()\n"
        "if child: sys.exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))\n"
    )
    python_process.run("-c", program, str(tmp_path / "run"), check=True)
    assert len(records(tmp_path / "run", "step")) == 1
