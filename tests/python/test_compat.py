"""rekindle.compat.ORTModule takes ORTModule's settings."""

from __future__ import annotations

import pathlib
import warnings

import onnx
import pytest
import rekindle
import torch
from module_support import mlp, rows
from rekindle.compat import DebugOptions, LogLevel, ORTModule
from torch import nn


def test_it_trains_like_the_module_it_wraps() -> None:
    torch.manual_seed(1)
    ours, theirs = ORTModule(mlp()), mlp()
    for step in range(2):
        for model in (ours, theirs):
            model(rows(step)).square().mean().backward()
    for mine, other in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, other.grad)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert isinstance(ours, rekindle.Module)
    assert rekindle.status(ours).eager_calls == 0


def test_the_cache_directory_is_taken_over(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REKINDLE_CACHE_DIR")
    monkeypatch.setenv("ORTMODULE_CACHE_DIR", str(tmp_path / "old"))
    model = ORTModule(mlp())
    model(rows())
    assert rekindle.status(model).cache_dir == str(tmp_path / "old")


def test_saved_models_are_loaded_weights_only(tmp_path: pathlib.Path) -> None:
    model = ORTModule(nn.Linear(4, 2))
    torch.save(model, tmp_path / "model.pt")
    with torch.serialization.safe_globals([nn.Linear, set]):
        loaded = torch.load(tmp_path / "model.pt", weights_only=True)
    assert isinstance(loaded, ORTModule)
    torch.testing.assert_close(loaded(rows()), model(rows()))


@pytest.mark.parametrize(("given", "level"), [("info", 2), ("WARNING", 3), ("4", 4), (LogLevel.FATAL, 5), (0, 0)])
def test_log_levels(given: object, level: int) -> None:
    assert DebugOptions(given).log_level == level  # type: ignore[arg-type]


def test_the_environment_wins_over_the_argument(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTMODULE_LOG_LEVEL", "ERROR")
    assert DebugOptions(LogLevel.INFO).log_level is LogLevel.ERROR
    monkeypatch.setenv("ORTMODULE_LOG_LEVEL", "loud")
    with pytest.raises(ValueError, match=r"'loud' is none of VERBOSE, DEVINFO"):
        DebugOptions()


def test_graphs_are_saved_when_they_are_exported_and_when_they_are_found(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ORTMODULE_SAVE_ONNX_PATH", str(tmp_path))
    for source in ("export", "local"):
        model = ORTModule(mlp(), DebugOptions(save_onnx=True, onnx_prefix=source))
        model(rows())
        assert rekindle.status(model).source == source
        with torch.no_grad():
            model.eval()(rows())
        rekindle.cache.stats()
    for source in ("export", "local"):
        for kind in ("training", "inference"):
            onnx.load(tmp_path / f"{source}_torch_exported_{kind}.onnx")
    with pytest.raises(ValueError, match="needs an onnx_prefix"):
        DebugOptions(save_onnx=True)
    monkeypatch.setenv("ORTMODULE_SAVE_ONNX_PATH", str(tmp_path / "missing"))
    with pytest.raises(OSError, match="cannot be saved"):
        DebugOptions(save_onnx=True, onnx_prefix="x")


class Branches(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x if x.sum() > 0 else -x


def test_a_disabled_fallback_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTMODULE_FALLBACK_POLICY", "FALLBACK_DISABLE")
    with pytest.raises(rekindle.errors.FallbackError):
        ORTModule(Branches())(rows())
    monkeypatch.setenv("ORTMODULE_FALLBACK_POLICY", "FALLBACK_UNSUPPORTED_DATA|FALLBACK_UNSUPPORTED_TORCH_MODEL")
    ORTModule(Branches())(rows())
    monkeypatch.setenv("ORTMODULE_FALLBACK_POLICY", "NEVER")
    with pytest.raises(rekindle.errors.OptionError, match="'NEVER'"):
        ORTModule(Branches())


def test_settings_without_meaning_are_one_warning_each(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTMODULE_SKIPCHECK_POLICY", "SKIP_CHECK_DISABLED")
    monkeypatch.setenv("ORTMODULE_FOO", "1")
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        ORTModule(mlp())
    messages = [str(warning.message) for warning in found]
    assert len(messages) == 2
    assert "ORTMODULE_FOO is not known" in messages[0]
    assert "ORTMODULE_SKIPCHECK_POLICY has no meaning" in messages[1]


@pytest.mark.parametrize("level", [0, 1, 2])
def test_a_level_of_recomputation_is_taken_over(level: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTMODULE_MEMORY_OPT_LEVEL", str(level))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = ORTModule(mlp())
    assert model._runtime._options.memory_level == level
    assert model(rows()).shape == (5, 3)


@pytest.mark.parametrize("level", [None, "0"])
def test_a_list_of_subgraphs_is_taken_over(
    level: str | None, monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.json"
    config.write_text('["BiasGelu+:1:-1", "FusedMatMul+Add+:0:-1"]')
    monkeypatch.setenv("ORTMODULE_MEMORY_OPT_CONFIG", str(config))
    if level is not None:
        monkeypatch.setenv("ORTMODULE_MEMORY_OPT_LEVEL", level)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = ORTModule(mlp())
    options = model._runtime._options
    assert options.memory_level is None
    assert options.memory_plan.recompute == (("BiasGelu", -1), ("FusedMatMul+Add", 0))
    model(rows()).sum().backward()
    said = capfd.readouterr().err
    assert f"{config} asks to compute again what the graph does not have: BiasGelu; the graph has" in said


def test_a_list_of_subgraphs_that_is_none_is_an_error(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setenv("ORTMODULE_MEMORY_OPT_CONFIG", str(tmp_path / "none.json"))
    with pytest.raises(rekindle.errors.OptionError, match=r"ORTMODULE_MEMORY_OPT_CONFIG is '.*none\.json', which cannot be read"):
        ORTModule(mlp())
    monkeypatch.setenv("REKINDLE_MEMORY_LEVEL", "1")  # an own variable wins
    assert ORTModule(mlp())._runtime._options.memory_plan is None


def test_a_list_of_subgraphs_is_for_level_0(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> None:
    monkeypatch.setenv("ORTMODULE_MEMORY_OPT_CONFIG", str(tmp_path / "none.json"))
    monkeypatch.setenv("ORTMODULE_MEMORY_OPT_LEVEL", "1")
    with pytest.warns(UserWarning, match="ORTMODULE_MEMORY_OPT_CONFIG has no effect at ORTMODULE_MEMORY_OPT_LEVEL=1"):
        options = ORTModule(mlp())._runtime._options
    assert (options.memory_level, options.memory_plan) == (1, None)


def test_the_own_variable_wins_over_a_level(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTMODULE_MEMORY_OPT_LEVEL", "2")
    monkeypatch.setenv("REKINDLE_MEMORY_BUDGET", "2GiB")
    options = ORTModule(mlp())._runtime._options
    assert (options.memory_budget, options.memory_level) == (2 << 30, None)


def test_a_level_that_there_is_not_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ORTMODULE_MEMORY_OPT_LEVEL", "3")
    with pytest.raises(rekindle.errors.OptionError, match="'memory_level' is '3'; it must be 0, 1 or 2"):
        ORTModule(mlp())
