"""A forward that writes to stdout or stderr does so at each call; a write under a condition that is off costs no graph."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import pathlib
import sys
from collections.abc import Callable

import pytest
import python_process
import rekindle
import torch
from kinds_support import guarded
from rekindle.key.values.walker import value_text
from rekindle.reasons import Bypass
from torch import nn

_say = functools.partial(print, "said", flush=True)
_LINES = ["first", "second"]


def _caught() -> None:
    with contextlib.suppress(Exception):
        _say()


WRITERS: dict[str, Callable[[], object]] = {
    "partial object": lambda: _say(),
    "for each": lambda: list(map(print, _LINES)),
    "key": lambda: max(_LINES, key=lambda line: functools.partial(print, line)() or line),
    "caught": _caught,
}


class Writing(nn.Module):
    def __init__(self, write: Callable[[], object]) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.write = write

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.write()
        return self.linear(x)


@pytest.mark.parametrize("name", WRITERS)
def test_what_functions_of_c_print_for_others_is_printed_at_each_call(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    WRITERS[name]()
    expected = capsys.readouterr()
    model = rekindle.Module(Writing(WRITERS[name]), rekindle.Options(log="off"))
    for _ in range(3):
        model(torch.ones(2, 4))
        assert capsys.readouterr() == expected
    assert [code for code, _ in rekindle.status(model).bypass] == ["side_effect"]


# Streams of a process of its own, for those of a test are pytest's.
_SCRIPT = """
import contextlib, functools, io, json, sys
import rekindle, torch
from torch import nn

out, err, emit = sys.stdout, sys.stderr, sys.stderr.write
say = functools.partial(print, "said", file=sys.stderr)

def shape(x):
    print("shape", tuple(x.shape), file=sys.stderr)

def passed_on(x):
    write = err.write
    list(map(write, ["said"]))

WRITERS = {
    "print": shape,
    "print to a global": lambda x: print("said", file=err),
    "write": lambda x: sys.stderr.write("said"),
    "partial object": lambda x: say(),
    "write for each": passed_on,
    "writelines for each": lambda x: list(map(err.writelines, [["said"]])),
    "kept method": lambda x: emit("said"),
    "kept method for each": lambda x: list(map(emit, ["said"])),
}

class Debugging(nn.Module):
    def __init__(self, write, debug):
        super().__init__()
        self.linear, self.write, self.debug = nn.Linear(4, 3), write, debug
    def forward(self, x):
        if self.debug:
            self.write(x)
        return self.linear(x)

class Off(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.debug = nn.Linear(4, 3), False
    def forward(self, x):
        if self.debug:
            print("shape", x.shape, file=sys.stderr)
            print("shape", x.shape, file=out)
        return self.linear(x)

def told(module):
    # Calls a wrapped module three times, and once more where stderr is another; says what it ran from.
    model, x = rekindle.Module(module, rekindle.Options(log="off")), torch.ones(2, 4)
    print("|", end="", file=sys.stderr, flush=True)
    for _ in range(3):
        model(x)
    status = rekindle.status(model)
    source, why = status.source, [code for code, _ in status.bypass]
    with contextlib.redirect_stderr(io.StringIO()):
        model(x)
    return source, why, rekindle.status(model).source

found = {name: told(Debugging(write, True)) for name, write in WRITERS.items()}
print(json.dumps([found, told(Off()), sorted(vars(err))]))
"""


def test_what_goes_to_stderr_is_written_at_each_call_and_a_condition_that_is_off_costs_no_graph() -> None:
    done = python_process.run("-c", _SCRIPT, cwd=pathlib.Path(__file__).parent, timeout=120, check=True)
    found, off, left = json.loads(done.stdout)
    for name, (source, why, _) in found.items():
        assert (source, why) == ("eager", ["opaque_value" if "kept" in name else "side_effect"]), name
    _, first, *others, nothing = done.stderr.split("|")
    assert (first, nothing) == (3 * "shape (2, 4)\n", "")
    # Three calls, and that in which stderr is another, where the stream was found before.
    assert [text.count("said") for text in others] == [4, 3, 4, 4, 4, 4, 4]
    assert off == ["export", [], "eager"]
    assert left == ["mode"]


@pytest.mark.parametrize("stream", [sys.__stdout__, sys.__stderr__], ids=["stdout", "stderr"])
def test_a_guard_sees_what_a_stream_of_the_process_is_set_to(stream: io.TextIOWrapper) -> None:
    guard, text, _ = guarded(stream)
    before = stream.errors
    assert guard.check()
    stream.reconfigure(errors="namereplace")
    try:
        assert not guard.check()
        assert value_text("value", stream) != text
    finally:
        stream.reconfigure(errors=before)
    assert value_text("value", stream) == text


def test_other_files_have_no_digest_nor_have_methods_that_are_kept(tmp_path: pathlib.Path) -> None:
    with open(tmp_path / "log", "w") as file, pytest.raises(Bypass, match=r"value is a _io\.TextIOWrapper"):
        value_text("value", file)
    assert sys.__stderr__ is not None
    with pytest.raises(Bypass, match=r"__self__ is a _io\.TextIOWrapper"):
        value_text("value", sys.__stderr__.write)
