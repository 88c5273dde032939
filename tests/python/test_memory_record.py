"""`rekindle.memory` returns a record that is JSON and draws itself; the option print_memory prints one before a call."""

from __future__ import annotations

import json
import pathlib
import sys

import pytest
import rekindle
import torch
from memory_support import ROWS, Net, wrapped


def test_a_record_is_json_and_frozen() -> None:
    account = rekindle.memory(wrapped(Net()), torch.randn(ROWS))
    found = json.loads(json.dumps(account.to_dict()))
    assert found["arena"] == account.arena
    assert found["growth"] == account.growth
    assert len(found["values"]) == len(account.values)
    with pytest.raises(AttributeError):
        account.arena = 0


def test_the_text_picture_shows_what_is_saved_through_the_backward() -> None:
    account = rekindle.memory(wrapped(Net()), torch.randn(ROWS))
    lines = account.text_picture(width=40, height=6).splitlines()
    drawn = [line for line in lines if line.startswith("|")]
    assert [len(line) for line in drawn] == [42] * 6
    ruler = lines[7]
    begin = ruler.index("b")
    assert any(line[begin - 1] == "s" and line[begin] == "s" for line in drawn)  # lives on from forward to backward
    assert ruler.count("^") == 1
    with pytest.raises(ValueError, match="has no room"):
        account.text_picture(width=0)


def test_the_png_is_written(tmp_path: pathlib.Path) -> None:
    pytest.importorskip("matplotlib")
    account = rekindle.memory(wrapped(Net()), torch.randn(ROWS))
    account.save(tmp_path / "memory.png")
    assert (tmp_path / "memory.png").read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_the_error_names_the_remedy(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    account = rekindle.memory(wrapped(Net()), torch.randn(ROWS))
    monkeypatch.delitem(sys.modules, "rekindle.account.picture", raising=False)
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match="pip install matplotlib"):
        account.save(tmp_path / "memory.png")


def test_accounts_are_printed_before_the_calls_asked_for(capfd: pytest.CaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REKINDLE_PRINT_MEMORY", "2,3")
    model, x = wrapped(Net()), torch.randn(ROWS)
    printed = []
    for _ in range(4):
        model(x).backward()
        printed.append(capfd.readouterr().err)
    assert [text.startswith("rekindle: call") for text in printed] == [False, True, True, False]
    assert "rekindle: call 2, memory of a training step of Net" in printed[1]


@pytest.mark.parametrize("value", ["0", "1,x", "-3", 5, (0,)])
def test_calls_to_print_at_that_are_none_are_errors(value: object) -> None:
    with pytest.raises(rekindle.errors.OptionError, match=r"option 'print_memory' is .*; it must be numbers of calls, 1 or more"):
        rekindle.Options(print_memory=value)


def test_printing_is_no_part_of_the_key() -> None:
    x = torch.randn(ROWS)
    wrapped(Net())(x)
    model = wrapped(Net(), print_memory=(7,))
    model(x)
    assert rekindle.status(model).source == "local"
