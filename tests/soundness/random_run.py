"""Runs the steps of a random program on a wrapped module and on its unwrapped twin, and compares them after each."""

from __future__ import annotations

import ast
import contextlib
import gc
import importlib.util
import io
import os
import pathlib
import pickle
import random
import sys
import traceback
import types
import warnings
from typing import Any

import numpy as np
import rekindle
import torch
from random_calls import CALLS, Calls
from random_state import BFLOAT16, FLOAT32, differences, has_half_gradients, state_of
from rekindle.lookup import store

_LATER = 4  # times the rounding of half precision

_IMPORTS = (
    "import argparse, collections, copy, dataclasses, enum, functools, gc, itertools, logging, os, sys, types, typing, "
    "threading\n"
    "import numpy as np, torch\nimport torch.nn.functional as F\nfrom torch import nn\n"
)


class Side(Calls):
    """One of the two modules with the steps' view of it: `net`, `mod`, and what makes arguments and calls."""

    def __init__(self, name: str, path: pathlib.Path, options: rekindle.Options | None, through: bool) -> None:
        spec = importlib.util.spec_from_file_location(name, path)
        assert spec is not None and spec.loader is not None
        self.module = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(self.module)
        torch.manual_seed(0)
        self.inner = self.module.Net()
        super().__init__(self.inner if options is None else rekindle.Module(self.inner, options), self.module)
        self._through = through
        self._made: list[torch.Tensor] = []
        self._undo: dict[str, Any] = {}
        self.scope: dict[str, Any] = {
            "__name__": name,
            "mod": self.module,
            "undo": self._undone,
            "copied": self._copied,
            "pickled": self._pickled,
        }
        self.scope |= {name: getattr(self, name) for name in CALLS}
        self.scope |= {"x": self._x, "v": self._view, "numpy": self._numpy, "same": lambda: self._made[0], "tagged": _tagged}
        self.scope |= {"tag": lambda **named: (_tagged(self._made[0], **named), None)[1]}
        self.scope |= {"last": self.last, "again": self.again}
        self.scope["attributes"] = lambda owner: vars(rekindle.unwrap(owner))
        exec(_IMPORTS, self.scope)

    def run(self, step: str, number: int) -> None:
        """Do the step; what it raises is part of what is seen."""
        self.step, self._made, self.seen = number, [], {}
        self.scope |= {"net": self.model if self._through else self.inner, "inner": self.inner}
        torch.manual_seed(number)
        random.seed(number)
        np.random.seed(number)
        text = io.StringIO()
        try:
            with contextlib.redirect_stdout(text):
                if not step.startswith(("undo", "call", "backward")):
                    self._undo[step] = _undoing(step, self.scope)
                exec(step, self.scope)
        except Exception as error:
            self.seen["error"] = type(error).__name__
            self.seen["_traceback"] = traceback.format_exc()
        self.seen["printed"] = text.getvalue()
        self.seen["random state"] = str(torch.get_rng_state().sum().item()) + str(random.getstate()[1][:3])

    def _x(self, *shape: int, grad: bool = False, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        batch = self.step - (self.step % 3 == 1)  # a third of the steps sees the numbers of the one before again
        generator = torch.Generator().manual_seed(1000 * batch + len(self._made))
        self._made.append(torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_(grad))
        return self._made[-1]

    def _view(self, start: int, end: int) -> torch.Tensor:
        base = next((t for t in self._made if t.shape == (8,)), None)
        return (self._x(8) if base is None else base)[start:end]

    def _numpy(self, start: int, end: int) -> torch.Tensor:
        base = next((t for t in self._made if t.shape == (8,)), None)
        return torch.from_numpy((self._x(8) if base is None else base).numpy()[start:end])

    def _undone(self, step: str) -> None:
        self._undo[step]()

    def _copied(self) -> None:
        self.model = self.scope["copy"].deepcopy(self.model)
        self.inner = rekindle.unwrap(self.model)

    def _pickled(self) -> None:
        self.model = pickle.loads(pickle.dumps(self.model))
        self.inner = rekindle.unwrap(self.model)

    def state(self) -> list[tuple[str, Any]]:
        """All that can be seen of this side now."""
        return state_of(self.inner, self.module, {name: value for name, value in self.seen.items() if name[0] != "_"})


def _tagged(tensor: torch.Tensor, **named: Any) -> torch.Tensor:
    for name, value in named.items():
        setattr(tensor, name, value)
    return tensor


def _undoing(step: str, scope: dict[str, Any]) -> Any:
    """What puts back the one thing that a statement changes, as far as its text says what that is."""
    with contextlib.suppress(SyntaxError):
        statement = ast.parse(step).body[0]
        target = statement.targets[0] if isinstance(statement, ast.Assign | ast.Delete) else getattr(statement, "target", None)
        if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
            target = statement.value.func
        try:
            if isinstance(target, ast.Attribute | ast.Subscript):
                owner = eval(ast.unparse(target.value), scope)
                if isinstance(target, ast.Attribute) and not isinstance(statement, ast.Expr):
                    return _undoing_attribute(owner, target.attr)
                return _undoing_content(owner)
        except Exception:  # the statement will fail in the same way
            return lambda: None
    return lambda: None


def _undoing_attribute(owner: Any, name: str) -> Any:
    held = vars(rekindle.unwrap(owner)) if hasattr(owner, "__dict__") else {}
    tables = [held[t] for t in ("_parameters", "_buffers", "_modules") if isinstance(held.get(t), dict)]
    if (
        name in held
        or any(name in table for table in tables)
        or not hasattr(owner, "__dict__")
        or isinstance(owner, torch.Tensor)
    ):
        before = held[name] if name in held else getattr(owner, name)
        return lambda: setattr(owner, name, before)
    return lambda: delattr(owner, name)


def _undoing_content(owner: Any) -> Any:
    if isinstance(owner, torch.Tensor):
        before = owner.detach().clone()
        return lambda: owner.data.copy_(before)
    if isinstance(owner, list | bytearray):
        copied = owner[:]
        return lambda: owner.__setitem__(slice(None), copied)
    if isinstance(owner, dict | set):
        content = owner.copy()
        return lambda: (owner.clear(), owner.update(content))
    return lambda: None


def run(job: dict[str, Any]) -> dict[str, Any]:
    """Runs job["steps"] of the program job["source"]; says what was wrong first, and how many calls ran in graphs."""
    directory = pathlib.Path(job["directory"])
    sys.dont_write_bytecode = True
    os.environ["RANDOM_FILES"] = str(directory)
    path = directory / "subject.py"
    path.write_text(job["source"])
    options = None if job.get("plain") else rekindle.Options(cache_dir=str(directory / "cache"), log="off")
    outcome: dict[str, Any] = {"calls": 0, "graphs": 0, "sources": [], "bypass": [], "wrong": None}
    ours = Side("subject", path, options, job["through"])
    theirs = Side("twin", path, None, job["through"])
    halved = False
    for number, step in enumerate(job["steps"]):
        if step.startswith("world: "):
            with contextlib.suppress(Exception):
                exec(step.removeprefix("world: "), ours.scope)
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            before = None if options is None else _counts(ours)
            ours.run(step, number)
            theirs.run(step, number)
        if options is not None and step.startswith(("call", "backward")):
            outcome["calls"] += 1
            ran = "raised" if "error" in theirs.seen else _source(ours, before)
            outcome["sources"].append(ran)
            outcome["graphs"] += ran not in ("eager", "raised")
        state = theirs.state()
        # Sums that go on from what was rounded so may be smaller than it was, and so may what optimizers make of it.
        rounding = _LATER * BFLOAT16 if halved else FLOAT32
        if not halved and ("call_with_autocast" in step or has_half_gradients(state)):
            halved, rounding = True, BFLOAT16
        wrong = differences(ours.state(), state, rounding)
        if wrong:
            outcome["wrong"] = {"step": number, "text": step, "differences": wrong, "traceback": ours.seen.get("_traceback")}
            break
    if options is not None:
        outcome["bypass"] = (
            [f"{code}: {message}" for code, message in rekindle.status(ours.model).bypass]
            if isinstance(ours.model, rekindle.Module)
            else []
        )
        store.flush()
    return outcome


def _counts(side: Side) -> int:
    return rekindle.status(side.model).eager_calls


def _source(side: Side, before: int) -> str:
    status = rekindle.status(side.model)
    if status.eager_calls > before:
        return "eager"
    return status.source


__all__ = ["Side", "gc", "run", "types"]
