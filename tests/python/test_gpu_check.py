"""scripts/gpu-check without a GPU: what it would run, how it judges, and what it writes into docs/cuda.md."""

from __future__ import annotations

import json
import pathlib
import subprocess
import sys

import pytest

_CHECK = pathlib.Path(__file__).parents[1] / "gpu" / "gpu_check.py"
sys.path.insert(0, str(_CHECK.parent))
import gpu_check  # noqa: E402


def _run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(_CHECK), *arguments], capture_output=True, text=True, check=False)


def test_a_dry_run_lists_all_sections_with_their_commands() -> None:
    done = _run("--dry-run")
    assert done.returncode == 0
    for section in gpu_check.SECTIONS:
        assert f"{section.name} " in done.stdout and " ".join(section.command("cuda")) in done.stdout
    assert sum(section.seconds for section in gpu_check.SECTIONS) <= 560


def test_without_a_gpu_a_section_is_wrong_and_says_why() -> None:
    done = _run("environment", "--device", "no_such_device")
    assert done.returncode == 1 and "environment" in done.stdout


def test_a_suite_counts_what_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    outcomes = [{"name": "add#0", "right": False, "reason": "output 0 is off"}, {"name": "mul#0", "right": True, "reason": ""}]
    printed = json.dumps({"counts": {"onnx": 1, "wrong": 1, "skipped": 2}, "outcomes": outcomes})
    found = gpu_check._found(printed)
    assert found is not None
    assert (found["right"], found["wrong"], found["skipped"]) == (1, ["add#0: output 0 is off"], 2)
    assert gpu_check._found("Segmentation fault") is None


def test_the_table_takes_the_place_of_the_one_before(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    docs = tmp_path / "cuda.md"
    docs.write_text(f"# CUDA\n\n{gpu_check._BEGIN}\n\nNothing yet.\n\n{gpu_check._END}\n\n## After\n")
    monkeypatch.setattr(gpu_check, "_DOCS", docs)
    sections = [{"name": "calls", "what": "", "right": 3, "wrong": [], "skipped": 0, "seconds": 1.5}]
    for _ in range(2):
        gpu_check.write_docs({"device": "a GPU", "date": "2030-01-01", "sections": sections})
    text = docs.read_text()
    assert "| calls | 3 | 0 | 0 | 1.5 |" in text and "Nothing yet" not in text
    assert text.count(gpu_check._BEGIN) == 1 and text.endswith("## After\n")


def test_the_document_has_a_place_for_the_table() -> None:
    text = gpu_check._DOCS.read_text()
    assert text.count(gpu_check._BEGIN) == text.count(gpu_check._END) == 1
