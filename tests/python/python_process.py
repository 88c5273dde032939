"""Starts Python processes that have imported torch already: forks of a server, which spare each start two seconds.

    done = python_process.run("-c", "import sys, torch; print(sys.argv[1])", "x", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "x\\n"), done.stderr

Such a process differs from any other in what the interpreter settles before it runs anything (its options, the hash seed, what
/proc says of it), and in that torch was imported first, though nothing of rekindle. A test that is about these uses subprocess.
"""

from __future__ import annotations

import array
import atexit
import functools
import json
import os
import pathlib
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping

_SERVER = pathlib.Path(__file__).with_name("python_process_server.py")
_INHERITED = ("PYTHONHASHSEED", "OMP_NUM_THREADS")  # what a fork has from the server, whatever its environment says


def run(
    *arguments: str,
    cwd: pathlib.Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout: float = 300,
    check: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Runs `python arguments...`, as subprocess.run does with capture_output and text; arguments begin with -c or a file."""
    process = Process(*arguments, cwd=cwd, env=env)
    out, err = process.communicate(timeout)
    assert process.returncode is not None
    done = subprocess.CompletedProcess(["python", *arguments], process.returncode, out, err)
    if check:
        done.check_returncode()
    return done


class Process:
    """Runs `python arguments...` at once, with stdout and stderr in pipes, as subprocess.Popen does."""

    def __init__(self, *arguments: str, cwd: pathlib.Path | None = None, env: Mapping[str, str] | None = None) -> None:
        environment = dict(os.environ if env is None else env)
        for name in _INHERITED:
            assert environment.get(name) == os.environ.get(name), f"a fork cannot have another {name}; use subprocess"
        self.returncode: int | None = None
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(_address())
        (out, out_end), (err, err_end) = os.pipe(), os.pipe()
        self.stdout, self.stderr = os.fdopen(out), os.fdopen(err)
        request = json.dumps({"arguments": arguments, "cwd": str(cwd or os.getcwd()), "environment": environment})
        ends = array.array("i", [out_end, err_end])
        self._connection.sendmsg([b"\0"], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, ends)])
        self._connection.sendall(request.encode() + b"\n")
        os.close(out_end)
        os.close(err_end)
        self._replies = self._connection.makefile()
        self.pid = int(self._replies.readline())

    def communicate(self, timeout: float = 300) -> tuple[str, str]:
        """Returns what the process wrote to stdout and stderr, once it has ended; kills it after so many seconds, and raises."""
        texts: dict[str, str] = {}
        readers = [
            threading.Thread(target=lambda name, stream: texts.update({name: stream.read()}), args=pair, daemon=True)
            for pair in (("out", self.stdout), ("err", self.stderr))
        ]
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join(timeout)
            if reader.is_alive():
                self.kill()
                raise subprocess.TimeoutExpired(f"process {self.pid}", timeout)
        self.wait()
        return texts["out"], texts["err"]

    def wait(self) -> int:
        """Returns the exit status once the process has ended: minus the signal that ended it, if one did."""
        if self.returncode is None:
            self.returncode = int(self._replies.readline())
            self._connection.close()
        return self.returncode

    def poll(self) -> int | None:
        """Returns what wait() does, and None if the process still runs."""
        return self.wait() if self.returncode is not None or select.select([self._connection], [], [], 0)[0] else None

    def kill(self) -> None:
        """Ends the process, if it runs."""
        if self.returncode is None:
            os.kill(self.pid, signal.SIGKILL)
            self.wait()


@functools.cache
def _address() -> str:
    """Returns where the server listens, which lives as long as this process."""
    directory = tempfile.TemporaryDirectory(prefix="rekindle-python-")
    address = str(pathlib.Path(directory.name) / "socket")
    server = subprocess.Popen([sys.executable, str(_SERVER), address], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert server.stdin is not None and server.stdout is not None

    def end() -> None:
        assert server.stdin is not None
        server.stdin.close()
        server.wait(60)
        directory.cleanup()

    atexit.register(end)
    assert server.stdout.readline() == b"ready\n"
    return address
