"""Calls with tensors on an accelerator: they run from graphs where all is on one device, and are eager's where not."""

from __future__ import annotations

import subprocess
import sys

import pytest
import rekindle
import torch
from device_cases import REFUSED, SERVED, Forward
from device_twins import Made, Twins
from torch import nn

REFUSED_HERE: dict[str, Forward] = {**REFUSED, "a result on another index": lambda self, x: self.a(x).to("test:1")}


@pytest.mark.parametrize("device", ["test:0", "test:1"])
@pytest.mark.parametrize("name", SERVED)
def test_a_call_runs_from_a_graph(name: str, device: str) -> None:
    twins = Twins(Made(SERVED[name]), device)
    for rows in (3, 3, 5):
        twins.call(torch.randn(rows, 4, device=device))
    assert twins.status.eager_calls == 0, twins.status.bypass


@pytest.mark.parametrize("name", REFUSED_HERE)
def test_a_call_on_two_devices_is_eagers(name: str) -> None:
    twins = Twins(Made(REFUSED_HERE[name]))
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


def test_attention_of_a_device_stays_one_operator() -> None:
    """So that PyTorch chooses its kernel there, and draws, as in eager."""
    twins, found = Twins(Made(SERVED["attention with dropout"])), []
    twins.wrapped._runtime.on_graph = lambda mode, model: found.append(model)
    twins.call(torch.randn(3, 4, device="test:0"))
    assert b"scaled_dot_product_attention" in found[0] and b"Softmax" not in found[0]


@pytest.mark.parametrize("name", SERVED)
def test_an_entry_of_one_index_serves_another(name: str) -> None:
    """And makes tensors, and gives its device, as the call's own and no other's."""
    first, second = (Twins(Made(SERVED[name]), device) for device in ("test:0", "test:1"))
    first.call(torch.randn(3, 4, device="test:0"))
    rekindle.lookup.store.flush()
    for rows in (3, 5):
        second.call(torch.randn(rows, 4, device="test:1"))
    assert (first.status.source, second.status.exports, second.status.eager_calls) == ("export", 0, 0)


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


def test_a_forward_under_a_default_device() -> None:
    """The exporter's own tensors are made on the host all the same, where it reads them."""
    twins = Twins(Made(SERVED["a write to a part"]))
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
