"""Bad settings, directories and entries: one clear message each, and training goes on with eager's results."""

from __future__ import annotations

import pathlib
import re
import shutil
import warnings
import weakref
from typing import Any

import pytest
import rekindle
import torch
from module_support import Twins, mlp, rows
from rekindle import _native, versions
from rekindle.errors import FallbackError, OptionError, UnsupportedEnvironmentError
from torch import nn


def test_unknown_options_and_values_are_errors() -> None:
    with pytest.raises(OptionError, match="unknown option 'cache_dri'; did you mean 'cache_dir'"):
        rekindle.Options(cache_dri="/tmp")
    with pytest.raises(OptionError, match="option 'cache' is 'sometimes'; it must be one of on, off"):
        rekindle.Options(cache="sometimes")


@pytest.mark.parametrize("wrong", [0, -1, True, 1.5, "0%", "101%", 0.0, "much", "-2GiB", float("nan"), float("inf"), [1]])
def test_a_memory_budget_is_bytes_or_a_share(wrong: Any) -> None:
    with pytest.raises(OptionError, match=r"option 'memory_budget' is .*it must be bytes, .* or a share above 0, up to 1"):
        rekindle.Options(memory_budget=wrong)


def test_memory_budgets(monkeypatch: pytest.MonkeyPatch) -> None:
    assert rekindle.Options(memory_budget="2GiB").memory_budget == 2 << 30
    assert rekindle.Options(memory_budget=1).memory_budget == 1
    for share in (0.5, "0.5", "50%"):
        found = rekindle.Options(memory_budget=share).memory_budget
        assert isinstance(found, float) and found == 0.5
    assert isinstance(rekindle.Options(memory_budget=1.0).memory_budget, float)
    assert rekindle.Options().memory_budget is None
    monkeypatch.setenv("REKINDLE_MEMORY_BUDGET", "300MiB")
    assert rekindle.Options().memory_budget == 300 << 20
    assert rekindle.Options().key_fields() == rekindle.Options(memory_budget=None).key_fields()


def test_variables_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REKINDLE_FALLBAK", "error")
    with pytest.warns(UserWarning, match="REKINDLE_FALLBAK; did you mean REKINDLE_FALLBACK"):
        rekindle.Options()
    monkeypatch.delenv("REKINDLE_FALLBAK")
    for name in ("REKINDLE_CUDA", "REKINDLE_BUNDLE", "REKINDLE_KEY_SALT"):
        monkeypatch.setenv(name, "ON")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rekindle.Options()
    monkeypatch.setenv("REKINDLE_CACHE", "never")
    with pytest.raises(OptionError, match="REKINDLE_CACHE is 'never'"):
        rekindle.Options()
    assert rekindle.Options(cache="off").cache == "off"  # an explicit argument wins


def test_variables_of_the_build_the_scripts_and_the_tests_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    root = pathlib.Path(__file__).parents[2]
    read = set(re.findall(r"^(?:option|set)\((REKINDLE_\w+)", (root / "CMakeLists.txt").read_text(), re.MULTILINE))
    for script in filter(pathlib.Path.is_file, (root / "scripts").iterdir()):
        read |= set(re.findall(r"\$\{?(REKINDLE_\w+)", script.read_text()))
    for source in (*(root / "tests").rglob("*.h"), *(root / "tests").rglob("*.py")):
        read |= set(re.findall(r"(?:getenv|environ\.get)\(\"(REKINDLE_\w+)", source.read_text()))
    read = {name for name in read if not name.startswith("REKINDLE_TEST_")}  # between a test and its child
    assert read >= {"REKINDLE_ACCEPT", "REKINDLE_CUDA", "REKINDLE_FUZZ_SECONDS"}
    for name in read:
        monkeypatch.setenv(name, "ON")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rekindle.Options()


def warned(capfd: pytest.CaptureFixture[str]) -> list[str]:
    return [line for line in capfd.readouterr().err.splitlines() if "warning" in line]


def populate() -> None:
    Twins(mlp()).call(rows())
    rekindle.cache.stats()  # waits until it is stored


def test_a_missing_directory_is_made(tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]) -> None:
    directory = tmp_path / "a" / "b"
    twins = Twins(mlp(), cache_dir=directory)
    twins.call(rows())
    assert rekindle.cache.stats(directory)["stores"] == 1
    assert twins.status.cache_dir == str(directory)
    assert warned(capfd) == []


def test_a_directory_is_that_of_when_it_was_named(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    options = rekindle.Options(cache_dir="here", start="wait")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    rekindle.Module(mlp(), options)(rows())
    assert rekindle.cache.stats(tmp_path / "here")["stores"] == 1
    assert not [*pathlib.Path.cwd().iterdir()]


@pytest.mark.parametrize(("name", "wrong"), [("cache_dir", 5), ("cache_dir", "a\0b"), ("remote", 5), ("remote", b"file:///x")])
def test_what_is_no_path_or_text_is_an_error(name: str, wrong: Any) -> None:
    with pytest.raises(OptionError, match=f"option '{name}' is .*it must be"):
        rekindle.Options(**{name: wrong})


@pytest.mark.parametrize("wrong", ["ftp://x", "x", "memcached://host", "file:relative", "file:///ok; ftp://x"])
def test_a_remote_of_no_known_kind_is_an_error_at_once(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(OptionError, match=r"option 'remote' is .* names no kind of tier; known: .*file"):
        rekindle.Options(remote=wrong)
    monkeypatch.setenv("REKINDLE_REMOTE", wrong)
    with pytest.raises(OptionError, match=r"REKINDLE_REMOTE is .* names no kind of tier"):
        rekindle.Options()


def test_a_directory_whose_path_is_no_text_is_an_error() -> None:
    with pytest.raises(OptionError, match=r"'cache_dir' is '/tmp/.*', which is not UTF-8; choose"):
        rekindle.Options(cache_dir=b"/tmp/\xff")


def test_a_tilde_is_the_home_of_the_user(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert rekindle.Options(cache_dir="~/here").cache_dir == str(tmp_path / "here")
    monkeypatch.setenv("REKINDLE_CACHE_DIR", "~/there")
    assert rekindle.Options().cache_dir == str(tmp_path / "there")
    assert _native.default_cache_dir() == str(tmp_path / "there")


def _file(directory: pathlib.Path) -> None:
    directory.write_text("not a directory")


def _below_a_file(directory: pathlib.Path) -> None:
    directory.parent.mkdir()
    directory.parent.rmdir()
    directory.parent.write_text("not a directory")


def _open_to_all(directory: pathlib.Path) -> None:
    directory.mkdir()
    directory.chmod(0o777)


@pytest.mark.parametrize("spoil", [_file, _below_a_file, _open_to_all])
def test_a_directory_that_cannot_be_used_is_one_warning(
    spoil: Any, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    directory = tmp_path / "parent" / "cache"
    if spoil is not _below_a_file:
        directory.parent.mkdir()
    spoil(directory)
    twins = Twins(mlp(), cache_dir=directory, fallback="error")
    for step in range(3):
        twins.call(rows(step))
    assert twins.status.source == "export"
    [message] = warned(capfd)
    assert str(directory.parent) in message


def test_a_device_without_a_session_runs_in_eager(capfd: pytest.CaptureFixture[str]) -> None:
    twins = Twins(mlp().to("meta"))
    for _ in range(2):
        assert twins.wrapped(rows().to("meta")).device.type == "meta"
    assert twins.reasons() == ["unsupported_device"]
    assert len(warned(capfd)) == 1


def test_another_torch_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "__version__", "1.13.0")
    with pytest.raises(UnsupportedEnvironmentError, match=r"torch 1\.13\.0 is installed; build it again"):
        versions.check_environment()


def test_a_damaged_cache_is_exported_anew(
    cache_dir: pathlib.Path, tmp_path: pathlib.Path, capfd: pytest.CaptureFixture[str]
) -> None:
    populate()
    pristine = tmp_path / "pristine"
    shutil.copytree(cache_dir, pristine)
    files = [path.relative_to(pristine) for path in sorted(pristine.rglob("*")) if path.is_file() and path.stat().st_size]
    assert files
    for path in files:
        shutil.rmtree(cache_dir)
        shutil.copytree(pristine, cache_dir)
        damaged = bytearray((cache_dir / path).read_bytes())
        for at in range(0, len(damaged), 3):
            damaged[at] ^= 0x5A
        (cache_dir / path).write_bytes(bytes(damaged))
        capfd.readouterr()
        for _ in range(2):
            twins = Twins(mlp(), fallback="error")
            twins.call(rows())
            assert twins.status.source in ("local", "export")
            rekindle.lookup.store.flush()
        assert len(warned(capfd)) <= 3, path


def test_modes_of_the_cache() -> None:
    off = Twins(mlp(), cache="off")
    off.call(rows())
    assert off.status.source == "export"
    assert off.status.cache_dir is None
    reader = Twins(mlp(), cache="readonly")
    reader.call(rows())
    assert reader.status.source == "export"
    populate()
    assert rekindle.cache.stats()["stores"] == 1
    reader = Twins(mlp(), cache="readonly")
    reader.call(rows())
    assert reader.status.source == "local"
    for mode, source in (("refresh", "export"), ("verify", "local"), ("strict", "local"), ("on", "local")):
        twins = Twins(mlp(), cache=mode)
        twins.call(rows())
        assert twins.status.source == source, mode
        assert (twins.status.verify_seconds > 0) == (mode in ("refresh", "verify"))
        rekindle.lookup.store.flush()
    stats = rekindle.cache.stats()
    assert (stats["stores"], stats["entries"]) == (2, 1)


@pytest.mark.parametrize("options", [{"fallback": "error"}, {"cache": "strict"}])
def test_eager_can_be_forbidden(options: dict[str, str]) -> None:
    twins = Twins(mlp(), **options)
    twins.wrapped.first.register_full_backward_hook(lambda *_: None)
    with pytest.raises(FallbackError, match=r"hooks: model\.first has a backward hook"):
        twins.wrapped(rows())
    assert rekindle.cache.stats()["bypass_codes"] == {"hooks": 1}


class WithProxy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.act = nn.Linear(4, 4), nn.ReLU()
        self.peer = weakref.proxy(self.act)  # which torch registers as a child

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x)


def test_a_child_that_is_a_proxy_of_what_is_gone_is_no_error_of_the_call(tmp_path: Any) -> None:
    module = WithProxy()
    wrapped = rekindle.Module(module, options=rekindle.Options(start="wait", cache_dir=str(tmp_path)))
    x = torch.ones(2, 4)
    torch.testing.assert_close(wrapped(x), module(x))
    module.act = nn.ReLU()
    for _ in range(2):
        torch.testing.assert_close(wrapped(x), module(x))
    assert rekindle.status(wrapped).source == "eager"
