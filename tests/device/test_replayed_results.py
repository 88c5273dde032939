"""Results and gradients of replayed calls are eager's, lie in memory as eager's do, and are never written again."""

from __future__ import annotations

import pathlib
import subprocess
import sys

import pytest
import torch
from device_cases import SERVED
from device_twins import Made
from launch_twins import replays_of, rows, twins_of

_CONFORMANCE = pathlib.Path(__file__).parents[1] / "conformance" / "conformance.py"
pytestmark = pytest.mark.usefixtures("recorder")


def test_what_a_call_returned_stays() -> None:
    """Results and gradients are no memory of the recording, which the next call writes."""
    twins = twins_of(Made(lambda self, x: (self.a(x), self.a(x).tanh().sum())))
    kept = []
    for _ in range(6):
        y, loss = twins.wrapped(rows())
        loss.backward()
        gradient, twins.module.a.weight.grad = twins.module.a.weight.grad, None
        kept.extend((one.detach(), one.detach().clone()) for one in (y, loss, gradient))
    assert twins.status.replayed_calls >= 2
    for one, then in kept:
        torch.testing.assert_close(one, then, rtol=0, atol=0)


def test_results_lie_as_they_do_without() -> None:
    """With gaps between elements, in another order, or as one element many times."""

    def forward(self: Made, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.tanh(self.a(x))
        return y[:, 1], y.t(), y[::2, ::2], y[:1].expand(3, 4), y.sum()[None].expand(2, 2), y[:0]

    twins = twins_of(Made(forward))
    for _ in range(6):
        x = rows()
        expected, found = twins.eager(x), twins.wrapped(x)
        assert [one.stride() for one in found] == [one.stride() for one in expected]
        torch.testing.assert_close(found, expected)
        sum(one.sum() for one in found).backward()
    assert twins.status.replayed_calls >= 2


def test_two_calls_in_flight() -> None:
    """The second has a frame of its own; a backward of the first reads what the first has left."""
    twins = twins_of(Made(lambda self, x: torch.tanh(self.a(x)).pow(2)))
    replays_of(twins, 5)
    for _ in range(3):
        inputs = [rows(), rows()]
        expected, found = [[one(x) for x in inputs] for one in (twins.eager, twins.wrapped)]
        for theirs, ours in zip(expected, found, strict=True):
            gradients = [torch.autograd.grad(y.sum(), m.parameters()) for y, m in ((theirs, twins.eager), (ours, twins.module))]
            torch.testing.assert_close(*gradients)


@pytest.mark.parametrize("dropped", [False, True])
def test_backwards_of_one_call(dropped: bool) -> None:
    """Twice with retain_graph, of one result after the other, with later calls in between; or none at all."""
    twins = twins_of(Made(lambda self, x: (torch.tanh(self.a(x)), torch.sigmoid(self.a(x)))))
    for _ in range(8):
        x = rows()
        expected, found = twins.eager(x), twins.wrapped(x)
        if dropped:
            torch.testing.assert_close(expected, found)
            continue
        for result, keep in ((0, True), (0, False), (1, True), (1, False)):
            theirs, ours = (
                torch.autograd.grad(y[result].sum(), module.parameters(), retain_graph=keep)
                for y, module in ((expected, twins.eager), (found, twins.module))
            )
            twins.wrapped(rows())
            torch.testing.assert_close(theirs, ours)


def test_gradients_accumulate() -> None:
    twins = twins_of(Made(SERVED["linear"]))
    for _ in range(3):
        for module in (twins.eager, twins.module):
            module.zero_grad()
        for _ in range(4):
            x = rows()
            for called in (twins.eager, twins.wrapped):
                called(x).square().sum().backward()
        for one, other in zip(twins.eager.parameters(), twins.module.parameters(), strict=True):
            torch.testing.assert_close(one.grad, other.grad)
    assert twins.status.replayed_calls >= 8


def test_gradients_of_gradients() -> None:
    twins = twins_of(Made(lambda self, x: torch.tanh(self.a(x)).pow(2)))
    replays_of(twins, 5)
    for _ in range(2):
        x = rows()
        penalties = []
        for called, module in ((twins.eager, twins.eager), (twins.wrapped, twins.module)):
            leaf = x.clone().requires_grad_()
            (gradient,) = torch.autograd.grad(called(leaf).sum(), leaf, create_graph=True)
            penalties.append(torch.autograd.grad(gradient.square().sum(), module.a.weight))
        torch.testing.assert_close(*penalties)


def test_random_programs_are_eagers() -> None:
    command = [sys.executable, str(_CONFORMANCE), "programs", "--samples", "60", "--device", "test", "--replay"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert int(done.stdout.rsplit(" ", 1)[1]) > 20, done.stdout
