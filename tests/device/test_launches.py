"""Launches that the device repeats by itself (cuda_graphs): every call is eager's, whatever moves in memory meanwhile."""

from __future__ import annotations

import contextlib
import copy
import re

import pytest
import rekindle
import torch
from device_cases import SERVED
from device_of_tests import Recorder
from device_twins import Made
from launch_twins import replays_of, rows, twins_of, wait
from rekindle import _native
from torch import nn
from torch.nn import functional as F

pytestmark = pytest.mark.usefixtures("recorder")


@pytest.mark.parametrize("name", SERVED)
def test_replayed_calls_are_eagers(name: str) -> None:
    twins = twins_of(Made(SERVED[name]))
    assert replays_of(twins, 8) >= 2
    assert twins.status.eager_calls == 0, twins.status.bypass


def test_a_replayed_step_is_few_calls_of_the_host() -> None:
    layers = nn.Sequential(*[layer for _ in range(6) for layer in (nn.Linear(4, 4), nn.Tanh())])
    twins = twins_of(layers)
    assert replays_of(twins, 6) == 3  # two as they are, one recorded
    kernels = torch.ops.test_device.kernels
    before = kernels()
    twins.wrapped(rows())
    assert kernels() - before >= 12


def test_parameters_and_arguments_that_move_are_followed() -> None:
    twins = twins_of(Made(SERVED["linear"]))
    assert replays_of(twins, 5) == 2
    for _ in range(3):
        for module in (twins.eager, twins.module):
            module.a.weight.data = module.a.weight.data + 1
        moved = [rows() for _ in range(3)]  # all alive, so each is elsewhere
        for x in moved:
            twins.call(x)
    assert replays_of(twins, 4) >= 3


def test_memory_that_never_stays_ends_the_recording(capfd: pytest.CaptureFixture[str]) -> None:
    class Many(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(12))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = torch.tanh(layer(x))
            return x

    twins = twins_of(Many())
    replays_of(twins, 4)
    for i in range(12):  # one more of them each time
        for module in (twins.eager, twins.module):
            module.layers[i].weight.data = module.layers[i].weight.data.clone()
        twins.call(rows())
        twins.call(rows())
    assert "the memory that it reads never stays in place" in capfd.readouterr().err
    assert replays_of(twins, 3) == 0


def test_sizes_take_turns() -> None:
    twins = twins_of(Made(SERVED["dropout"]))
    for _ in range(5):
        for count in (2, 3, 5):
            twins.call(rows(count))
    assert twins.status.replayed_calls == 6


def test_more_plans_than_are_recorded() -> None:
    twins = twins_of(Made(SERVED["linear"]))
    for _ in range(5):
        for count in range(2, 9):
            twins.call(rows(count))
    assert twins.status.replayed_calls == 2 * 4


def test_training_with_statistics_and_an_optimizer() -> None:
    torch.manual_seed(0)
    layers = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.GELU(), nn.Dropout(0.2), nn.Linear(8, 4)).to("test:0")
    twins = twins_of(layers)
    steps = [torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9) for module in (twins.eager, twins.module)]
    for _ in range(12):
        twins.call(rows(16))
        for step in steps:
            step.step()
    assert twins.status.replayed_calls >= 8
    for one, other in zip(twins.eager.state_dict().values(), twins.module.state_dict().values(), strict=True):
        torch.testing.assert_close(one, other)


class Doubled(torch.autograd.Function):
    """Twice x, by the host."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, x: torch.Tensor) -> torch.Tensor:
        """Twice x."""
        return x * 2

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, gradient: torch.Tensor) -> torch.Tensor:
        """Twice the gradient."""
        return gradient * 2


def test_functions_of_the_user_run_between_recordings() -> None:
    twins = twins_of(Made(lambda self, x: self.a(Doubled.apply(torch.tanh(self.a(x)))).exp()))
    assert replays_of(twins, 6) == 3


def test_another_stream_runs_launch_by_launch() -> None:
    twins = twins_of(Made(lambda self, x: torch.tanh(self.a(x))))
    assert replays_of(twins, 5) == 2
    before = torch.accelerator.current_stream()
    x = rows()
    expected = twins.eager(x)
    wait()
    torch.accelerator.set_stream(torch.Stream("test:0"))
    try:
        found = twins.wrapped(x)
        wait()
    finally:
        torch.accelerator.set_stream(before)
    torch.testing.assert_close(found, expected)
    del found  # whose backward could still come
    assert replays_of(twins, 3) >= 1  # in memory of the first stream


def test_what_waits_for_the_device_runs_between_recordings() -> None:
    """A mask by which is written says only on the device how many numbers it takes."""

    def forward(self: Made, x: torch.Tensor) -> torch.Tensor:
        y = torch.tanh(self.a(x))
        y = y.index_put((x > 0,), x.mean())
        return self.a(y.exp())

    twins = twins_of(Made(forward))
    assert replays_of(twins, 6) == 3
    assert twins.status.eager_calls == 0, twins.status.bypass


def test_a_device_that_refuses_is_told_of_once(capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    real = Recorder.record
    monkeypatch.setattr(Recorder, "record", lambda self, work: real(self, lambda: (work(), wait())))
    twins = twins_of(Made(lambda self, x: torch.tanh(self.a(x))))
    assert replays_of(twins, 5) == 0
    told = re.findall("launches are not recorded.* not permitted when stream is capturing", capfd.readouterr().err)
    assert len(told) == 1
    assert twins.status.eager_calls == 0


def test_memory_that_runs_out_while_launches_are_recorded(capfd: pytest.CaptureFixture[str]) -> None:
    twins = twins_of(Made(SERVED["dropout"]))
    replays_of(twins, 2)
    x = rows()
    torch.ops.test_device.fail_allocation(3)
    twins.wrapped(x).sum().backward()
    torch.ops.test_device.fail_allocation(0)
    twins.module.zero_grad()
    replays_of(twins, 3)


def test_a_call_without_memory_for_its_arena_does_not_end_replays() -> None:
    twins = twins_of(Made(SERVED["linear"]))
    assert replays_of(twins, 5) == 2
    rekindle.release_memory()
    x = rows()
    torch.ops.test_device.fail_allocation(1)
    with contextlib.suppress(torch.OutOfMemoryError):
        twins.wrapped(x)
    torch.ops.test_device.fail_allocation(0)
    assert replays_of(twins, 6) >= 2


def test_copies_of_a_module_record_for_themselves() -> None:
    twins = twins_of(Made(SERVED["linear"]))
    replays_of(twins, 5)
    other = copy.deepcopy(twins.wrapped)
    for _ in range(6):
        x = rows()
        torch.testing.assert_close(other(x), twins.eager(x))
    assert rekindle.status(other).replayed_calls >= 2


def test_attention_and_losses() -> None:
    class Tokens(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table, self.mixed, self.out = nn.Embedding(11, 8), nn.Linear(8, 24), nn.Linear(8, 11)
            self.norm = nn.LayerNorm(8)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = self.mixed(self.norm(self.table(x))).view(2, 5, 3, 2, 4).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=0.1).transpose(1, 2).reshape(2, 5, 8)
            return F.cross_entropy(self.out(y).flatten(0, 1), x.flatten())

    twins = twins_of(Tokens())
    for _ in range(8):
        twins.call(torch.randint(11, (2, 5), device="test:0"))
    assert twins.status.replayed_calls >= 4 and twins.status.eager_calls == 0


def test_a_device_without_a_recorder_runs_launch_by_launch(capfd: pytest.CaptureFixture[str]) -> None:
    _native.set_launch_recorders("privateuseone", None)
    twins = twins_of(Made(SERVED["linear"]))
    assert replays_of(twins, 5) == 0
    assert capfd.readouterr().err.count("nothing records those of") == 1
