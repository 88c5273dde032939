"""Models and layers of libraries whose forwards apply autograd Functions run from the graph, in a new process too."""

from __future__ import annotations

import json
import os
import pathlib
import socket
import subprocess
import sys

import pytest

_DIRECTORY = pathlib.Path(__file__).parent


def run(kind: str, cache: pathlib.Path, ranks: int = 0) -> list[dict[str, str]]:
    """What each process found to differ from eager."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "REKINDLE_CACHE_DIR": str(cache), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    commands = [[sys.executable, "function_users.py", kind, *([str(rank)] if ranks else [])] for rank in range(max(ranks, 1))]
    processes = [
        subprocess.Popen(command, cwd=_DIRECTORY, env=environment, stdout=-1, stderr=-1, text=True) for command in commands
    ]
    found = []
    for process in processes:
        output, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors[-4000:]
        found.append(json.loads(output.splitlines()[-1]))
    return found


@pytest.fixture(scope="module")
def cold_and_warm(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, str]]:
    cache = tmp_path_factory.mktemp("users")
    return [*run("cold", cache), *run("warm", cache)]


@pytest.mark.parametrize("name", ["checkpointed, re-entrant", "checkpointed, not re-entrant", "quantized"])
def test_models_train_as_in_eager(name: str, cold_and_warm: list[dict[str, str]]) -> None:
    if cold_and_warm[0][name].startswith("not installed"):
        pytest.skip(cold_and_warm[0][name])
    assert [differences[name] for differences in cold_and_warm] == ["", ""]


def test_parallel_layers_train_as_in_eager_on_two_ranks(tmp_path: pathlib.Path) -> None:
    assert run("cold", tmp_path, 2) + run("warm", tmp_path, 2) == [{"parallel": ""}] * 4
