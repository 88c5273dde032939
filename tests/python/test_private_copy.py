"""An export and its trials run on private copies: nobody sees their numbers or their hooks."""

from __future__ import annotations

import signal
import threading
import time
from typing import Any

import pytest
import rekindle
import torch
from seeded import seeded
from torch import nn
from torch.autograd import Function


def rows(step: int = 0) -> torch.Tensor:
    return torch.randn(3, 4, generator=seeded(step))


class Layers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.LSTM(8, 4))
        self.layers[0].register_buffer("scale", torch.full((8,), 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.layers[2](self.layers[1](self.layers[0](x) * self.layers[0].scale))
        return self.layers[3](y)[0]


def made() -> Layers:
    torch.manual_seed(0)
    return Layers()


def test_other_threads_see_the_users_numbers_while_an_export_runs() -> None:
    model, fixed = made(), made().state_dict()
    wrapped, seen, wrong = rekindle.Module(model), 0, list[str]()
    parameters = dict(model.named_parameters())
    done = threading.Event()

    def read() -> None:
        nonlocal seen
        while not done.is_set():
            for name, value in wrapped.state_dict().items():
                if "running" not in name and "num_batches" not in name and not torch.equal(value, fixed[name]):
                    wrong.append(name)
            wrong.extend(name for name, value in model.named_parameters() if value is not parameters[name])
            seen += 1

    reader = threading.Thread(target=read)
    reader.start()
    try:
        wrapped(rows()).sum().backward()
    finally:
        done.set()
        reader.join()
    assert rekindle.status(wrapped).source == "export"
    assert seen > 0
    assert not wrong


def test_a_signal_handler_saves_the_users_numbers() -> None:
    model, fixed = made(), made().state_dict()
    wrapped, saved = rekindle.Module(model), list[dict[str, torch.Tensor]]()

    def save(*_: object) -> None:
        saved.append({k: v.clone() for k, v in wrapped.state_dict().items()})
        signal.setitimer(signal.ITIMER_REAL, 0.002)  # once it is done: on a busy machine, signals would come faster than it is

    # Eager's one write of the statistics comes after the last of the trials.
    before = signal.signal(signal.SIGALRM, save)
    signal.setitimer(signal.ITIMER_REAL, 0.002)
    try:
        with torch.no_grad():
            wrapped(rows())
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert saved
    after = wrapped.state_dict()
    for state in saved:
        for name, value in state.items():
            assert torch.equal(value, fixed[name]) or torch.equal(value, after[name]), name


def test_eager_calls_of_other_threads_are_right_while_an_export_runs() -> None:
    model, twin = made().eval(), made().eval()
    wrapped, results, done = rekindle.Module(model), list[torch.Tensor](), threading.Event()

    def call() -> None:
        while not done.is_set():
            with torch.no_grad():
                results.append(model(rows(1)))

    other = threading.Thread(target=call)
    other.start()
    try:
        wrapped(rows())
    finally:
        done.set()
        other.join()
    with torch.no_grad():
        expected = twin(rows(1))
    assert results
    for result in results:
        torch.testing.assert_close(result, expected)


class Doubled(Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        x, weight = ctx.saved_tensors
        return gradient @ weight.t(), x.t() @ gradient


class WithFunction(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.weight = nn.Parameter(torch.eye(4) * 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Doubled.apply(self.linear(x), self.weight)


@pytest.mark.parametrize("kind", [Layers, WithFunction])
def test_hooks_of_parameters_run_as_often_as_in_eager(kind: type[nn.Module]) -> None:
    counts = []
    for wrap in (lambda model: model, rekindle.Module):
        torch.manual_seed(0)
        model, seen = kind(), dict[str, int]()
        for name, parameter in model.named_parameters():
            parameter.register_hook(lambda gradient, name=name, seen=seen: seen.update({name: seen.get(name, 0) + 1}))
            parameter.register_post_accumulate_grad_hook(
                lambda parameter, name=name, seen=seen: seen.update({name + "!": seen.get(name + "!", 0) + 1})
            )
        wrapped = wrap(model)
        for step in range(4):
            wrapped(rows(step)).sum().backward()
        counts.append(seen)
    assert counts[1] == counts[0]
    assert rekindle.status(wrapped).source == "export"


def test_versions_and_gradients_of_live_tensors_stay_what_they_are() -> None:
    model = made()
    wrapped = rekindle.Module(model)
    x = rows().requires_grad_()
    before = {name: (id(value), value._version, value.data_ptr()) for name, value in model.named_parameters()}
    wrapped(x)
    assert {name: (id(value), value._version, value.data_ptr()) for name, value in model.named_parameters()} == before
    assert all(value.grad is None for value in (x, *model.parameters()))
    assert x._version == 0


def test_parameters_are_not_doubled_by_a_copy() -> None:
    from rekindle.export.copies.private_copy import PrivateCopies, private_tensors

    model, x = rekindle.Module(made()), rows()
    subject = model._runtime._subject
    call = subject.call((x,), {}, [x], subject.fingerprint((x,), {}))
    copy: Any = PrivateCopies(call).around(private_tensors(call)).module
    for live, other in zip(model.parameters(), copy.parameters(), strict=True):
        assert live is not other
        assert live.data_ptr() == other.data_ptr()
    assert all(live.data_ptr() != other.data_ptr() for live, other in zip(model.buffers(), copy.buffers(), strict=True))
    assert copy.layers[3]._flat_weights[0] is copy.layers[3].weight_ih_l0


def test_a_long_first_call_can_be_watched() -> None:
    """The forward of an export runs with the module as its user made it in every other thread."""
    model, seen = made(), list[bool]()

    class Slow(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = model

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.inner(x)

    slow = Slow()
    parameter, done = model.layers[0].weight, threading.Event()

    def watch() -> None:
        while not done.is_set():
            seen.append(slow.inner.layers[0].weight is parameter)
            time.sleep(0)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        rekindle.Module(slow)(rows())
    finally:
        done.set()
        watcher.join()
    assert all(seen)
