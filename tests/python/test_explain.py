"""rekindle.explain names what changed, and changes nothing itself."""

from __future__ import annotations

import json
import pathlib
import types
from collections.abc import Callable
from typing import Any

import changing_model
import pytest
import python_process
import rekindle
import torch
from changing_model import Reader
from module_support import rows
from torch import nn


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A cache with one entry: a Reader in training."""
    directory = str(tmp_path_factory.mktemp("filled"))
    rekindle.Module(Reader(), rekindle.Options(cache_dir=directory))(rows())
    rekindle.lookup.store.flush()
    return directory


def explain(directory: str, module: nn.Module | None = None, x: torch.Tensor | None = None) -> rekindle.Explanation:
    wrapped = rekindle.Module(module or Reader(), rekindle.Options(cache_dir=directory))
    return rekindle.explain(wrapped, rows() if x is None else x)


def edited(function: types.FunctionType, old: str, new: str) -> types.CodeType:
    """The function's code, compiled from an edited source."""
    source = pathlib.Path(changing_model.__file__).read_text()
    assert source.count(old) == 1
    space: dict[str, Any] = {"__name__": "changing_model"}
    exec(compile(source.replace(old, new), changing_model.__file__, "exec"), space)
    for part in function.__qualname__.split("."):
        space = space[part] if isinstance(space, dict) else vars(space)[part]
    return space.__code__


def test_a_hit_names_its_entry(filled: str) -> None:
    why = explain(filled)
    assert (why.outcome, why.reason, why.differences) == ("hit", "", ())
    assert why.nearest is not None
    assert why.nearest.id == rekindle.cache.ls(filled)[0]["id"]
    assert why.nearest.equal == why.nearest.total > 5


def test_a_cold_cache_is_not_even_created(tmp_path: pathlib.Path) -> None:
    why = explain(str(tmp_path / "none"))
    assert (why.outcome, why.reason, why.nearest) == ("miss", "cold", None)
    assert not (tmp_path / "none").exists()


def test_another_model_is_cold(filled: str) -> None:
    assert explain(filled, nn.Linear(4, 4)).reason == "cold"


Change = Callable[[pytest.MonkeyPatch, Reader], Any]
FORWARD = "model.class changing_model.Reader.forward"
HELPED = "global changing_model:helper"
LINEAR = "model.linear.class torch.nn.modules.linear.Linear.forward"


def recompiled(function: types.FunctionType, old: str, new: str) -> Change:
    return lambda m, _: m.setattr(function, "__code__", edited(function, old, new))


# what: (reason, path, (path's end, old, new), change)
CHANGES: dict[str, tuple[str, str, tuple[str, str, str], Change]] = {
    "global": (
        "observations",
        "global changing_model:SCALE",
        ("", "2.0", "3.0"),
        lambda m, _: m.setattr(changing_model, "SCALE", 3.0),
    ),
    "global's item": (
        "observations",
        "global changing_model:TABLE",
        ("['shift']", "1.0", "2.0"),
        lambda m, _: m.setitem(changing_model.TABLE, "shift", 2.0),
    ),
    "environment": (
        "observations",
        "env CHANGING_MODEL",
        ("", "absent", "'on'"),
        lambda m, _: m.setenv("CHANGING_MODEL", "on"),
    ),
    "class attribute": (
        "key",
        "model.class changing_model.Reader.GAIN",
        ("", "1.5", "2.5"),
        lambda m, _: m.setattr(Reader, "GAIN", 2.5),
    ),
    "attribute": (
        "key",
        "model.settings['rate']",
        ("", "1.0", "2.0"),
        lambda m, module: m.setitem(module.settings, "rate", 2.0),
    ),
    "constant": (
        "key",
        FORWARD,
        (" constant", "0.5", "0.25"),
        recompiled(Reader.forward, "0.5)", "0.25)"),
    ),
    "global of the code": (
        "key",
        FORWARD,
        (" global", "SCALE", "RATE"),
        recompiled(Reader.forward, "* SCALE", "* RATE"),
    ),
    "operator of a helper": (
        "observations",
        HELPED,
        (" operator", "+", "-"),
        recompiled(changing_model.helper, "x + 1", "x - 1"),
    ),
    "order of operands": (
        "observations",
        HELPED,
        (" instructions", "5", "5, 2 differ"),
        recompiled(changing_model.helper, "x + 1", "1 + x"),
    ),
    "mode": ("key", "model.training", ("", "True", "False"), lambda m, module: module.eval()),
    "patched library": (
        "key",
        LINEAR,
        ("", "function Linear.forward", "function Bilinear.forward"),
        lambda m, _: m.setattr(nn.Linear, "forward", nn.Bilinear.forward),
    ),
    "ambient state": (
        "key",
        "ambient.cudnn.benchmark",
        ("", "False", "True"),
        lambda m, _: m.setattr(torch.backends.cudnn, "benchmark", True),
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_change_is_named(what: str, filled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    reason, path, (end, old, new), change = CHANGES[what]
    module = Reader()
    change(monkeypatch, module)
    why = explain(filled, module)
    assert (why.outcome, why.reason) == ("miss", reason)
    first = next(found for found in why.differences if found.path == path + end)
    assert first.old.startswith(old)
    assert first.new.startswith(new)
    assert first in list(why.differences)[:2], "what changed comes first"
    assert path in str(why)


def test_another_shape_is_named(filled: str) -> None:
    assert explain(filled, x=rows(count=7)).outcome == "hit"
    why = explain(filled, x=rows(count=1))
    assert [(found.path, found.old, found.new) for found in why.differences] == [("shape argument 0", "[s0, 4]", "[1, 4]")]


def test_a_version_is_its_own_reason(filled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "99.0")
    why = explain(filled)
    assert why.reason == "version"
    assert why.differences[0].path == "version.torch"


def test_what_cannot_run_from_a_graph_is_a_bypass(filled: str) -> None:
    module = Reader()
    module.linear.register_full_backward_hook(lambda *_: None)
    why = explain(filled, module)
    assert (why.outcome, why.reason) == ("bypass", "hooks")
    assert "model.linear has a backward hook" in str(why)


def test_what_became_of_an_entry_is_the_reason(tmp_path: pathlib.Path) -> None:
    directory = str(tmp_path)
    wrapped = rekindle.Module(Reader(), rekindle.Options(cache_dir=directory))
    wrapped(rows())
    rekindle.lookup.store.flush()
    [entry] = [path for path in (tmp_path / "objects").rglob("*") if path.is_file()]
    whole = entry.read_bytes()
    entry.write_bytes(whole[:100] + bytes([whole[100] ^ 1]) + whole[101:])
    assert explain(directory).reason == "corrupt"
    assert explain(directory).reason == "corrupt", "explaining repairs nothing"
    entry.write_bytes(whole)
    assert explain(directory).outcome == "hit"
    rekindle._native.ExportCache(directory).remove(rekindle.cache.ls(directory)[0]["id"])
    assert (explain(directory).outcome, explain(directory).reason) == ("miss", "removed")


def test_explaining_runs_and_writes_nothing(filled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: Any) -> None:
        raise AssertionError("explain runs no forward")

    before = {path: path.stat().st_mtime_ns for path in pathlib.Path(filled).rglob("*")}
    stats = rekindle.cache.stats(filled)
    module = Reader()
    monkeypatch.setattr(module, "settings", {"rate": 4.0})
    for hooked in (module, module.linear):
        monkeypatch.setattr(type(hooked), "__call__", forbidden)
    assert explain(filled, module).reason == "key"
    assert rekindle.cache.stats(filled) == stats
    assert {path: path.stat().st_mtime_ns for path in pathlib.Path(filled).rglob("*")} == before


def test_secrets_are_not_kept(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = Reader()
    module.api_key = "swordfish"
    monkeypatch.setenv("CHANGING_MODEL", "swordfish" * 20)
    directory = str(tmp_path)
    wrapped = rekindle.Module(module, rekindle.Options(cache_dir=directory))
    wrapped(rows())
    rekindle.lookup.store.flush()
    kept = rekindle._native.ExportCache(directory, True).leaves(rekindle.cache.ls(directory)[0]["id"])
    texts = json.dumps([kept.leaves, kept.parts])
    assert "model.api_key" in texts
    assert "swordfish" not in texts
    module.api_key = "trout"
    why = rekindle.explain(rekindle.Module(module, rekindle.Options(cache_dir=directory)), rows())
    assert [found.path for found in why.differences] == ["model.api_key"]


_TRAIN = """
import sys
import changing_model, module_support, rekindle
from module_support import rows

changing_model.SCALE = float(sys.argv[1])
model = rekindle.Module(changing_model.Reader())
model(rows())
print(rekindle.status(model).source)
"""


def _train(scale: float) -> tuple[str, str]:
    done = python_process.run("-c", _TRAIN, str(scale), cwd=pathlib.Path(__file__).parent)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip(), done.stderr


def test_a_miss_says_why_in_one_line_and_keeps_it() -> None:
    assert _train(2.0)[0] == "export"
    assert _train(2.0)[0] == "local"
    source, log = _train(3.0)
    assert source == "export"
    [line] = [line for line in log.splitlines() if "miss" in line]
    assert "observations" in line and "global changing_model:SCALE  2.0 -> 3.0" in line
    newest, oldest = rekindle._native.ExportCache("", True).misses()
    assert (oldest["reason"], newest["reason"]) == ("cold", "observations")
    assert newest["differences"] == [("global changing_model:SCALE", "2.0", "3.0", 1)]
    assert newest["model"] == "changing_model.Reader"
