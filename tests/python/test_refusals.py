"""Why a call runs in eager is kept in the cache: the next process does not try again, until something is another."""

from __future__ import annotations

import json
import os
import pathlib
from typing import Any

import pytest
import python_process
import rekindle
import torch
from hypothesis import given
from hypothesis import strategies as st
from rekindle.lookup.entry import InvalidEntry
from rekindle.lookup.refusal import Refusal
from rekindle.lookup.store import flush
from rekindle.miss import pipeline
from rekindle.reasons import Reason
from torch import nn

_PROGRAM = """
import json, sys
import rekindle, torch
import refused_model

model = rekindle.Module(refused_model.Net())
sizes = json.loads(sys.argv[1])
found = []
for size in sizes:
    x = torch.arange(4.0 * size).view(size, 4)
    model(x)
    found.append(rekindle.status(model).source)
tried = "rekindle.export.torchscript.adapter" in sys.modules
print(json.dumps([found, tried, [code for code, _ in rekindle.status(model).bypass]]))
"""
_BRANCHES = """
import os
from torch import nn

FLAG = True

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.ReLU()

    def forward(self, x):
        y = self.layer(x)
        if FLAG and not os.environ.get("STRAIGHT") and y.sum() > 0:
            return y + 1
        return y + 2
"""


class _Processes:
    """Runs programs in fresh processes that share a model's source and a cache."""

    def __init__(self, directory: pathlib.Path, model: str) -> None:
        self.directory = directory
        self.model = model

    def run(self, *sizes: int, **environment: str) -> Any:
        """Calls the model once for each size; returns the sources, whether an export was tried, and the reasons."""
        (self.directory / "refused_model.py").write_text(self.model)
        arguments = "-c", _PROGRAM, json.dumps(sizes)
        done = python_process.run(*arguments, cwd=self.directory, env={**os.environ, **environment})
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


def test_the_next_process_does_not_try_what_was_refused(tmp_path: pathlib.Path) -> None:
    processes = _Processes(tmp_path, _BRANCHES)
    assert processes.run(4, 4) == [["eager", "eager"], True, ["value_specialized"]]
    assert processes.run(4, 4) == [["eager", "eager"], False, ["value_specialized"]]


@pytest.mark.parametrize("changed", ["code", "global", "environment", "size"])
def test_it_is_tried_again_once_something_is_another(changed: str, tmp_path: pathlib.Path) -> None:
    processes = _Processes(tmp_path, _BRANCHES)
    assert processes.run(4)[1]
    if changed == "size":  # of which nothing is known yet
        assert processes.run(5) == [["eager"], True, ["value_specialized"]]
        return
    if changed == "code":
        processes.model = _BRANCHES.replace("if FLAG and", "if FLAG and False and")
    if changed == "global":
        processes.model = _BRANCHES.replace("FLAG = True", "FLAG = False")
    environment = {"STRAIGHT": "1"} if changed == "environment" else {}
    assert processes.run(4, **environment) == [["export"], True, []]
    assert processes.run(4, **environment) == [["local"], False, []]
    processes.model = _BRANCHES
    assert processes.run(4) == [["eager"], False, ["value_specialized"]]


def test_calls_of_two_sizes_stand_for_all_sizes(tmp_path: pathlib.Path) -> None:
    processes = _Processes(tmp_path, _BRANCHES)
    processes.run(4, 5)
    assert processes.run(6, 7, 8) == [["eager"] * 3, False, ["value_specialized"]]


_LONG_ONES = _BRANCHES.replace("if FLAG and", "if x.shape[0] > 4 and")


def test_a_size_that_is_not_refused_has_its_graph(tmp_path: pathlib.Path) -> None:
    processes = _Processes(tmp_path, _LONG_ONES)
    assert processes.run(6, 3) == [["eager", "export"], True, ["value_specialized"]]
    assert processes.run(6, 3, 2) == [["eager", "local", "memory"], False, ["value_specialized"]]


_FILLS = """
from torch import nn

SEEN = []

class Net(nn.Module):
    def forward(self, x):
        if not SEEN:
            SEEN.append(1)
        return x * 2
"""


def test_what_a_first_call_does_is_done_in_eager_and_the_next_call_has_its_graph(tmp_path: pathlib.Path) -> None:
    processes = _Processes(tmp_path, _FILLS)
    assert processes.run(4, 4) == [["eager", "export"], True, ["state_mutated"]]
    assert processes.run(4, 4) == [["eager", "local"], False, ["state_mutated"]]


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.runs: list[int] | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        return y + 1 if y.sum() > 0 else y


def test_of_many_sizes_two_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    export = pipeline.export_entry

    def counting(*args: Any) -> Any:
        tried.append(1)
        return export(*args)

    monkeypatch.setattr(pipeline, "export_entry", counting)
    model = rekindle.Module(Branching(), rekindle.Options(cache="off"))
    for size in range(2, 20):
        model(torch.randn(size, 4))
    assert len(tried) == 2


def test_explain_tells_a_known_refusal() -> None:
    model = rekindle.Module(Branching())
    model(torch.randn(3, 4))
    flush()
    again = rekindle.explain(rekindle.Module(Branching()), torch.randn(3, 4))
    assert (again.outcome, again.reason) == ("bypass", "value_specialized")


def test_what_the_numbers_of_one_call_may_cause_is_believed_from_the_second_process_on() -> None:
    for reason in (Reason.VERIFICATION_FAILED, Reason.EXPORT_FAILED):
        assert not Refusal(reason, "why", processes=1).holds
        assert Refusal(reason, "why", processes=2).holds
    assert Refusal(Reason.SIDE_EFFECT, "why").holds


def test_a_section_reads_back() -> None:
    made = Refusal(Reason.SIDE_EFFECT, "net.py:3 prints", 2, 3)
    assert Refusal.parse(made.section()) == made


_FIELDS = st.sampled_from(["reason", "message", "tries", "processes"])
_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner) | st.dictionaries(_FIELDS, inner),
)


@given(st.binary(max_size=60) | _JSON.map(lambda value: json.dumps(value).encode()))
def test_what_is_no_section_is_told(section: bytes) -> None:
    try:
        made = Refusal.parse(section)
    except InvalidEntry:
        return
    assert isinstance(made.reason, Reason)
    assert type(made.message) is str
    assert type(made.tries) is int
