"""What a forward does besides computing is done once a call, as eager does it, also at the calls that export."""

from __future__ import annotations

import collections
import functools
import logging
import pathlib
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import rekindle
import torch
from module_support import assert_same, rows
from torch import nn

LOG: list[Any] = []
COUNTS = {"calls": 0}
SUMS = torch.zeros(3)
TOTAL = 0


class Counter:
    calls = 0


class Slotted:
    __slots__ = ("calls",)

    def __init__(self) -> None:
        self.calls = 0


class Own(dict):  # type: ignore[type-arg]
    pass


def counted() -> None: ...


def make_counter() -> tuple[Callable[[], None], Callable[[], int]]:
    calls = 0

    def count() -> None:
        nonlocal calls
        calls += 1

    return count, lambda: calls


COUNT, COUNTED = make_counter()


def _global_number(_: Any) -> None:
    global TOTAL
    TOTAL += 1


def _log(_: Any) -> None:
    logging.getLogger("side_effects").warning("called")


def _other_data(m: Any) -> None:
    m.linear.weight.data = m.linear.weight.data * 0.9


@torch.no_grad()
def _maxima(m: Any) -> None:
    torch.max(m.linear.weight + m.linear.bias[:, None], 1, out=(m.linear.bias, torch.empty(3, dtype=torch.int64)))


def _weight(m: Any) -> Any:
    return m.linear.weight.tolist()


class Kept(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        LOG.append(record.getMessage())


@functools.lru_cache
def warn_once(text: str) -> None:
    logging.getLogger("side_effects").warning(text)


# name: (the attribute `held`, what the forward does with the module, what is to be equal to eager's)
EFFECTS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any], Callable[[Any], Any]]] = {
    "list": (list, lambda m: m.held.append(1), lambda m: list(m.held)),
    "deque": (collections.deque, lambda m: m.held.append(1), lambda m: list(m.held)),
    "Counter": (collections.Counter, lambda m: m.held.update("a"), lambda m: dict(m.held)),
    "own dict": (Own, lambda m: m.held.update(n=m.held.get("n", 0) + 1), lambda m: dict(m.held)),
    "set": (set, lambda m: m.held.add(len(m.held)), lambda m: sorted(m.held)),
    "bytearray": (lambda: bytearray(1), lambda m: m.held.__setitem__(0, m.held[0] + 1), lambda m: bytes(m.held)),
    "slot": (Slotted, lambda m: setattr(m.held, "calls", m.held.calls + 1), lambda m: m.held.calls),
    "array": (lambda: numpy.zeros(2), lambda m: m.held.__iadd__(1), lambda m: m.held.tolist()),
    "tensor": (lambda: [torch.zeros(3)], lambda m: m.held[0].add_(1), lambda m: m.held[0].tolist()),
    "attribute": (int, lambda m: setattr(m, "held", m.held + 1), lambda m: m.held),
    "global list": (lambda: None, lambda _: LOG.append(1), lambda _: len(LOG)),
    "global dict": (lambda: None, lambda _: COUNTS.update(calls=COUNTS["calls"] + 1), lambda _: COUNTS["calls"]),
    "global tensor": (lambda: None, lambda _: SUMS.add_(1), lambda _: SUMS.tolist()),
    "global number": (lambda: None, _global_number, lambda _: TOTAL),
    "class attribute": (lambda: None, lambda _: setattr(Counter, "calls", Counter.calls + 1), lambda _: Counter.calls),
    "closure": (lambda: None, lambda _: COUNT(), lambda _: COUNTED()),
    "attribute of a function": (
        lambda: None, lambda _: setattr(counted, "n", getattr(counted, "n", 0) + 1), lambda _: counted.n  # type: ignore[attr-defined]
    ),
    "print": (lambda: None, lambda _: print("called"), lambda _: None),
    "logger": (lambda: None, _log, lambda _: len(LOG)),
    "data": (lambda: None, _other_data, _weight),
    "list of parameters": (lambda: None, lambda m: torch._foreach_mul_([m.linear.weight.data], 0.9), _weight),
    "operator": (lambda: None, lambda m: torch.ops.aten.mul_.Tensor(m.linear.weight.data, torch.tensor(0.9)), _weight),
    "out": (lambda: None, _maxima, lambda m: m.linear.bias.tolist()),
    "gradient": (lambda: None, lambda m: setattr(m.linear.bias, "grad", torch.ones(3)), lambda m: m.linear.bias.grad.tolist()),
}  # fmt: skip


class Doer(nn.Module):
    def __init__(self, held: Any, do: Callable[[Any], Any]) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.held = held
        self.do = do

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        self.do(self)
        return y


@pytest.fixture(autouse=True)
def logger() -> Any:
    log, handler = logging.getLogger("side_effects"), Kept()
    log.addHandler(handler)
    log.propagate = False
    yield
    log.removeHandler(handler)


def _history(model: Any, module: Doer, probe: Callable[[Any], Any], capsys: Any) -> list[Any]:
    """Results, state and output of four calls, two of them with a backward."""
    global TOTAL
    LOG.clear(), COUNTS.update(calls=0), SUMS.zero_(), vars(counted).clear(), warn_once.cache_clear()
    TOTAL = Counter.calls = 0
    start = COUNTED() if module.do is EFFECTS["closure"][1] else 0
    found = []
    for step in range(4):
        y = model(rows(step))
        state = probe(module)
        found.append((y.detach(), state - start if start else state, capsys.readouterr().out))
        if step % 2:
            y.sum().backward()
    return found


@pytest.mark.parametrize("name", EFFECTS)
def test_an_effect_happens_once_a_call(name: str, tmp_path: pathlib.Path, capsys: Any) -> None:
    make, do, probe = EFFECTS[name]
    torch.manual_seed(1)
    module = Doer(make(), do)
    expected = _history(module, module, probe, capsys)
    torch.manual_seed(1)
    module = Doer(make(), do)
    wrapped = rekindle.Module(module, rekindle.Options(cache_dir=str(tmp_path), log="error"))
    for ours, theirs in zip(_history(wrapped, module, probe, capsys), expected, strict=True):
        assert_same(ours[0], theirs[0])
        assert ours[1:] == theirs[1:]
    assert rekindle.status(wrapped).eager_calls == 4


def test_what_happens_only_at_the_first_call_leaves_the_graph_to_the_others(tmp_path: pathlib.Path) -> None:
    LOG.clear(), warn_once.cache_clear()
    wrapped = rekindle.Module(Doer(None, lambda _: warn_once("new")), rekindle.Options(cache_dir=str(tmp_path), log="error"))
    for step in range(3):
        wrapped(rows(step))
    assert LOG == ["new"]
    assert rekindle.status(wrapped).source == "export"
    assert rekindle.status(wrapped).eager_calls == 1


@pytest.mark.parametrize("how", ["register_hook", "register_post_accumulate_grad_hook", "retain_grad", "grad_fn"])
def test_a_hook_on_a_tensor_of_the_forward_runs_at_each_call(how: str, tmp_path: pathlib.Path) -> None:
    class Hooked(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 3)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.linear(x)
            if how == "grad_fn":
                y.grad_fn.register_hook(lambda *_: LOG.append(1))
            elif how == "retain_grad":
                y.retain_grad()
                return y * 1, y
            else:
                target = y if how == "register_hook" else self.linear.bias
                getattr(target, how)(lambda _: LOG.append(1))
            return y, y

    LOG.clear()
    wrapped = rekindle.Module(Hooked(), rekindle.Options(cache_dir=str(tmp_path), log="error"))
    runs = 0
    for step in range(3):
        result, kept = wrapped(rows(step))
        result.sum().backward()
        runs += step + 1 if how == "register_post_accumulate_grad_hook" else 1
        assert kept.grad is not None if how == "retain_grad" else len(LOG) == runs
