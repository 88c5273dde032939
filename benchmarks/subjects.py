"""Lists what the benchmark compares, and says what of it is not available on a machine."""

import ctypes.util
import functools
import importlib.util
import shutil
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from workloads import WORKLOADS

# Memory is taken from the heap, never by mmap, and not given back: a step does not fault its pages in again.
_KEEPS_MEMORY = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": str(2**40), "MALLOC_TOP_PAD_": str(2**26)}
_COMPILERS = ("c++", "g++", "clang++")


@dataclass(frozen=True)
class Subject:
    """Describes one way to train.

    variant: what trial.py runs
    settings: environment variables of its process
    directory: of its cache; subjects of the same directory share it within a round
    after: the subject that fills the cache which this one finds filled
    library: an allocator to preload, by the names under which it is installed
    expects: the sources, and codes of reasons, that rekindle.status may tell; empty for what is not Rekindle
    """

    about: str
    variant: str
    settings: Mapping[str, str] = field(default_factory=dict)
    directory: str = "none"
    after: str | None = None
    library: tuple[str, ...] = ()
    expects: frozenset[str] = frozenset()


_PRECOMPILE = {"TORCH_CACHING_PRECOMPILE": "1"}
SUBJECTS = {
    "eager": Subject("PyTorch as it is", "eager"),
    "eager-malloc": Subject("glibc's allocator keeps its memory (MALLOC_ settings)", "eager", _KEEPS_MEMORY),
    "eager-jemalloc": Subject("jemalloc preloaded", "eager", library=("jemalloc",)),
    "eager-tcmalloc": Subject("tcmalloc preloaded", "eager", library=("tcmalloc_minimal", "tcmalloc")),
    "compile-cold": Subject("torch.compile, no cache", "compile", directory="compile"),
    "compile-warm": Subject("torch.compile, its caches filled", "compile", directory="compile", after="compile-cold"),
    "precompile-cold": Subject("torch.compile that stores for precompile-warm", "compile", _PRECOMPILE, "precompile"),
    "precompile-warm": Subject(
        "torch.compile with TORCH_CACHING_PRECOMPILE=1, stored before", "compile", _PRECOMPILE, "precompile", "precompile-cold"
    ),
    "rekindle-cold": Subject(
        "Rekindle, no cache, waits", "rekindle", {"REKINDLE_START": "wait"}, "rekindle", expects=frozenset({"export"})
    ),
    "rekindle-background": Subject(
        "Rekindle, no cache, the graph is made in the background",
        "rekindle",
        {"REKINDLE_START": "background"},
        "rekindle-background",
        expects=frozenset({"eager", "background"}),
    ),
    "rekindle-warm": Subject(
        "Rekindle, its cache filled",
        "rekindle",
        {"REKINDLE_START": "wait"},
        "rekindle",
        "rekindle-cold",
        expects=frozenset({"local"}),
    ),
    "rekindle-replayed": Subject(
        "Rekindle, its cache filled, with CUDA graphs",
        "rekindle",
        {"REKINDLE_START": "wait", "REKINDLE_CUDA_GRAPHS": "true"},
        "rekindle",
        "rekindle-warm",
        expects=frozenset({"local"}),
    ),
    "rekindle-fused": Subject(
        "Rekindle, its cache filled, with fused kernels",
        "rekindle",
        {"REKINDLE_START": "wait", "REKINDLE_FUSED_KERNELS": "true"},
        "rekindle",
        "rekindle-warm",
        expects=frozenset({"local"}),
    ),
    "ortmodule": Subject("onnxruntime-training's ORTModule", "ortmodule"),
    "floor": Subject("the matrix products of a step alone", "floor", _KEEPS_MEMORY),
    "export": Subject("torch.onnx.export(dynamo=False), once; what has no ONNX op stays PyTorch's operator", "export"),
}
# Those whose steps Rekindle's are compared with.
PEERS = ("eager", "eager-malloc", "eager-jemalloc", "eager-tcmalloc", "compile-warm", "precompile-warm", "ortmodule")


def with_needed(names: Iterable[str]) -> list[str]:
    """Returns the subjects of these names in the order of the table, with eager and those that fill the caches of others."""
    needed = {"eager", *names}
    for name in reversed(SUBJECTS):  # a subject comes after what fills its caches
        if name in needed and (after := SUBJECTS[name].after) is not None:
            needed.add(after)
    return [name for name in SUBJECTS if name in needed]


def in_order(names: list[str], number: int) -> list[str]:
    """Returns the subjects of a round in the order in which it runs them: another goes first in each round."""
    groups: list[list[str]] = []
    for name in names:
        group = next((group for group in groups if SUBJECTS[name].after in group), None)
        if group is None:
            groups.append([name])
        else:
            group.append(name)
    shift = number % len(groups)
    return [name for group in groups[shift:] + groups[:shift] for name in group]


def preloaded(subject: Subject) -> dict[str, str]:
    """Returns the setting that preloads a subject's allocator, empty if it has none or this machine has not got it."""
    found = next(filter(None, map(ctypes.util.find_library, subject.library)), None)
    return {"LD_PRELOAD": found} if found is not None else {}


@functools.cache
def _why_not_imported(python: str, module: str) -> str | None:
    """Returns why an interpreter cannot import a module; None if it can."""
    done = subprocess.run([python, "-c", f"import {module}"], capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return None
    return f"{python} cannot import {module}: {(done.stderr.strip().splitlines() or ['no message'])[-1]}"


def why_absent(name: str, model: str, ortmodule: str | None) -> str | None:
    """Returns why a subject cannot run with a model here; None if it can.

    ortmodule: the interpreter that has onnxruntime-training
    """
    subject, library = SUBJECTS[name], WORKLOADS[model].library
    if subject.library and not preloaded(subject):
        return f"no lib{subject.library[0]} among the libraries of this machine (ldconfig -p)"
    if subject.variant == "compile" and not any(map(shutil.which, _COMPILERS)):
        return f"no C++ compiler ({', '.join(_COMPILERS)}) on PATH, which torch.compile needs"
    if subject.variant == "rekindle" and importlib.util.find_spec("rekindle") is None:
        return f"{sys.executable} cannot import rekindle: run ./scripts/setup"
    if subject.variant == "ortmodule":
        if ortmodule is None:
            return "--ortmodule PYTHON names no interpreter that has onnxruntime-training"
        modules = ["onnxruntime.training.ortmodule", *([library[0]] if library else [])]
        return next(filter(None, (_why_not_imported(ortmodule, module) for module in modules)), None)
    if library is not None and importlib.util.find_spec(library[0]) is None:
        return f"{sys.executable} has no {library[0]}, which the model is from"
    return None
