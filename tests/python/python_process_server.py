"""Forks a Python process for each connection to a socket; see python_process.py, which starts it with the socket's path.

A connection sends a byte with the two descriptors of stdout and stderr, then one line: {"arguments", "cwd", "environment"}. It
gets a line with the number of the process, and one with its exit status; if it ends before, so does the process. The server ends
when its standard input does.
"""

from __future__ import annotations

import array
import contextlib
import importlib
import json
import os
import random
import select
import signal
import socket
import sys
import types
from typing import Any

import numpy
import torch  # noqa: F401 (what takes long)

_ENDS = 2  # descriptors


def accepted(address: str) -> dict[str, Any]:
    """Serves; returns in each process that is to run a program, with what was asked for."""
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(address)
    listener.listen()
    print("ready", flush=True)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # those that wait for programs leave nothing behind
    while True:
        ready, _, _ = select.select([listener, sys.stdin], [], [])
        if sys.stdin in ready:
            os._exit(0)
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            request = _forked(connection)
            if request is not None:
                return request
            os._exit(0)
        connection.close()


def _forked(connection: socket.socket) -> dict[str, Any] | None:
    """Forks once more; returns what is asked for in the new process and None in this one, after the other has ended."""
    ends = array.array("i")
    _, control, _, _ = connection.recvmsg(1, socket.CMSG_SPACE(_ENDS * ends.itemsize))
    ends.frombytes(control[0][2])
    request = json.loads(connection.makefile().readline())
    if (process := os.fork()) == 0:
        connection.close()
        nothing = os.open(os.devnull, os.O_RDONLY)
        for target, end in enumerate((nothing, *ends)):
            os.dup2(end, target)
            os.close(end)
        return request
    for end in ends:
        os.close(end)
    connection.sendall(f"{process}\n".encode())
    ended = os.pidfd_open(process)
    if ended not in select.select([ended, connection], [], [])[0]:  # nobody waits any more
        os.kill(process, signal.SIGKILL)
    _, status = os.waitpid(process, 0)
    with contextlib.suppress(BrokenPipeError):
        connection.sendall(f"{os.waitstatus_to_exitcode(status)}\n".encode())
    return None


def become(request: dict[str, Any]) -> tuple[types.CodeType, dict[str, Any]]:
    """Makes this process what `python arguments...` is when it begins to run a program; returns the program and its globals."""
    os.chdir(request["cwd"])
    before = os.environ.get("PYTHONPATH", "")
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.dont_write_bytecode = bool(os.environ.get("PYTHONDONTWRITEBYTECODE"))
    random.seed()
    numpy.random.seed()
    first, *rest = request["arguments"]
    is_text = first == "-c"
    sys.argv = ["-c", *rest[1:]] if is_text else [first, *rest]
    first = os.path.abspath(first)
    own = [os.path.dirname(os.path.abspath(__file__)), *filter(None, before.split(os.pathsep))]
    sys.path = [*_paths("" if is_text else os.path.dirname(first)), *(p for p in sys.path if p not in own)]
    importlib.invalidate_caches()
    main = types.ModuleType("__main__")
    main.__dict__.update({"__builtins__": __builtins__} if is_text else {"__builtins__": __builtins__, "__file__": first})
    sys.modules["__main__"] = main
    return compile(rest[0], "<string>", "exec", dont_inherit=True) if is_text else _compiled(first), main.__dict__


def _paths(first: str) -> list[str]:
    added = os.environ.get("PYTHONPATH", "")
    return [*([] if os.environ.get("PYTHONSAFEPATH") else [first]), *filter(None, added.split(os.pathsep))]


def _compiled(path: str) -> types.CodeType:
    with open(path, "rb") as file:
        return compile(file.read(), path, "exec", dont_inherit=True)


_this = sys.modules["__main__"]  # whose globals these functions need
exec(*become(accepted(sys.argv[1])))  # the interpreter ends as it does after any program
