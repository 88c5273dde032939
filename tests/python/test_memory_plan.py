"""Memory plans: written, edited and read back; results and gradients are bit for bit those without one."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from typing import Any

import pytest
import rekindle
import torch
from module_support import tiny_gpt, tokens
from rekindle.errors import OptionError
from torch import nn

LAYERS = 3


class Layers(nn.Module):
    """Layers that are alike, whose linear layers nobody reads but their tanh."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(64) for _ in range(LAYERS))
        self.layers = nn.ModuleList(nn.Linear(64, 64) for _ in range(LAYERS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for norm, layer in zip(self.norms, self.layers, strict=True):
            x = x + torch.tanh(layer(norm(x)))
        return x.square().mean()


def rows() -> torch.Tensor:
    return torch.randn(128, 64, generator=torch.Generator().manual_seed(3))


def made(plan: Any = None, **options: Any) -> rekindle.Module:
    torch.manual_seed(1)
    given = options if plan is None else options | {"memory_plan": plan}
    return rekindle.Module(Layers(), rekindle.Options(**{"fallback": "error", "log": "error"} | given))


def trained(model: rekindle.Module, data: torch.Tensor) -> list[torch.Tensor]:
    """Returns losses and gradients of two steps."""
    found = []
    for step in range(2):
        torch.manual_seed(step)
        model.zero_grad()
        result = model(data)
        loss = result if isinstance(result, torch.Tensor) and result.dim() == 0 else result.square().mean()
        loss.backward()
        found += [loss.detach(), *(parameter.grad.clone() for parameter in model.parameters())]
    return found


def equal(ours: list[torch.Tensor], theirs: list[torch.Tensor]) -> bool:
    return len(ours) == len(theirs) and all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))


def written(path: pathlib.Path, content: Any) -> pathlib.Path:
    path.write_text(content if isinstance(content, str) else json.dumps(content))
    return path


def plan(*subgraphs: dict[str, Any]) -> dict[str, Any]:
    return {"version": 1, "model": "Layers", "subgraphs": list(subgraphs)}


def row(kind: str, recompute: Any, count: Any = LAYERS) -> dict[str, Any]:
    return {"subgraph": kind, "count": count, "recompute": recompute}


def recomputed(model: rekindle.Module) -> dict[str, int]:
    found = rekindle.memory(model, rows()).subgraphs
    return {one.kind: one.recomputed for one in found if one.recomputed}


def test_layers_that_are_alike_have_subgraphs_of_the_same_kinds() -> None:
    account = rekindle.memory(made(memory_level=0), rows())
    found = {one.kind: one for one in account.subgraphs}
    assert found["Linear+Tanh"].count == LAYERS and found["LayerNormalization"].count == LAYERS
    tanh = found["Linear+Tanh"]
    assert (tanh.bytes_each, tanh.bytes) == (128 * 64 * 4, LAYERS * 128 * 64 * 4)
    assert "test_memory_plan.py" in tanh.source and 0 < tanh.time_share < 1
    assert [one.bytes for one in account.subgraphs] == sorted((one.bytes for one in account.subgraphs), reverse=True)
    shown = str(account)
    assert "what the backward can compute again" in shown and "Linear+Tanh" in shown
    assert json.loads(json.dumps(account.to_dict()))["subgraphs"][0]["recomputed"] == 0
    with pytest.raises(dataclasses.FrozenInstanceError):
        tanh.count = 1


def test_a_forward_without_gradients_has_no_subgraphs_and_no_plan(tmp_path: pathlib.Path) -> None:
    model = made()
    with torch.no_grad():
        account = rekindle.memory(model, rows())
    assert account.subgraphs == () and "compute again" not in str(account)
    with pytest.raises(ValueError, match="Layers has no memory plan; the call is not recorded for a backward"):
        account.save_plan(tmp_path / "plan.json")


@pytest.mark.parametrize("options", [{"memory_level": 0}, {"memory_level": 2}, {"memory_budget": 0.5}])
def test_a_plan_that_is_read_back_writes_the_same_file(options: dict[str, Any], tmp_path: pathlib.Path) -> None:
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    before = rekindle.memory(made(**options), rows())
    before.save_plan(first)
    after = rekindle.memory(made(first), rows())
    after.save_plan(second)
    assert first.read_text() == second.read_text()
    content = json.loads(first.read_text())
    assert content["version"] == 1 and content["model"] == "Layers"
    assert [one["recompute"] for one in content["subgraphs"]] == [one.recomputed for one in before.subgraphs]
    assert (sum(one["recompute"] for one in content["subgraphs"]) > 0) == (options != {"memory_level": 0})


def test_each_number_frees_more_and_changes_no_bit(tmp_path: pathlib.Path) -> None:
    free = made(memory_level=0)
    expected = trained(free, rows())
    start = rekindle.memory(free, rows())
    for of in start.subgraphs:
        saved = []
        for number in range(of.count + 1):
            model = made(written(tmp_path / "plan.json", plan(row(of.kind, number, of.count))))
            assert equal(trained(model, rows()), expected)
            assert recomputed(model) == ({of.kind: number} if number else {})
            assert rekindle.status(model).source == "local", "a plan is no part of the key"
            saved.append(rekindle.memory(model, rows()).saved)
        assert saved == sorted(saved, reverse=True) and saved[0] == start.saved
        assert saved[0] - saved[-1] == of.bytes
        model = made(written(tmp_path / "plan.json", plan(row(of.kind, -1))))
        assert recomputed(model) == {of.kind: of.count}


def test_a_transformer_with_dropout_computes_all_of_it_again(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "plan.json"
    found = []
    for options in ({"memory_level": 0}, {"memory_plan": file}):
        torch.manual_seed(1)
        model = rekindle.Module(tiny_gpt(0.1).train(), rekindle.Options(fallback="error", log="error", **options))
        found.append(trained(model, tokens()))
        account = rekindle.memory(model, tokens())
        if "memory_level" in options:
            saved = account.saved
            content = plan(*(one.row() | {"recompute": -1} for one in account.subgraphs))
            written(file, content)
    assert equal(*found)
    assert account.saved is not None and saved is not None and account.saved < saved / 2
    assert all(one.recomputed == one.count for one in account.subgraphs)


@pytest.mark.parametrize(("strategy", "count", "expected"), [(0, -1, 0), (1, -1, LAYERS), (1, 2, 2), (2, 1, 1)])
def test_the_form_of_ortmodule_is_read(strategy: int, count: int, expected: int, tmp_path: pathlib.Path) -> None:
    model = made(written(tmp_path / "plan.json", [f"Linear+Tanh+:{strategy}:{count}"]))
    assert recomputed(model) == ({"Linear+Tanh": expected} if expected else {})


def test_what_a_graph_does_not_have_is_one_warning(tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = written(tmp_path / "plan.json", plan(row("BiasGelu", -1), row("Linear+Tanh", 9, 9), row("Where", 0), row("Erf", 1)))
    model = made(file, log="warning")
    for count in (128, 64):
        model(rows()[:count]).backward()
    (line,) = (line for line in capfd.readouterr().err.splitlines() if "memory plan" in line)
    assert f"the memory plan {file} asks to compute again what the graph does not have: BiasGelu, Erf; " in line
    assert "the graph has" in line and f"Linear+Tanh ({LAYERS})" in line and "Where" not in line
    assert recomputed(model) == {"Linear+Tanh": LAYERS}


def test_the_variable_names_a_plan_and_an_argument_wins(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    file = written(tmp_path / "plan.json", plan(row("Linear+Tanh", 2)))
    monkeypatch.setenv("REKINDLE_MEMORY_PLAN", str(file))
    assert recomputed(made()) == {"Linear+Tanh": 2}
    options = rekindle.Options(memory_level=1)
    assert (options.memory_level, options.memory_plan) == (1, None)
    monkeypatch.setenv("REKINDLE_MEMORY_BUDGET", "0.5")
    with pytest.raises(OptionError, match=r"memory_budget is 0\.5 and memory_plan is .*plan\.json'; set one of them"):
        rekindle.Options()
    assert rekindle.Options(memory_plan=file).memory_budget is None
    monkeypatch.setenv("REKINDLE_MEMORY_PLAN", str(tmp_path / "none.json"))
    with pytest.raises(OptionError, match=r"REKINDLE_MEMORY_PLAN is '.*none\.json', which cannot be read: No such file"):
        rekindle.Options()


@pytest.mark.parametrize("other", [{"memory_level": 0}, {"memory_budget": 0.5}])
def test_a_plan_stands_alone(other: dict[str, Any], tmp_path: pathlib.Path) -> None:
    file = written(tmp_path / "plan.json", plan())
    with pytest.raises(OptionError, match="set one of them"):
        rekindle.Options(memory_plan=file, **other)


def test_a_plan_is_as_it_was_when_it_was_read(tmp_path: pathlib.Path) -> None:
    file = written(tmp_path / "plan.json", plan(row("Linear+Tanh", 2)))
    options = rekindle.Options(memory_plan=file)
    file.unlink()
    assert dataclasses.replace(options, start="wait").memory_plan == options.memory_plan
    assert options.key_fields() == rekindle.Options().key_fields()


def test_a_saved_model_has_its_plan(tmp_path: pathlib.Path) -> None:
    model = made(written(tmp_path / "plan.json", plan(row("Linear+Tanh", 2))))
    torch.save(model, tmp_path / "model.pt")
    (tmp_path / "plan.json").unlink()
    with torch.serialization.safe_globals([Layers, nn.Linear, nn.LayerNorm, nn.ModuleList, set]):
        loaded = torch.load(tmp_path / "model.pt", weights_only=True)
    assert recomputed(loaded) == {"Linear+Tanh": 2}


BAD: dict[str, tuple[Any, str]] = {
    "no JSON": ("{", "which is not JSON: .*; write one with rekindle.memory"),
    "a number": (3, 'which has no "version", so that it is no memory plan'),
    "no version": ({"subgraphs": []}, 'which has no "version"'),
    "another version": ({"version": 2, "subgraphs": []}, "which has the version 2; version 1 is read"),
    "a true version": ({"version": True, "subgraphs": []}, "which has the version True"),
    "no list": ({"version": 1}, 'which has no list "subgraphs"'),
    "no object": (plan(3), "each must be an object"),  # type: ignore[arg-type]
    "no kind": (plan(row("", 1)), "which names the subgraph ''.*ops joined by"),
    "a number as kind": (plan(row(7, 1)), "which names the subgraph 7"),  # type: ignore[arg-type]
    "twice": (plan(row("Tanh", 1), row("Tanh+", 2)), "names the subgraph 'Tanh' twice; remove one"),
    "no recompute": (plan({"subgraph": "Tanh", "count": 3}), "'Tanh' has no \"recompute\"; give it a number"),
    "no count": (plan({"subgraph": "Tanh", "recompute": 3}), "'Tanh' has no \"count\""),
    "too many": (plan(row("Tanh", 4)), "'Tanh' has the \"recompute\" 4; it must be a whole number from 0 to its count, 3, or -1"),
    "negative": (plan(row("Tanh", -2)), 'has the "recompute" -2'),
    "true": (plan(row("Tanh", True)), 'has the "recompute" True'),
    "a fraction": (plan(row("Tanh", 1.0)), r'has the "recompute" 1\.0'),
    "text": (plan(row("Tanh", "1")), "has the \"recompute\" '1'"),
    "a bad count": (plan(row("Tanh", 0, -1)), 'has the "count" -1; it must be a whole number, 0 or more'),
    "a list of numbers": ([3], "which lists 3; each must be text"),
    "no strategy": (["Tanh"], "which lists 'Tanh'; each must be text"),
    "another strategy": (["Tanh+:3:1"], "with the strategy '3'; it must be 0, 1 or 2"),
    "another count": (["Tanh+:1:-2"], "with the count '-2'; it must be a whole number, 0 or more, or -1 for all"),
    "an empty kind": (["+:1:-1"], r"which names the subgraph '\+'"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files_are_errors_that_name_the_file_and_the_remedy(name: str, tmp_path: pathlib.Path) -> None:
    content, message = BAD[name]
    file = written(tmp_path / "plan.json", content)
    with pytest.raises(OptionError, match=rf"option 'memory_plan' is '.*plan\.json', .*{message}"):
        rekindle.Options(memory_plan=file)


@pytest.mark.parametrize("wrong", [3, True, "", b"plan.json", ["Tanh+:1:-1"]])
def test_a_plan_is_named_by_its_path(wrong: Any) -> None:
    with pytest.raises(OptionError, match=r"option 'memory_plan' is .*; it must be the path of a memory plan: write one"):
        rekindle.Options(memory_plan=wrong)


def test_files_that_cannot_be_read_are_errors(tmp_path: pathlib.Path) -> None:
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe")
    with pytest.raises(OptionError, match="which is not JSON"):
        rekindle.Options(memory_plan=tmp_path / "bytes.json")
    with pytest.raises(OptionError, match="which cannot be read: Is a directory"):
        rekindle.Options(memory_plan=tmp_path)


class Branches(nn.Module):
    """Cannot be one graph; its two halves can."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (nn.Sequential(nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 64)) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        hidden = self.first(x)
        if hidden.sum() > 1e9:
            hidden = hidden * 2
        return self.second(hidden).square().mean()


def test_a_plan_is_for_each_part(tmp_path: pathlib.Path) -> None:
    file = tmp_path / "plan.json"
    torch.manual_seed(1)
    model = rekindle.Module(Branches(), rekindle.Options(log="error", memory_level=0))
    account = rekindle.memory(model, rows())
    assert account.source == "parts"
    assert {one.kind: one.count for one in account.subgraphs}["Linear+Tanh"] == 2
    account.save_plan(file)
    file.write_text(file.read_text().replace('"recompute": 0', '"recompute": -1'))
    expected = trained(model, rows())
    torch.manual_seed(1)
    model = rekindle.Module(Branches(), rekindle.Options(log="error", memory_plan=file))
    assert equal(trained(model, rows()), expected)
    assert all(one.recomputed == one.count for one in rekindle.memory(model, rows()).subgraphs)
