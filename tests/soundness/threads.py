"""Threads that export, run and differentiate modules of their own at once, while others ask for the status and prune the cache.

Each round wraps the modules anew, cold with an empty cache and then warm. Every result, gradient and buffer is compared with
an unwrapped twin; each module has to be served as it is when nothing runs beside it; nothing of torch or Python may be another
object afterwards than before. A watchdog prints all stacks when a round does not end.
"""

from __future__ import annotations

import argparse
import collections
import copy
import faulthandler
import logging
import os
import shutil
import sys
import tempfile
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import rekindle
import torch
from torch import nn

_PATIENCE = 300.0  # seconds a round may take
_STEPS = 3


class _Scale(torch.autograd.Function):
    """Doubles, with a gradient of its own."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return 2 * x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return 2 * gradient


class _Doubled(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return _Scale.apply(self.linear(x))


class _Lengths(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) / len(x)


class _Branches(nn.Module):
    """Stays in eager, with two parts that do not. No other model has such parts: which of two exports is a matter of time."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = (nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 4)) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.one(x)
        return self.two(x if x.sum() > 0 else -x)


class _Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.attention(x[None], x[None], x[None], need_weights=False)[0][0]


MODELS: dict[str, Callable[[], nn.Module]] = {
    "perceptron": lambda: nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4)),
    "buffers": lambda: nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 4)),
    "norm": lambda: nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 4)),
    "function": _Doubled,
    "lengths": _Lengths,
    "parts": _Branches,
    "attention": _Attention,
    "convolution": lambda: nn.Sequential(nn.Linear(4, 4), nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 2, 3), nn.Flatten()),
}


def _inputs(step: int) -> torch.Tensor:
    return torch.randn(3 + step, 4, generator=torch.Generator().manual_seed(step))


class _Pair:
    """One module in eager and its wrapped copy."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.eager = MODELS[name]()
        with torch.no_grad():
            for i, parameter in enumerate(self.eager.parameters()):
                parameter.copy_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(i)))
        self.wrapped = rekindle.Module(copy.deepcopy(self.eager), rekindle.Options(log="error"))

    def step(self, step: int) -> None:
        """A forward and a backward of both; raises AssertionError where they differ."""
        results = [model(_inputs(step)) for model in (self.eager, self.wrapped)]
        torch.testing.assert_close(results[1], results[0], rtol=1e-5, atol=1e-5)
        for result in results:
            result.square().sum().backward()
        theirs = dict([*self.eager.named_parameters(), *self.eager.named_buffers()])
        for name, ours in [*self.wrapped.module.named_parameters(), *self.wrapped.module.named_buffers()]:
            torch.testing.assert_close(ours, theirs[name], rtol=1e-5, atol=1e-5)
            if theirs[name].grad is not None:
                torch.testing.assert_close(ours.grad, theirs[name].grad, rtol=1e-4, atol=1e-4)

    def served(self) -> dict[str, Any]:
        """How the calls were."""
        status = rekindle.status(self.wrapped)
        return {
            "source": status.source,
            "exports": status.exports,
            "hits": status.hits,
            "eager": status.eager_calls,
            "bypass": sorted(code for code, _ in status.bypass),
        }


def _train(pair: _Pair) -> None:
    for step in range(_STEPS):
        pair.step(step)


def alone(names: list[str]) -> dict[str, dict[str, Any]]:
    """How each module is served, cold and warm, when nothing runs beside it."""
    found = {}
    for mode in ("cold", "warm"):
        for name in names:
            pair = _Pair(name)
            _train(pair)
            found[f"{mode} {name}"] = pair.served()
        rekindle.lookup.store.flush()
    return found


def _namespaces() -> dict[str, Any]:
    """By name what an export may replace."""
    from torch.onnx._internal.torchscript_exporter import utils
    from torch.onnx._internal.torchscript_exporter._globals import GLOBALS

    owners: list[Any] = [torch, torch.nn.functional, torch.functional, torch.overrides, torch.autograd, torch._C, torch.Tensor]
    owners += [torch.nn.utils.stateless, utils, torch.autograd.function._SingleLevelFunction, nn.Module, nn.Linear, warnings]
    owners += [__builtins__ if not isinstance(__builtins__, dict) else sys.modules["builtins"], type(os.environ)]
    found = {}
    for owner in owners:
        for name, value in vars(owner).items():
            found[f"{owner.__name__}.{name}"] = value
    found.pop("warnings._filters_version", None)
    found["warnings.filters"] = list(warnings.filters)
    return {
        **found,
        "meta_path": list(sys.meta_path),
        "levels": logging.getLogger("torch.onnx").level,
        "globals": dict(vars(GLOBALS)),
        "profile": sys.getprofile(),
    }


def _left(before: dict[str, Any]) -> list[str]:
    """What is another than before. Names that torch adds as it is used are no patches."""
    now = _namespaces()
    plain = (list, dict, int)
    return [
        name
        for name, value in before.items()
        if name not in now or not (now[name] is value or (isinstance(value, plain) and now[name] == value))
    ]


class _Crowd:
    """Threads of one round. errors: what they raised."""

    def __init__(self, pairs: list[_Pair]) -> None:
        self.errors: list[str] = []
        self._pairs = pairs
        self._start = threading.Barrier(len(pairs) + 2)
        self._done = threading.Event()

    def run(self) -> None:
        """All begin at once; this returns when all have ended."""
        workers = [self._thread(_train, pair) for pair in self._pairs]
        others = [self._thread(self._watch), self._thread(self._prune)]
        for thread in workers:
            thread.join()
        self._done.set()
        for thread in others:
            thread.join()

    def _thread(self, body: Callable[..., None], *args: Any) -> threading.Thread:
        def run() -> None:
            try:
                self._start.wait()
                body(*args)
            except Exception as error:
                self.errors.append(f"{getattr(args[0], 'name', '') if args else body.__name__}: {type(error).__name__}: {error}")

        thread = threading.Thread(target=run)
        thread.start()
        return thread

    def _watch(self) -> None:
        while not self._done.wait(0.005):
            for pair in self._pairs:
                rekindle.status(pair.wrapped)

    def _prune(self) -> None:
        while not self._done.wait(0.05):
            rekindle.cache.prune(max_size="1GiB")
            rekindle.cache.stats()


def one_round(names: list[str], expected: dict[str, dict[str, Any]]) -> list[str]:
    """What is wrong in a round of threads, cold and then warm."""
    wrong = []
    for mode in ("cold", "warm"):
        pairs = [_Pair(name) for name in names]
        crowd = _Crowd(pairs)
        crowd.run()
        rekindle.lookup.store.flush()
        wrong += [f"{mode} {error}" for error in crowd.errors]
        for pair in pairs:
            if (served := pair.served()) != expected[f"{mode} {pair.name}"]:
                wrong.append(f"{mode} {pair.name}: {served}, alone {expected[f'{mode} {pair.name}']}")
    return wrong


def rounds(count: int, threads: int) -> list[str]:
    """What is wrong in so many rounds, each with an empty cache."""
    names = list(MODELS)[:threads]
    torch.set_num_threads(1)
    wrong: list[str] = []
    before_env = os.environ.get("REKINDLE_CACHE_DIR")
    directories = []
    try:
        for number in range(count + 1):
            directories.append(tempfile.mkdtemp(prefix="rekindle-threads-"))
            os.environ["REKINDLE_CACHE_DIR"] = directories[-1]
            faulthandler.dump_traceback_later(_PATIENCE, exit=True)
            if number == 0:
                expected = alone(names)
                before = _namespaces()
                continue
            found = one_round(names, expected)
            found += [f"{name} was left changed" for name in _left(before)]
            wrong += [f"round {number}: {each}" for each in found]
    finally:
        faulthandler.cancel_dump_traceback_later()
        os.environ.pop("REKINDLE_CACHE_DIR")
        if before_env is not None:
            os.environ["REKINDLE_CACHE_DIR"] = before_env
        for directory in directories:
            shutil.rmtree(directory, ignore_errors=True)
    return wrong


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--threads", type=int, default=len(MODELS), help="how many of the models, each in a thread of its own")
    given = parser.parse_args()
    start = time.monotonic()
    wrong = rounds(given.rounds, given.threads)
    print("\n".join(wrong))
    kinds = collections.Counter(line.partition(": ")[2].partition(":")[0] for line in wrong)
    print(f"{given.rounds} rounds of {given.threads} threads, cold and warm: {len(wrong)} wrong {dict(kinds) or ''}")
    print(f"{time.monotonic() - start:.0f} s")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
