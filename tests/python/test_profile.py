"""rekindle.profile: each node, its line, its phase, what it takes, and nothing left behind."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest
import rekindle
import torch
from torch import nn


class Net(nn.Module):
    """Two layers and a loss, with dropout and a buffer that each forward changes."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(32, 64)
        self.second = nn.Linear(64, 32)
        self.norm = nn.BatchNorm1d(64)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        hidden = torch.dropout(self.norm(torch.sigmoid(self.first(x))), 0.1, self.training)
        logits = self.second(hidden)
        return {"logits": logits, "loss": logits.square().mean()}


class Halves(nn.Module):
    """Cannot be one graph, as it prints; its two halves can."""

    def __init__(self) -> None:
        super().__init__()
        self.one = nn.Sequential(nn.Linear(32, 64), nn.Tanh())
        self.two = nn.Sequential(nn.Linear(64, 32), nn.Tanh())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.one(x)
        print(end="")
        return self.two(hidden * float(hidden.detach().sum() > -1e9))


class Prints(nn.Module):
    """Has neither a graph nor a part that could have one."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(32, 32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        print(end="")
        return (x @ self.weight).sum()


def test_nodes_have_their_line_phase_time_and_bytes() -> None:
    model = rekindle.Module(Net())
    found = rekindle.profile(model, torch.randn(16, 32), steps=2)
    assert (found.source, found.reason, found.steps, found.device) == ("graph", None, 2, "cpu")
    linear = [node for node in found.nodes if node.op == "Linear"]
    assert len(linear) == 2 and {node.phase for node in linear} == {"forward"}
    assert all(node.seconds > 0 and node.calls == 1 and "test_profile.py" in node.source for node in linear)
    sizes = sorted(node.bytes for node in linear if node.bytes is not None)
    assert 16 * 64 * 4 in sizes
    weights = [node for node in found.nodes if node.op == "LinearWeightGradient"]
    assert len(weights) == 2 and {node.phase for node in weights} == {"backward"}
    assert 0 < found.forward < 1 and found.backward is not None and 0 < found.backward < 1
    assert all(node.in_graph for node in linear)


def test_what_lines_take_adds_up() -> None:
    found = rekindle.profile(rekindle.Module(Net()), torch.randn(16, 32), steps=1)
    assert sum(line.seconds for line in found.by_line) == pytest.approx(sum(node.seconds for node in found.nodes))
    times = [line.seconds for line in found.by_line]
    assert times == sorted(times, reverse=True)
    shown = str(found)
    assert "profile of a training step of Net (from: graph)" in shown and found.by_line[0].where in shown
    assert json.loads(json.dumps(found.to_dict()))["by_line"][0]["where"] == found.by_line[0].where


def test_nothing_is_left_behind() -> None:
    net = Net()
    model = rekindle.Module(net)
    x = torch.randn(16, 32)
    model(x)["loss"].backward()
    gradients = {name: parameter.grad for name, parameter in net.named_parameters()}
    values = {name: value.clone() for name, value in net.state_dict().items()}
    of_gradients = {name: gradient.clone() for name, gradient in gradients.items() if gradient is not None}
    fired = []
    net.first.weight.register_post_accumulate_grad_hook(lambda parameter: fired.append(parameter))
    state = torch.get_rng_state()
    rekindle.profile(model, x, steps=1)
    assert torch.equal(torch.get_rng_state(), state) and not fired
    assert all(torch.equal(value, values[name]) for name, value in net.state_dict().items())
    for name, parameter in net.named_parameters():
        assert parameter.grad is gradients[name]
        assert parameter.grad is not None and torch.equal(parameter.grad, of_gradients[name])


def test_of_parts_nodes_and_what_runs_in_eager_between_them_are_told() -> None:
    found = rekindle.profile(rekindle.Module(Halves()), torch.randn(16, 32), steps=1)
    assert found.source == "parts" and found.reason
    assert {"Linear", "aten::mul"} <= {node.op for node in found.nodes}
    eager = [node for node in found.nodes if node.op == "aten::mul"]
    assert {node.phase for node in eager} == {"forward", "backward"} and not any(node.in_graph for node in eager)
    assert "aten::mul in eager" in str(found)


def test_a_model_in_eager_has_operators() -> None:
    found = rekindle.profile(rekindle.Module(Prints()), torch.randn(16, 32), steps=1)
    assert found.source == "eager" and found.reason and not any(node.in_graph for node in found.nodes)
    assert {node.phase for node in found.nodes if node.op in ("aten::mm", "aten::matmul")} == {"forward", "backward"}


def test_a_forward_without_gradients_has_no_backward() -> None:
    with torch.no_grad():
        found = rekindle.profile(rekindle.Module(Net().eval()), torch.randn(16, 32), steps=1)
    assert found.backward is None and {node.phase for node in found.nodes} == {"forward"}
    assert "a forward without gradients" in str(found)


def test_the_backward_begins_at_the_loss_that_is_named() -> None:
    found = rekindle.profile(rekindle.Module(Net()), torch.randn(16, 32), loss=lambda result: result["logits"].sum(), steps=1)
    assert not any("ReduceMean" in node.op and node.phase == "backward" for node in found.nodes)
    with pytest.raises(TypeError, match="a float"):
        rekindle.profile(rekindle.Module(Net()), torch.randn(16, 32), loss=lambda result: 1.0, steps=1)
    with pytest.raises(TypeError, match="without a gradient"):
        rekindle.profile(rekindle.Module(Net()), torch.randn(16, 32), loss=lambda result: result["loss"].detach(), steps=1)


def test_bad_arguments_are_named() -> None:
    with pytest.raises(ValueError, match="steps is 0"):
        rekindle.profile(rekindle.Module(Net()), torch.randn(16, 32), steps=0)
    with pytest.raises(TypeError, match=r"rekindle\.profile"):
        rekindle.profile(Net(), torch.randn(16, 32))  # type: ignore[arg-type]


def test_traces_of_ranks_are_joined_by_the_command(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = rekindle.profile(rekindle.Module(Net()), torch.randn(16, 32), steps=2)
    paths = []
    for rank in (0, 1):
        monkeypatch.setenv("RANK", str(rank))
        paths.append(str(tmp_path / f"{rank}.json"))
        found.save_trace(paths[-1])
    merged = tmp_path / "all.json"
    program = pathlib.Path(sys.executable).with_name("rekindle")
    done = subprocess.run([program, "profile", "merge", *paths, "-o", merged, "--json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    events = json.loads(merged.read_text())["traceEvents"]
    assert {event["pid"] for event in events} == {0, 1} and json.loads(done.stdout)["events"] == len(events)
    lines = [event["args"]["source"] for event in events if event["name"].startswith("rekindle::Linear ")]
    assert len(lines) == 2 * 2 * 2 and all("test_profile.py" in line for line in lines)


def test_the_picture_is_a_png(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("matplotlib")
    rekindle.profile(rekindle.Module(Net()), torch.randn(16, 32), steps=1).save(tmp_path / "profile.png")
    assert (tmp_path / "profile.png").read_bytes().startswith(b"\x89PNG")


def test_torchs_own_profiler_shows_the_nodes() -> None:
    model = rekindle.Module(Net())
    x = torch.randn(16, 32)
    model(x)["loss"].backward()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU], acc_events=True) as recorder:
        model(x)["loss"].backward()
    names = [event.name for event in recorder.events() or ()]
    assert any(name.startswith("rekindle::Linear ") and "test_profile.py" in name for name in names)
    assert any(name.startswith("rekindle::LinearWeightGradient ") for name in names)
