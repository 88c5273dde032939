"""A graph follows eager, or raises, when a program writes tensors or looks for anomalies between forward and backward."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, compute: Callable[[Any, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.linear, self.compute, self.plain = nn.Linear(3, 3), compute, torch.tensor([1.0, 2.0, 3.0])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.compute(self, self.linear(x))


def wrapped(net: nn.Module, cache_dir: Any) -> nn.Module:
    return rekindle.Module(net, options=rekindle.Options(start="wait", cache_dir=cache_dir))


def rewritten(net: Net) -> None:
    net.plain.data.mul_(2)


def exchanged(net: Net) -> None:
    net.plain.data = net.plain * 2


@pytest.mark.parametrize("write", [rewritten, exchanged])
@pytest.mark.parametrize("transposed", [False, True])
def test_a_plain_tensor_that_the_backward_reads_is_written_past_its_version(
    tmp_path: Any, write: Callable[[Net], None], transposed: bool
) -> None:
    net = Net(lambda net, h: (h * net.plain).sin())
    if transposed:
        net.plain = torch.tensor([[1.0, 4.0], [2.0, 5.0], [3.0, 6.0]]).t()[0]
    graphed = wrapped(net, tmp_path)
    graphed(torch.randn(2, 3)).sum().backward()
    loss = graphed(torch.randn(2, 3)).sum()
    write(net)
    with pytest.raises(RuntimeError, match=r"written through .data since the forward.*register it as a buffer"):
        loss.backward()
    assert rekindle.status(graphed).eager_calls == 0


def test_a_plain_tensor_that_no_backward_reads_may_be_written(tmp_path: Any) -> None:
    net = Net(lambda net, h: h + net.plain)
    graphed = wrapped(net, tmp_path)
    loss = graphed(torch.randn(2, 3)).sum()
    rewritten(net)
    loss.backward()
    assert net.linear.bias.grad.tolist() == [2.0, 2.0, 2.0]


def hidden(net: Net, h: torch.Tensor) -> torch.Tensor:
    return torch.sqrt(h - h.detach()).masked_fill(h < 10, 0.0)  # the derivative of the root at 0, times 0


def test_an_anomaly_that_a_later_node_hides_is_found_around_the_backward_alone(tmp_path: Any) -> None:
    net = Net(hidden)
    x = torch.ones(2, 3)
    graphed = wrapped(net, tmp_path)
    for module in (net, graphed, graphed):
        loss = module(x).sum()
        told = pytest.raises(RuntimeError, match=r"Function 'SqrtBackward0' returned nan values in its 0th output")
        with pytest.warns(UserWarning, match="[Aa]nomaly|Error detected"), torch.autograd.detect_anomaly(), told:
            loss.backward()
    assert rekindle.status(graphed).eager_calls == 0


def test_gradients_under_anomaly_detection_are_the_same(tmp_path: Any) -> None:
    net = Net(lambda net, h: (h * net.plain).sin())
    x = torch.randn(2, 3)
    found = []
    for module in (net, wrapped(net, tmp_path)):
        net.zero_grad()
        loss = module(x).sum()
        with pytest.warns(UserWarning, match="Anomaly"), torch.autograd.detect_anomaly():
            loss.backward()
        found.append(net.linear.weight.grad)
    torch.testing.assert_close(*found)


def test_a_call_of_a_calls_result_has_eagers_gradients_under_anomaly_detection(tmp_path: Any) -> None:
    # The repeated forward of the later call leads to the parameters by way of the earlier one, too.
    net = Net(lambda net, h: (h * net.plain).sin())
    module, found = wrapped(net, tmp_path), []
    for called in (net, module, module):  # an export, and what it made
        torch.manual_seed(1)
        net.zero_grad()
        x = torch.randn(2, 3, requires_grad=True)
        with pytest.warns(UserWarning, match="Anomaly"), torch.autograd.detect_anomaly():
            called(called(x)).sum().backward()
        found.append([x.grad, *(parameter.grad for parameter in net.parameters())])
    torch.testing.assert_close(found[1], found[0])
    torch.testing.assert_close(found[2], found[0])
    assert rekindle.status(module).eager_calls == 0


def convolved(net: Net, h: torch.Tensor) -> torch.Tensor:
    return nn.functional.conv1d(h[:, None], net.kernel).sin().sum(1)


def normed(net: Net, h: torch.Tensor) -> torch.Tensor:
    return nn.functional.layer_norm(h, (3,), net.scale, net.scale)


def scaled(net: Net, h: torch.Tensor) -> torch.Tensor:
    return (h * net.scale).sin()


def viewed(net: Net, h: torch.Tensor) -> torch.Tensor:
    return (h @ net.square.t()).exp() @ net.square.view(3, 3)


def in_both_ways(net: Net, h: torch.Tensor) -> torch.Tensor:
    return (h @ net.square.t()).exp() @ net.square


FORWARDS = [convolved, normed, scaled, viewed]


def with_parameters(compute: Callable[[Any, torch.Tensor], torch.Tensor]) -> Net:
    torch.manual_seed(3)
    net = Net(compute)
    net.kernel, net.scale = nn.Parameter(torch.randn(2, 1, 3)), nn.Parameter(torch.randn(3))
    net.square, net.last = nn.Parameter(torch.randn(3, 3)), nn.Linear(3, 2)
    return net


def exchange_all(net: Net) -> None:
    for parameter in net.parameters():
        parameter.data = 2 * parameter.data + 1


def gradients_after(net: Net, module: nn.Module, between: Callable[[Net], None], times: int = 1) -> list[Any]:
    torch.manual_seed(4)
    net.zero_grad()
    loss = module(torch.randn(2, 3)).sum()
    for left in reversed(range(times)):
        between(net)
        loss.backward(retain_graph=left > 0)
    return [parameter.grad for parameter in net.parameters()]


@pytest.mark.parametrize("times", [1, 2])
@pytest.mark.parametrize("compute", FORWARDS)
def test_a_backward_reads_the_memory_that_it_reads_in_eager(
    tmp_path: Any, compute: Callable[..., torch.Tensor], times: int
) -> None:
    net, other = with_parameters(compute), with_parameters(compute)
    graphed = wrapped(other, tmp_path)
    gradients_after(other, graphed, lambda net: None)
    torch.testing.assert_close(
        gradients_after(other, graphed, exchange_all, times), gradients_after(net, net, exchange_all, times)
    )
    assert rekindle.status(graphed).eager_calls == 0
    for name, parameter in other.named_parameters():
        torch.testing.assert_close(parameter, net.get_parameter(name))


def shrunk(net: Net) -> None:
    net.scale.data = torch.empty(0)


@pytest.mark.parametrize(
    ("compute", "exchange", "message"),
    [
        (normed, shrunk, r"'scale' of the wrapped module has the sizes \[0\]"),
        (in_both_ways, exchange_all, r"'square' of the wrapped module has other memory than at the forward"),
    ],
)
def test_new_memory_that_cannot_be_read_as_in_eager_is_an_error(
    tmp_path: Any, compute: Callable[..., torch.Tensor], exchange: Callable[[Net], None], message: str
) -> None:
    net = with_parameters(compute)
    loss = wrapped(net, tmp_path)(torch.randn(2, 3)).sum()
    exchange(net)
    with pytest.raises(RuntimeError, match=message + ".*after the backward"):
        loss.backward()


def test_a_gradient_of_gradients_needs_the_memory_of_the_forward(tmp_path: Any) -> None:
    net = with_parameters(scaled)
    graphed = wrapped(net, tmp_path)
    loss = graphed(torch.randn(2, 3)).sum()
    exchange_all(net)
    with pytest.raises(RuntimeError, match="was given other memory since the forward"):
        torch.autograd.grad(loss, [*net.linear.parameters()], create_graph=True)


class Copies(nn.Module):
    """Multiplies a copy of its argument by copies of a buffer and of a result."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("scale", torch.tensor([1.0, 2.0, 3.0]))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.linear(x.clone()) * self.scale.clone() * self.scale[:1].clone()
        return hidden, hidden.clone().square()


def test_a_copy_that_the_forward_makes_is_not_written_with_the_original(tmp_path: Any) -> None:
    torch.manual_seed(0)
    eager = Copies()
    ours = copy.deepcopy(eager)
    graphed = wrapped(ours, tmp_path)
    x = torch.randn(2, 3)
    gradients = []
    for model, net in ((graphed, ours), (eager, eager)):
        given = x.clone()
        hidden, result = model(given)
        with torch.no_grad():
            for written in (given, net.scale, hidden):
                written.fill_(7)
        result.sum().backward()
        gradients.append([parameter.grad for parameter in net.parameters()])
    torch.testing.assert_close(*gradients)
    assert rekindle.status(graphed).source == "export"


def test_a_spectral_norm_that_is_trained_before_the_backward_of_an_evaluation(tmp_path: Any) -> None:
    torch.manual_seed(0)
    eager = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3))
    ours = copy.deepcopy(eager)
    graphed = wrapped(ours, tmp_path)
    x = torch.randn(2, 3)
    for model in (graphed, eager):
        evaluated = model.eval()(x)
        (evaluated.sum() + model.train()(x * 2).sum()).backward()
    torch.testing.assert_close([p.grad for p in ours.parameters()], [p.grad for p in eager.parameters()])
    assert rekindle.status(graphed).eager_calls == 0
