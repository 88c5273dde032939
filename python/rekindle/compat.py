"""Stands in for ORTModule for its users: the same names and the main ORTMODULE_ variables, over rekindle.Module.

    from rekindle.compat import DebugOptions, LogLevel, ORTModule
    model = ORTModule(model, DebugOptions(log_level=LogLevel.INFO))

Nothing is patched and no file descriptor is redirected. What has no meaning here is one warning that says so.
"""

from __future__ import annotations

import enum
import os
import pathlib
import re
import warnings
from typing import Any

import torch
from torch import nn

from rekindle.errors import OptionError
from rekindle.memory_plan import read_plan
from rekindle.module import Module
from rekindle.options import Options, variable_of


class LogLevel(enum.IntEnum):
    """Names severities, most talkative first; each is one of Options.log."""

    VERBOSE = 0
    DEVINFO = 1
    INFO = 2
    WARNING = 3
    ERROR = 4
    FATAL = 5


_LOG = ("debug", "debug", "info", "warning", "error", "off")
_READ = ("LOG_LEVEL", "SAVE_ONNX_PATH", "FALLBACK_POLICY", "CACHE_DIR", "MEMORY_OPT_LEVEL", "MEMORY_OPT_CONFIG")
# ORTModule has both on from the start. Here one has to be asked for: results with a row for each token get zeros.
_SPARSE = ("ENABLE_EMBEDDING_SPARSE_OPTIMIZER", "ENABLE_LABEL_SPARSE_OPTIMIZER")
# Safe by construction or chosen by measurement here: setting them changes nothing.
_WITHOUT_MEANING = re.compile(
    "SKIPCHECK_POLICY|FALLBACK_RETRY|ENABLE_.*|DEEPCOPY_BEFORE_MODEL_EXPORT|ALLOW_AUTOGRAD_CHECKPOINT|ONNX_OPSET_VERSION|"
    "ATEN_SDPA_FALLBACK|USE_.*|MEMORY_OPT_PROBE_.*|PRINT_.*|CONV_ALGO_SEARCH|TRITON_.*|TUNING_.*|MAX_TUNING_.*|SKIPPED_AUTOGRAD_FUNCTIONS"
)


class DebugOptions:
    """Says what ORTModule logs and saves.

    log_level: the environment variable ORTMODULE_LOG_LEVEL wins over it
    save_onnx: whether to write the exported graph of every call signature as
        `<onnx_prefix>_torch_exported_<training|inference>.onnx` into ORTMODULE_SAVE_ONNX_PATH, or the working directory
    onnx_prefix: the start of these files' names; needed with save_onnx
    config: not supported, must be None

    Raises TypeError, ValueError or OSError for a config, a level, a prefix or a directory that cannot be used.
    """

    def __init__(
        self,
        log_level: LogLevel | int | str = LogLevel.WARNING,
        save_onnx: bool = False,
        onnx_prefix: str = "",
        config: Any = None,
    ) -> None:
        if config is not None:
            raise TypeError("DebugOptions(config=...) is not supported: pass rekindle.Options to rekindle.Module instead")
        self.log_level = _level(os.environ.get("ORTMODULE_LOG_LEVEL") or log_level)
        self.save_onnx = save_onnx
        self.onnx_prefix = onnx_prefix
        self.save_path = pathlib.Path(os.environ.get("ORTMODULE_SAVE_ONNX_PATH") or ".")
        if save_onnx:
            if not onnx_prefix:
                raise ValueError("DebugOptions(save_onnx=True) needs an onnx_prefix, from which the files are named")
            if not os.access(self.save_path, os.W_OK | os.X_OK):
                raise OSError(f"ONNX graphs cannot be saved: {str(self.save_path)!r} is not a directory that can be written")


def _level(given: LogLevel | int | str) -> LogLevel:
    try:
        return LogLevel[given.upper()] if isinstance(given, str) and not given.isdigit() else LogLevel(int(given))
    except (KeyError, ValueError) as error:
        names = ", ".join(level.name for level in LogLevel)
        raise ValueError(f"log level {given!r} is none of {names}") from error


class ORTModule(Module):
    """Wraps a module as rekindle.Module does, and takes ORTModule's settings: `ORTModule(module)`.

    ORTMODULE_CACHE_DIR names the cache. ORTMODULE_FALLBACK_POLICY=FALLBACK_DISABLE makes every fallback an error.
    ORTMODULE_MEMORY_OPT_LEVEL is the memory level and, at level 0 or without one, ORTMODULE_MEMORY_OPT_CONFIG the file of the
    memory plan, unless REKINDLE_MEMORY_LEVEL, REKINDLE_MEMORY_BUDGET or REKINDLE_MEMORY_PLAN is set.
    ORTMODULE_ENABLE_EMBEDDING_SPARSE_OPTIMIZER=1 or ORTMODULE_ENABLE_LABEL_SPARSE_OPTIMIZER=1 is padding_elimination, unless
    REKINDLE_PADDING_ELIMINATION is set.
    """

    def __init__(self, module: nn.Module, debug_options: DebugOptions | None = None) -> None:
        debug = debug_options or DebugOptions()
        _warn_of_variables()
        given: dict[str, Any] = {"log": _LOG[debug.log_level]}
        if os.environ.get("ORTMODULE_FALLBACK_POLICY"):
            given["fallback"] = _fallback(os.environ["ORTMODULE_FALLBACK_POLICY"])
        if any(os.environ.get(f"ORTMODULE_{name}") == "1" for name in _SPARSE) and not os.environ.get(
            variable_of("padding_elimination")
        ):
            given["padding_elimination"] = True
        super().__init__(module, Options(**given, **_memory()))
        if debug.save_onnx:
            self._runtime.on_graph = _Saver(debug)


def _fallback(policy: str) -> str:
    known = {"FALLBACK_DISABLE", "FALLBACK_FORCE_TORCH_FORWARD", "FALLBACK_FORCE_TORCH_BACKWARD", "FALLBACK_UNSUPPORTED_DEVICE",
             "FALLBACK_UNSUPPORTED_DATA", "FALLBACK_UNSUPPORTED_TORCH_MODEL", "FALLBACK_UNSUPPORTED_ONNX_MODEL",
             "FALLBACK_BAD_INITIALIZATION"}  # fmt: skip
    names = set(policy.split("|"))
    if not names <= known:
        raise OptionError(f"ORTMODULE_FALLBACK_POLICY is {policy!r}; it must be of {', '.join(sorted(known))}, joined by '|'")
    return "error" if names == {"FALLBACK_DISABLE"} else "eager"


def _memory() -> dict[str, Any]:
    """Returns the option that steers memory, as ORTModule's variables have it; none where an own variable does."""
    if any(os.environ.get(variable_of(name)) for name in ("memory_level", "memory_budget", "memory_plan")):
        return {}
    level, config = (os.environ.get(f"ORTMODULE_MEMORY_OPT_{name}") for name in ("LEVEL", "CONFIG"))
    if config and (level or "0").strip() == "0":
        return {"memory_plan": read_plan(config, "ORTMODULE_MEMORY_OPT_CONFIG")}
    if config:
        warnings.warn(
            f"rekindle.compat: ORTMODULE_MEMORY_OPT_CONFIG has no effect at ORTMODULE_MEMORY_OPT_LEVEL={level}; set the level 0",
            stacklevel=4,
        )
    return {"memory_level": level} if level else {}


def _warn_of_variables() -> None:
    for name in sorted(os.environ):
        short = name.removeprefix("ORTMODULE_")
        if short == name or short in _READ + _SPARSE:
            continue
        known = _WITHOUT_MEANING.fullmatch(short) is not None
        what = "has no meaning for Rekindle, which needs no such setting" if known else "is not known"
        warnings.warn(f"rekindle.compat: the environment variable {name} {what}; see docs/howto/from-ortmodule.md", stacklevel=3)


class _Saver:
    """Saves graphs, as Runtime.on_graph."""

    def __init__(self, debug: DebugOptions) -> None:
        self._debug = debug

    def __call__(self, mode: str, exported: bytes) -> None:
        kind = "training" if mode.startswith("train") else "inference"
        (self._debug.save_path / f"{self._debug.onnx_prefix}_torch_exported_{kind}.onnx").write_bytes(exported)


torch.serialization.add_safe_globals([ORTModule])  # of weights-only loads, as rekindle.Module is
