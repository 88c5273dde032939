"""What a forward writes and its backward reads: a write in between is the error that it is in eager, and no other is."""

from __future__ import annotations

import pathlib
from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import torch
from saved_writes_support import Writing
from torch import nn


def _counter(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.calls += 1
    return self.linear(x) * self.calls


def _running(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.linear(x)
    self.mean.mul_(0.9).add_(y.detach().mean(0))
    return y * self.mean


def _unread(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.calls += 1
    return self.linear(x) - self.calls


def _one_of_two(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.mean.add_(1)
    return _counter(self, x)


def _normalized(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.norm(self.linear(x))


FORWARDS = {"counter": _counter, "mean": _running, "unread": _unread, "one of two": _one_of_two, "BatchNorm": _normalized}


def _one_by_one(model: Any, inner: Writing, x: torch.Tensor) -> None:
    model(x).sum().backward()
    model(x).sum().backward()


def _two_calls(model: Any, inner: Writing, x: torch.Tensor) -> None:
    first, second = model(x), model(x)
    second.sum().backward()
    first.sum().backward()


def _write_to(name: str) -> Callable[[Any, Writing, torch.Tensor], None]:
    def run(model: Any, inner: Writing, x: torch.Tensor) -> None:
        y = model(x)
        getattr(inner, name).add_(1)
        y.sum().backward()

    return run


def _write_statistics(model: Any, inner: Writing, x: torch.Tensor) -> None:
    y = model(x)
    inner.norm.running_var.add_(1)
    y.sum().backward()


def _evaluated(model: Any, inner: Writing, x: torch.Tensor) -> None:
    y = model(x)
    with torch.no_grad():
        model(x)
    y.sum().backward()


USES = {
    "one by one": _one_by_one,
    "two calls": _two_calls,
    "write to the counter": _write_to("calls"),
    "write to the mean": _write_to("mean"),
    "write to running statistics": _write_statistics,
    "a call without gradients": _evaluated,
}


def _history(name: str, use: str, wrap: Callable[[nn.Module], Any]) -> list[Any]:
    torch.manual_seed(1)
    inner = Writing(FORWARDS[name])
    model, found = wrap(inner), []
    for _ in range(3):
        try:
            USES[use](model, inner, torch.ones(2, 3) + torch.eye(2, 3))
            found.append("")
        except RuntimeError as error:
            found.append(str(error)[:90])
        found.append([p.grad is None or round(float(p.grad.abs().sum()), 3) for p in inner.parameters()])
    return found


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("name", FORWARDS)
def test_a_write_before_the_backward_is_what_it_is_in_eager(name: str, use: str, tmp_path: pathlib.Path) -> None:
    expected = _history(name, use, lambda module: module)
    for _ in range(2):  # the second time with a store that is filled
        wrapped: list[Any] = []

        def wrap(module: nn.Module, wrapped: list[Any] = wrapped) -> Any:
            wrapped.append(rekindle.Module(module, rekindle.Options(log="error", cache_dir=str(tmp_path))))
            return wrapped[0]

        assert _history(name, use, wrap) == expected
        assert rekindle.status(wrapped[0]).eager_calls == 0, rekindle.status(wrapped[0]).bypass


ENDS: dict[str, Callable[[], nn.Module]] = {
    "ReLU": nn.ReLU, "ReLU in place": lambda: nn.ReLU(True), "ELU in place": lambda: nn.ELU(inplace=True), "SiLU": nn.SiLU,
    "LeakyReLU": nn.LeakyReLU, "LeakyReLU in place": lambda: nn.LeakyReLU(0.1, True), "SELU in place": lambda: nn.SELU(True),
    "a view of it": lambda: nn.Sequential(nn.CELU(inplace=True), nn.Flatten(0)), "Tanh": nn.Tanh,
    "Identity": nn.Identity, "Hardswish in place": lambda: nn.Hardswish(True), "Softmax": lambda: nn.Softmax(1),
}  # fmt: skip


@pytest.mark.parametrize("end", ENDS)
def test_a_write_to_a_result_is_what_it_is_in_eager(end: str) -> None:
    torch.manual_seed(1)
    module = nn.Sequential(nn.Linear(3, 3), ENDS[end]())
    wrapped = rekindle.Module(module, rekindle.Options(log="error", cache="off"))
    found: dict[bool, list[Any]] = {False: [], True: []}
    for is_ours in (False, True, False, True):
        module.zero_grad()
        y = (wrapped if is_ours else module)(torch.ones(2, 3))
        with torch.no_grad():
            y.mul_(2)
        try:
            y.sum().backward()
            found[is_ours].append(module[0].weight.grad)
        except RuntimeError as error:
            found[is_ours].append(str(error)[:90])
    assert rekindle.status(wrapped).eager_calls == 0, rekindle.status(wrapped).bypass
    for ours, theirs in zip(found[True], found[False], strict=True):
        if isinstance(theirs, torch.Tensor) and isinstance(ours, torch.Tensor):
            torch.testing.assert_close(ours, theirs)
        else:
            assert ours == theirs


class Neutral(nn.Module):
    """Multiplies by one and subtracts nothing: tensors of their own all the same."""

    def __init__(self, do: Callable[[Any, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.linear, self.do, self.one, self.zero = nn.Linear(3, 3), do, 1, 0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.do(self, x)


NEUTRAL: dict[str, Callable[[Any, torch.Tensor], torch.Tensor]] = {
    "a result times one": lambda self, x: torch.tanh(self.linear(x)) * self.one,
    "a result times 1.0": lambda self, x: torch.sigmoid(self.linear(x)) * 1.0,
    "a result minus nothing": lambda self, x: torch.exp(self.linear(x)) - self.zero,
    "a view of a result times one": lambda self, x: (torch.tanh(self.linear(x)) * self.one).t(),
    "a weight times one": lambda self, x: nn.functional.linear(
        nn.functional.linear(x, self.linear.weight * self.one), self.linear.bias
    ),
    "inside": lambda self, x: torch.exp(torch.tanh(self.linear(x)) * self.one),
}


@pytest.mark.parametrize("name", NEUTRAL)
def test_what_equals_another_tensor_is_written_apart_from_it(name: str, tmp_path: pathlib.Path) -> None:
    def gradients(wrap: Callable[[nn.Module], Any]) -> list[torch.Tensor]:
        torch.manual_seed(0)
        module = Neutral(NEUTRAL[name])
        model, found = wrap(module), []
        for _ in range(3):
            module.zero_grad()
            y = model(torch.randn(2, 3))
            with torch.no_grad():
                module.linear.weight.add_(0.5) if "weight" in name else y.add_(1) if name != "inside" else None
            y.sum().backward()
            found += [parameter.grad.clone() for parameter in module.parameters()]
        return found

    options = rekindle.Options(log="error", cache_dir=str(tmp_path))
    wrapped: list[Any] = []
    ours = gradients(lambda module: wrapped.append(rekindle.Module(module, options)) or wrapped[0])
    for mine, theirs in zip(ours, gradients(lambda module: module), strict=True):
        torch.testing.assert_close(mine, theirs)
    assert rekindle.status(wrapped[0]).eager_calls == 0


class Reading(nn.Module):
    """Computes two results, from weights and buffers that eager's backward reads and a graph's may not."""

    def __init__(self, do: Callable[[Any, torch.Tensor], Any]) -> None:
        super().__init__()
        self.linear, self.do = nn.Linear(4, 4), do
        self.embedding = nn.Embedding(6, 4)
        self.register_buffer("scale", torch.linspace(1, 2, 4))
        self.register_buffer("index", torch.tensor([1, 3, 2]))
        self.register_buffer("mask", torch.tensor([True, False, True, True]))

    def forward(self, x: torch.Tensor) -> Any:
        return self.do(self, x)


def _two_results(self: Any, x: torch.Tensor) -> Any:
    y = self.linear(x)
    return y.sin(), (y.double() * self.linear.weight[0]).exp()


READINGS: dict[str, Callable[[Any, torch.Tensor], Any]] = {
    "a promoted weight": lambda self, x: self.linear(x).double() * self.linear.weight[0],
    "a promoted buffer": lambda self, x: self.linear(x).double() * self.scale,
    "an argument": lambda self, x: self.linear(x).double() * x,
    "an index": lambda self, x: self.embedding(self.index) + self.linear(x),
    "indices": lambda self, x: self.linear(x)[:, self.index[:2]] * self.scale[self.index[:1]],
    "a mask": lambda self, x: self.linear(x).masked_fill(self.mask, 0.0),
    "a choice": lambda self, x: torch.where(self.mask, self.linear(x), self.scale),
    "a norm": lambda self, x: nn.functional.layer_norm(self.linear(x), (4,), self.scale, self.scale),
    "nothing": lambda self, x: self.linear(x) + self.scale + self.linear.weight[0].double(),
    "two results": _two_results,
}
WRITTEN: dict[str, Callable[[Any, torch.Tensor, Any], torch.Tensor]] = {
    "weight": lambda inner, x, y: inner.linear.weight,
    "row of the weight": lambda inner, x, y: inner.linear.weight[0],
    "scale": lambda inner, x, y: inner.scale,
    "index": lambda inner, x, y: inner.index,
    "mask": lambda inner, x, y: inner.mask,
    "x": lambda inner, x, y: x,
    "first result": lambda inner, x, y: y[0] if isinstance(y, tuple) else y.detach(),
    "last result": lambda inner, x, y: y[-1].detach() if isinstance(y, tuple) else y,
}
DIFFERENTIATED: dict[str, Callable[[Any], torch.Tensor]] = {
    "all": lambda y: sum(one.sum() for one in y) if isinstance(y, tuple) else y.sum(),
    "first": lambda y: y[0].sum(),
    "last": lambda y: y[-1].sum(),
}


def _reading_history(name: str, written: str, differentiated: str, wrap: Callable[[nn.Module], Any]) -> list[Any]:
    torch.manual_seed(2)
    inner = Reading(READINGS[name])
    model, found = wrap(inner), []
    for _ in range(3):
        inner.zero_grad()
        x = torch.randn(3, 4)
        y = model(x)
        with torch.no_grad():
            tensor = WRITTEN[written](inner, x, y)
            tensor.sub_(0.5) if tensor.is_floating_point() else tensor.copy_(tensor.flip(0))
        try:
            DIFFERENTIATED[differentiated](y).backward()
            found += [None if p.grad is None else p.grad.clone() for p in inner.parameters()]
        except RuntimeError as error:  # eager may have made some gradients before it
            found.append(str(error)[:90])
    return found


@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize("name", READINGS)
def test_a_write_to_what_eager_has_saved_is_an_error(name: str, written: str) -> None:
    options = rekindle.Options(log="error", cache="off")
    for differentiated in DIFFERENTIATED if name == "two results" else ["all"]:
        wrapped: list[Any] = []
        expected = _reading_history(name, written, differentiated, lambda module: module)
        ours = _reading_history(
            name, written, differentiated, lambda module, to=wrapped: to.append(rekindle.Module(module, options)) or to[0]
        )
        assert rekindle.status(wrapped[0]).eager_calls == 0, rekindle.status(wrapped[0]).bypass
        for mine, theirs in zip(ours, expected, strict=True):
            if isinstance(theirs, torch.Tensor) and isinstance(mine, torch.Tensor):
                torch.testing.assert_close(mine, theirs)
            else:
                assert mine == theirs, differentiated
