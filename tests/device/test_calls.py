"""Calls with tensors on an accelerator: they run from graphs where all is on one device, and are eager's where not."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import torch
from device_twins import Made, Twins
from torch import nn
from torch.nn import functional as F

Forward = Callable[[Any, torch.Tensor], Any]


def _data_sized(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.a(x)[x[:, 0] > 0]


SERVED: dict[str, Forward] = {
    "linear": lambda self, x: self.a(x),
    "noise": lambda self, x: self.a(x) + torch.randn(x.shape, device=x.device),
    "dropout": lambda self, x: F.dropout(self.a(x), 0.5),
    "bernoulli": lambda self, x: self.a(x) * torch.bernoulli(torch.full_like(x, 0.5)),
    "numbers made on the host": lambda self, x: self.a(x) * torch.arange(4).to(x.device),
    "a detour over the host": lambda self, x: self.a(x.cpu().sin().to(x.device)),
    "a constant": lambda self, x: self.a(x) * torch.tensor([1.0, 2.0, 3.0, 4.0], device=x.device),
    "a scalar of the host": lambda self, x: self.a(x) * torch.tensor(2.0),
    "attention": lambda self, x: F.scaled_dot_product_attention(self.a(x)[None], x[None], x[None]),
    "sizes that depend on data": _data_sized,
    "its device": lambda self, x: (self.a(x), x.device),
}
REFUSED: dict[str, Forward] = {
    "noise of the host": lambda self, x: self.a(x) + torch.randn(x.shape).to(x.device),
    "a result on the host": lambda self, x: self.a(x).cpu(),
    "a result on another index": lambda self, x: self.a(x).to("test:1" if x.device.index == 0 else "test:0"),
}


@pytest.mark.parametrize("device", ["test:0", "test:1"])
@pytest.mark.parametrize("name", SERVED)
def test_a_call_runs_from_a_graph(name: str, device: str) -> None:
    twins = Twins(Made(SERVED[name]), device)
    for rows in (3, 3, 5):
        twins.call(torch.randn(rows, 4, device=device))
    assert twins.status.eager_calls == 0, twins.status.bypass


@pytest.mark.parametrize("name", REFUSED)
def test_a_call_on_two_devices_is_eagers(name: str) -> None:
    twins = Twins(Made(REFUSED[name]))
    for rows in (3, 5):
        twins.call(torch.randn(rows, 4, device="test:0"))
    assert set(twins.reasons()) == {"unsupported_device"}


def test_a_module_on_two_devices_runs_in_parts() -> None:
    class Halves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)).to("test:0")
            self.second = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 4)).to("test:1")

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(self.first(x).to("test:1"))

    wrapped = rekindle.Module(Halves(), rekindle.Options(log="error"))
    for _ in range(3):
        assert wrapped(torch.randn(2, 4, device="test:0")).device == torch.device("test:1")
    parts = {part.name: part.source for part in rekindle.status(wrapped).parts}
    assert parts["first"] in ("export", "memory") and parts["second"] in ("export", "memory", "local")


def test_an_entry_of_one_index_serves_another() -> None:
    """And gives its device, its own tensors' and no other's."""
    forward: Forward = lambda self, x: (self.a(x), x.device)  # noqa: E731
    first = Twins(Made(forward), "test:0")
    first.call(torch.randn(3, 4, device="test:0"))
    rekindle.lookup.store.flush()
    second = Twins(Made(forward), "test:1")
    second.call(torch.randn(3, 4, device="test:1"))
    assert (first.status.source, second.status.source) == ("export", "local")


def test_an_entry_of_the_cpu_serves_no_accelerator() -> None:
    for device, source in (("cpu", "export"), ("test:0", "export"), ("cpu", "local"), ("test:0", "local")):
        twins = Twins(Made(SERVED["linear"]), device)
        twins.call(torch.randn(3, 4, device=device))
        assert twins.status.source == source
        rekindle.lookup.store.flush()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_of_the_device(dtype: torch.dtype) -> None:
    twins = Twins(Made(lambda self, x: self.a(x).softmax(-1)))
    for rows in (3, 5):
        with torch.autocast("test", dtype=dtype):
            twins.call(torch.randn(rows, 4, device="test:0"))
    assert twins.status.eager_calls == 0, twins.status.bypass


def _writes(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.a(x)
    y[:, 0] = 0
    return y + torch.ones(4)


def test_a_forward_under_a_default_device() -> None:
    """The exporter's own tensors are made on the host all the same, where it reads them."""
    twins = Twins(Made(_writes))
    with torch.device("test:0"):
        for rows in (3, 5):
            twins.call(torch.randn(rows, 4))
    assert twins.status.eager_calls == 0, twins.status.bypass


def test_second_gradients_under_a_default_device() -> None:
    """A backward runs in a thread of the device's own, where no default device is set."""
    twins = Twins(Made(lambda self, x: torch.tanh(self.a(x)) + torch.ones(4)))
    with torch.device("test:0"):
        gradients = []
        for model, module in ((twins.eager, twins.eager), (twins.wrapped, twins.module)):
            loss = model(torch.ones(3, 4)).sum()
            (first,) = torch.autograd.grad(loss, module.a.weight, create_graph=True)
            gradients.append(torch.autograd.grad(first.square().sum(), module.a.weight)[0])
    torch.testing.assert_close(*gradients)
    assert twins.status.eager_calls == 0, twins.status.bypass


def test_a_forward_around_the_random_states_of_both_devices() -> None:
    """Draws on one index move no other's generator."""
    twins = Twins(Made(SERVED["dropout"]), "test:1")
    before = torch.ops.test_device.random_state(0)
    for _ in range(2):
        twins.call(torch.randn(3, 4, device="test:1"))
    assert torch.equal(before, torch.ops.test_device.random_state(0))
    assert twins.status.eager_calls == 0


def test_the_cpu_asks_no_accelerator_for_random_states() -> None:
    """A driver that was asked once cannot be used in forked children any more."""
    code = (
        "import torch, rekindle\n"
        "m = rekindle.Module(torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(0.5)))\n"
        "m(torch.randn(2, 4)).sum().backward()\n"
        "assert not torch.cuda.is_initialized() and rekindle.status(m).eager_calls == 0"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
