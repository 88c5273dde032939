"""Models and layers of libraries whose forwards apply autograd Functions run from the graph, in a new process too."""

from __future__ import annotations

import json
import os
import pathlib
import socket

import python_process

_DIRECTORY = pathlib.Path(__file__).parent


def run(kind: str, cache: pathlib.Path, ranks: int = 0) -> list[dict[str, str]]:
    """What each process found to differ from eager."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "REKINDLE_CACHE_DIR": str(cache), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    programs = [["function_users.py", kind, *([str(rank)] if ranks else [])] for rank in range(max(ranks, 1))]
    processes = [python_process.Process(*program, cwd=_DIRECTORY, env=environment) for program in programs]
    found = []
    for process in processes:
        output, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors[-4000:]
        found.append(json.loads(output.splitlines()[-1]))
    return found


def test_models_train_as_in_eager(tmp_path: pathlib.Path) -> None:
    for kind in ("cold", "warm"):
        (differences,) = run(kind, tmp_path)
        assert differences.keys() == {"checkpointed, re-entrant", "checkpointed, not re-entrant", "quantized"}
        wrong = {name: text for name, text in differences.items() if text and not text.startswith("not installed")}
        assert not wrong, kind


def test_parallel_layers_train_as_in_eager_on_two_ranks(tmp_path: pathlib.Path) -> None:
    assert run("cold", tmp_path, 2) + run("warm", tmp_path, 2) == [{"parallel": ""}] * 4
