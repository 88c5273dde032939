"""Runs programs of several steps beside their twins: loads their modules, and tells where each call ran."""

from __future__ import annotations

import importlib.util
import pathlib
import sys
from dataclasses import dataclass, field
from typing import Any

import rekindle
import torch
from stepwise_compare import ERROR, Seen


@dataclass
class Outcome:
    """Says how a program went.

    sources: of each call, as of rekindle.Status, or "eager", or "raised" where eager's forward raises; refused: writes before a
    backward that only Rekindle refuses; step, wrong: what differed first, if anything.
    """

    sources: list[str] = field(default_factory=list)
    bypass: list[str] = field(default_factory=list)
    refused: int = 0
    step: int = -1
    wrong: list[str] = field(default_factory=list)

    def add(self, wrapped: rekindle.Module, before: int, eager: Seen) -> None:
        """Notes where a step ran. before: how many calls of the wrapped module had run in eager; eager: the twin's step."""
        status = rekindle.status(wrapped)
        ran = "eager" if status.eager_calls > before else status.source
        self.sources.append(ran if "type" in eager else "raised")

    def close(self, wrapped: rekindle.Module) -> None:
        """Notes why calls ran in eager."""
        self.bypass = [f"{code}: {message}" for code, message in rekindle.status(wrapped).bypass]


def load(source: str, directory: pathlib.Path, name: str) -> Any:
    """Makes a Python module of a text, in a file, and returns it."""
    path = directory / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def only_refused(backward: str, ours: Seen, eager: Seen) -> bool:
    """Tells whether one side alone refuses a write before the backward, as it has saved what is written."""
    errors = [seen.get(ERROR) for seen in (ours, eager)]
    if type(errors[0]) is type(errors[1]):
        return False
    return backward.startswith("write") and all(error is None or "inplace operation" in str(error) for error in errors)


def copied(gradient: torch.Tensor | None) -> torch.Tensor | None:
    """Returns a gradient as it is now."""
    return None if gradient is None else gradient.detach().clone()
