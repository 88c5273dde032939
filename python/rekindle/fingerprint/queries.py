"""Questions about the process that a forward may ask: some can be asked again, the others differ from run to run."""

from __future__ import annotations

from collections.abc import Callable
from types import CodeType
from typing import Any

import torch

# Answered by torch without running code of the user's: the answer is an observation.
_REPEATABLE: dict[tuple[str, str], Callable[[], Any]] = {
    ("torch.distributed", "is_initialized"): torch.distributed.is_initialized
    if torch.distributed.is_available()
    else torch.distributed.is_available,
    ("torch.cuda", "is_available"): lambda: torch.cuda.is_available(),
    ("torch.cuda", "device_count"): lambda: torch.cuda.device_count(),
}
# Python functions, by the end of their file's name.
_ASKED = {("distributed_c10d.py", "is_initialized"): ("torch.distributed", "is_initialized")}
_ASKED |= {("cuda/__init__.py", name): ("torch.cuda", name) for name in ("is_available", "device_count")}
_DIFFERENT = {
    "threading.py": {"current_thread", "active_count", "enumerate"},
    "multiprocessing/process.py": {"current_process", "parent_process", "active_children"},
    "platform.py": {"node", "uname"},
    "getpass.py": {"getuser"},
    "torch/random.py": {"initial_seed", "get_rng_state"},
    "distributed_c10d.py": {
        "get_rank", "get_world_size", "get_node_local_rank", "get_group_rank", "get_global_rank", "get_process_group_ranks",
    },
}  # fmt: skip
_DIFFERENT_IN_C = {
    "get_num_threads", "get_num_interop_threads", "getcwd", "getcwdb", "uname", "cpu_count", "sched_getaffinity", "getuid",
    "getlogin", "getppid", "getloadavg", "get_ident", "get_native_id", "_getframe", "__import__",
}  # fmt: skip
NAMES = frozenset(_DIFFERENT_IN_C | {"id", "hash"})


def asked(code: CodeType) -> tuple[str, str] | None:
    """The repeatable question that a Python function answers, if it is one."""
    for (file, name), question in _ASKED.items():
        if code.co_name == name and code.co_filename.endswith(file):
            return question
    return None


def answer(module: str, name: str) -> str | None:
    """The present answer to a repeatable question."""
    ask = _REPEATABLE.get((module, name))
    return None if ask is None else repr(ask())


def differs(code: CodeType) -> bool:
    """Whether a function tells of this process what another one would not repeat."""
    return any(code.co_name in names and code.co_filename.endswith(file) for file, names in _DIFFERENT.items())


def differs_in_c(function: Any) -> bool:
    """As `differs`, for a C function of a watched name."""
    if function.__name__ not in _DIFFERENT_IN_C:
        return False
    owner = getattr(function, "__self__", None)
    module = getattr(function, "__module__", None) or getattr(owner, "__name__", None)
    return module in ("posix", "nt", "sys", "_thread", "builtins", "torch._C") or function in (
        torch.get_num_threads,
        torch.get_num_interop_threads,
    )


def reads_address(function: Any) -> bool:
    """Whether a C function gives a number that depends on where an object lies or how strings are hashed."""
    return function is id or function is hash
