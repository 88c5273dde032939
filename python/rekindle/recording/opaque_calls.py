"""Finds calls that a graph could not stand for: which are to be told of, and for whom they are made."""

from __future__ import annotations

import logging
import warnings
from types import CodeType, FrameType, ModuleType
from typing import Any

import torch

from rekindle.process import world
from rekindle.process.origin import Origin, origin_of_frame
from rekindle.recording import pure_calls
from rekindle.recording.frames import beyond, frames_from

# What reads files, whoever calls it for the forward; by the names of functions, and of audited events.
_FILES = frozenset("open stat lstat access listdir scandir readlink os.listdir os.scandir from_file".split())
# What only does something: another reason, not another treatment.
EFFECTS = frozenset(
    """
    print write writelines flush system popen fork kill remove unlink rename mkdir rmdir start_new_thread _start_new_thread
    start_joinable_thread sleep putenv setattr os.system os.remove os.rename os.mkdir os.rmdir os.putenv subprocess.Popen
    time.sleep _thread.start_new_thread signal.signal alarm setswitchinterval setrecursionlimit umask cache_clear
    """.split()
)
# What does nothing: what a graph calls at each run may ask it, and is answered at each.
ASKS_ONLY = frozenset(
    """
    time time_ns perf_counter perf_counter_ns monotonic monotonic_ns process_time process_time_ns thread_time thread_time_ns
    clock_gettime clock_gettime_ns localtime gmtime ctime strftime now utcnow today urandom getrandom getpid getppid get_ident
    get_native_id getcwd getcwdb uname cpu_count sched_getaffinity getuid stat lstat access listdir scandir readlink id hash
    random getrandbits getstate get_num_threads get_num_interop_threads _getframe getrefcount getrecursionlimit isenabled
    get_count get_threshold gettrace getprofile getswitchinterval os.listdir os.scandir getcontext locked is_set data_ptr
    """.split()
)
# Modules whose calls are for what they say, not for the forward: places of warnings and of logged lines.
_ASIDE = ("linecache", "tokenize", "logging", "warnings")
# What the standard library calls for its own purposes, and does not tell of.
_OF_STDLIB = frozenset("id _getframe get_ident getrefcount getsizeof __enter__ __exit__ getrecursionlimit".split())
# Methods of a ProcessGroup, which C++ has; and what DistributedDataParallel calls.
COLLECTIVES = frozenset(
    "allreduce allreduce_coalesced reduce broadcast allgather allgather_coalesced _allgather_base "
    "allgather_into_tensor_coalesced reduce_scatter _reduce_scatter_base reduce_scatter_tensor_coalesced "
    "alltoall alltoall_base gather scatter send recv recv_anysource barrier monitored_barrier "
    "_broadcast_coalesced".split()
)
_ALL, _OTHERS = 1, 2  # sides: of the user and the standard library; of torch and the other libraries that versions stand for
_COLLECTIVE_FILES = ("torch/distributed/distributed_c10d.py", "torch/distributed/_functional_collectives.py")
_QUERIES = ("get_", "is_", "_")


def writes_log(code: CodeType) -> bool:
    """Tells whether the code runs when, and only when, a logger that is enabled is written to."""
    return code.co_name == "_log" and code.co_filename == logging.Logger._log.__code__.co_filename


def is_collective(code: CodeType) -> bool:
    """Tells whether the code is a function by which the ranks of a job talk; one that only asks about the job is not."""
    name = code.co_name
    is_function = code.co_qualname == name  # methods there keep books, as of the groups that there are
    return is_function and code.co_filename.endswith(_COLLECTIVE_FILES) and not name.startswith(_QUERIES) and name.islower()


def is_collective_call(function: Any) -> bool:
    """Tells whether a C function with a watched name is a collective, not a namesake as torch.gather."""
    if function.__name__ not in COLLECTIVES:
        return False
    owner = getattr(function, "__self__", None)
    module = getattr(function, "__module__", None) or getattr(owner, "__name__", None) or type(owner).__module__
    return "distributed_c10d" in str(module) or "distributed_c10d" in type(owner).__module__


def side_of(frame: FrameType) -> int:
    """Returns the side that running code is on, as of interpreter_events.Sides."""
    origin = origin_of_frame(frame)
    if origin is Origin.REKINDLE:
        return 0
    return _ALL if origin in (Origin.USER, Origin.STDLIB) else _OTHERS


def judge(function: Any) -> int:
    """Returns the sides whose calls of a C function matter, as of interpreter_events.Judge."""
    name = getattr(function, "__name__", "")
    if is_collective_call(function) or function is print or function is warnings.warn or function is warnings.warn_explicit:
        return _ALL | _OTHERS
    if pure_calls.is_pure(function) and function is not hash:
        return 0
    return _ALL | (_OTHERS if name in _FILES else 0)


def caller_of(frame: FrameType, name: str) -> FrameType | None:
    """Returns the frame for which another calls what is not pure: None if for itself, as a logger asks for the time."""
    if name in _OF_STDLIB and origin_of_frame(frame) is Origin.STDLIB and frame.f_globals.get("__name__") != "traceback":
        return None
    others = name in _FILES or name == "print" or "." in name
    passed = (Origin.STDLIB, Origin.TORCH, Origin.LIBRARY) if others else (Origin.STDLIB,)
    return beyond(frame, passed, _ASIDE)


def what_is_done(name: str, function: Any = None) -> str:
    """Says what a call of what is not pure does, for a sentence.

    name: that of the function, or of the event of an audit
    function: the one of C that is called, if any
    """
    if name == "print":
        return "prints"
    if name in _FILES:
        return "opens or looks for a file"
    owner = getattr(function, "__self__", None)
    is_method = owner is not None and not isinstance(owner, ModuleType)
    kind = owner if isinstance(owner, type) else type(owner)
    called = f"{kind.__module__}.{kind.__qualname__}.{name}" if is_method else name
    return f"calls {called}()" + ("" if name in EFFECTS else ", which differs from run to run or between processes")


_FUNCTION_APPLY = torch.autograd.Function.apply.__func__.__code__  # type: ignore[attr-defined]


def runs_for_function(frame: FrameType) -> bool:
    """Tells whether the frame runs for a custom autograd Function."""
    return world.called_back.active or any(one.f_code is _FUNCTION_APPLY for one in frames_from(frame))
