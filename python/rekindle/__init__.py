"""Rekindle compiles training runs, which start again as if they had never stopped.

    model = rekindle.Module(model)

The first run exports, differentiates and plans the model; later runs, in new processes too, load all of that from a
cache. See README.md and docs/options.md.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import torch  # noqa: F401  (loads the libraries that _native links to)

from rekindle import errors
from rekindle.versions import check_environment

check_environment()

from rekindle import reasons, statistics  # noqa: E402
from rekindle.accounting import memory, release_memory  # noqa: E402
from rekindle.comparison import verify  # noqa: E402
from rekindle.functions.registry import register_python_op  # noqa: E402
from rekindle.key.fingerprint import register_digest  # noqa: E402
from rekindle.module import Module, explain, status, unwrap  # noqa: E402
from rekindle.modules.status import Status  # noqa: E402
from rekindle.options import Options  # noqa: E402
from rekindle.profiling import profile  # noqa: E402
from rekindle.versions import __version__  # noqa: E402

if TYPE_CHECKING:
    from rekindle import cache, optim
    from rekindle.account.record import MemoryAccount
    from rekindle.lookup.explanation import Explanation

__all__ = [
    "Explanation",
    "MemoryAccount",
    "Module",
    "Options",
    "Status",
    "__version__",
    "cache",
    "errors",
    "explain",
    "memory",
    "optim",
    "profile",
    "reasons",
    "register_digest",
    "register_python_op",
    "release_memory",
    "statistics",
    "status",
    "unwrap",
    "verify",
]

# What no call of a model needs: it is imported when it is asked for.
_IMPORTED_LATER = {
    "Explanation": "lookup.explanation",
    "MemoryAccount": "account.record",
    "cache": "cache",
    "optim": "optim",
}


def __getattr__(name: str) -> Any:
    if name not in _IMPORTED_LATER:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    where = _IMPORTED_LATER[name]
    module = importlib.import_module(f"{__name__}.{where}")
    return module if where == name else getattr(module, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
