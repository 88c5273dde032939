"""Memory that a process shares with others, in its helpers: theirs alone."""

from __future__ import annotations

import mmap
import pathlib
import time

import pytest
import torch
from background_support import no_helper_is_left, wrap  # noqa: F401  (a fixture for each test)
from module_support import mlp, rows
from rekindle import status
from rekindle.process import private_memory
from rekindle.process.helper import Helper, why_no_helper
from rekindle.process.shared_mappings import shared_mappings
from shared_memory_support import SHARED, after_a_helper_that_writes, of_file


@pytest.mark.parametrize("kind", SHARED)
def test_a_helper_reads_what_there_was_and_writes_nothing_here(kind: str, tmp_path: pathlib.Path) -> None:
    tensor = SHARED[kind](tmp_path)
    assert after_a_helper_that_writes(tensor) == b"0.0"
    assert tensor.tolist() == [2, 2, 2, 2]


@pytest.mark.parametrize("kind", SHARED)
def test_so_it_is_with_what_is_too_large_to_be_copied_at_once(
    kind: str, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private_memory, "_COPIED_BEFORE", 0)
    tensor = SHARED[kind](tmp_path)
    assert after_a_helper_that_writes(tensor) in (b"0.0", b"8.0")
    assert tensor.tolist() == [2, 2, 2, 2]


@pytest.mark.parametrize("copied_before", [0, 64 << 20])
def test_memory_behind_the_end_of_its_file_is_no_hindrance(
    copied_before: int, tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(private_memory, "_COPIED_BEFORE", copied_before)
    file = tmp_path / "pages"
    file.write_bytes(b"a" * 3 * mmap.PAGESIZE)
    with open(file, "r+b") as opened, mmap.mmap(opened.fileno(), 3 * mmap.PAGESIZE) as pages:
        opened.truncate(mmap.PAGESIZE)
        helper = Helper.start(lambda: pages[:2])
        while helper.check():
            time.sleep(0.005)
        assert helper.report() == b"aa"


def test_nothing_of_this_process_stays_mapped_twice() -> None:
    kept = torch.zeros(1 << 20).share_memory_()
    before = pathlib.Path("/proc/self/maps").read_text().count("\n")
    memory = private_memory.PrivateMemory()
    memory.let_go()
    assert pathlib.Path("/proc/self/maps").read_text().count("\n") <= before
    assert kept.sum() == 0


def test_a_call_waits_where_too_much_would_be_copied(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(private_memory, "_MOST_COPIED", 0)
    shared = torch.zeros(4).share_memory_()
    why = why_no_helper()
    assert why is not None and "shared with other processes" in why
    model = wrap(mlp())
    model(rows())
    assert status(model).source == "export"
    assert shared.sum() == 0


def test_a_file_is_not_copied(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mapped = of_file(tmp_path)
    found = [one for one in shared_mappings() if one.path == str(tmp_path / "numbers")]
    assert [one.has_file() for one in found] == [True]
    (tmp_path / "numbers").unlink()
    assert [one.has_file() for one in found] == [False]
    assert mapped.sum() == 0
