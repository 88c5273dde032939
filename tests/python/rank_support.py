"""Jobs of several ranks on this machine, for tests."""

from __future__ import annotations

import json
import os
import pathlib
import socket
from typing import Any

import python_process

_LIMIT = 240  # seconds for a job


def free_port() -> str:
    """Returns a port on which nobody listens now."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return str(listener.getsockname()[1])


def run_job(script: str, ranks: int, *arguments: str, **environment: str) -> list[dict[str, Any]]:
    """Runs a script in so many processes; returns the JSON object in the last line of each, with what it logged as "said".

    No script may end with an error.
    """
    job = environment | {"WORLD_SIZE": str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": free_port()}
    processes = [
        python_process.Process(
            "-c", script, *arguments, cwd=pathlib.Path(__file__).parent, env=os.environ | job | {"RANK": str(rank)}
        )
        for rank in range(ranks)
    ]
    try:
        found = []
        for process in processes:
            out, err = process.communicate(timeout=_LIMIT)
            assert process.returncode == 0, err
            found.append(json.loads(out.splitlines()[-1]) | {"said": err})
        return found
    finally:
        for process in processes:
            process.kill()
