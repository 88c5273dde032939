"""docs/memory.md shows what its commands print; REKINDLE_ACCEPT=1 writes the page again."""

from __future__ import annotations

import json
import os
import pathlib
import subprocess
import sys

import pytest

_ROOT = pathlib.Path(__file__).parents[2]
_PAGE = _ROOT / "docs" / "memory.md"
_ACCEPT = bool(os.environ.get("REKINDLE_ACCEPT"))  # read now: tests run without such variables


def _printed(*arguments: str, **variables: str) -> str:
    command = [sys.executable, str(_ROOT / "examples" / "memory.py"), *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | variables).stdout


def _compare(fence: str, start: str, expected: str) -> None:
    """Compares the one block of the page that begins so with what is expected, or puts that in its place."""
    page = _PAGE.read_text()
    before, _, rest = page.partition(f"```{fence}\n{start}")
    assert rest, f"{_PAGE.name} has no block that begins with {start!r}"
    shown, _, after = f"{start}{rest}".partition("```\n")
    if _ACCEPT and shown != expected:
        _PAGE.write_text(f"{before}```{fence}\n{expected}```\n{after}")
        pytest.fail(f"rewrote {_PAGE}")
    assert shown == expected


def _excerpt(plan: pathlib.Path) -> str:
    """The first two rows of a memory plan, as the page shows them: a line each."""
    written = json.loads(plan.read_text())
    rows = ",\n".join(f"    {json.dumps(row)}" for row in written["subgraphs"][:2])
    head = "".join(f"  {json.dumps(name)}: {json.dumps(written[name])},\n" for name in ("version", "model"))
    return f'{{\n{head}  "subgraphs": [\n{rows}\n  ]\n}}\n'


def test_the_page_shows_what_its_command_prints_and_the_plan_of_it(tmp_path: pathlib.Path) -> None:
    printed = _printed("--plan", str(tmp_path / "plan.json"))
    _compare("json", "{\n", _excerpt(tmp_path / "plan.json"))
    _compare("", "memory of a training step of GPT", printed)


def test_the_page_shows_what_a_budget_prints() -> None:
    told = ("  saved for the backward", "  activations", "memory budget")
    lines = [line for line in _printed(REKINDLE_MEMORY_BUDGET="50%").splitlines() if line.startswith(told)]
    _compare("", "  saved for the backward", "".join(f"{line}\n" for line in lines))
