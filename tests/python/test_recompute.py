"""`recompute=True` of an autograd Function: its backward calls forward again; nothing that forward saves is kept until then."""

from __future__ import annotations

import logging
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import rekindle
import torch
from rekindle.errors import PythonOpError
from torch import nn

LOG = logging.getLogger("rekindle.tests.recompute")
LOG.setLevel(logging.INFO)


class Seen(logging.Handler):
    """Keeps what Functions tell: the calls, and weak references to what they have saved."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []
        self.saved: list[weakref.ref[torch.Tensor]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.calls.append(record.msg.split()[0])
        self.saved += record.args or ()


@pytest.fixture
def seen() -> Iterator[Seen]:
    handler = Seen()
    LOG.addHandler(handler)
    yield handler
    LOG.removeHandler(handler)


class Saving(torch.autograd.Function):
    """Drops elements at random, and saves what it has made."""

    recompute = True

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, power: float) -> torch.Tensor:
        made = torch.exp(x) * (torch.rand_like(x) < 0.5)
        LOG.info("forward makes %s", weakref.ref(made))
        ctx.save_for_backward(made, weight)
        ctx.power = power
        return made * weight * power

    @staticmethod
    def backward(ctx: Any, dy: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, None]:
        LOG.info("backward")
        made, weight = ctx.saved_tensors
        return dy * made * weight * ctx.power, (dy * made * ctx.power).sum(0), None


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.weight, self.last = nn.Linear(4, 4), nn.Parameter(torch.ones(4)), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(Saving.apply(self.first(x).tanh(), self.weight, 0.5))


class Direct(Net):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return Saving.apply(x, self.weight, 0.5)


def pair(make: type[Net], cache_dir: Path) -> tuple[Net, Any]:
    torch.manual_seed(0)
    net, other = make(), make()
    other.load_state_dict(net.state_dict())
    return net, rekindle.Module(other, options=rekindle.Options(start="wait", cache_dir=str(cache_dir), fallback="error"))


def trained(module: nn.Module, x: torch.Tensor) -> list[torch.Tensor | None]:
    torch.manual_seed(3)
    x = x.clone().requires_grad_()
    module.zero_grad()
    result = module(x)
    result.sin().sum().backward()
    return [result, x.grad, *(parameter.grad for parameter in module.parameters()), torch.rand(2)]


def test_gradients_and_random_numbers_are_eagers(tmp_path: Path) -> None:
    net, graphed = pair(Net, tmp_path)
    for rows in (5, 5, 3):
        x = torch.randn(rows, 4)
        torch.testing.assert_close(trained(graphed, x), trained(net, x))


def test_nothing_that_forward_saves_is_kept(tmp_path: Path, seen: Seen) -> None:
    net, graphed = pair(Net, tmp_path)
    x = torch.randn(5, 4)
    trained(graphed, x)
    seen.calls.clear()
    seen.saved.clear()
    loss = graphed(x).sum()
    assert seen.calls == ["forward"] and seen.saved[0]() is None
    loss.backward(retain_graph=True)
    loss.backward()
    assert seen.calls == ["forward", "forward", "backward", "forward", "backward"]
    assert all(one() is None for one in seen.saved)
    seen.calls.clear()
    with torch.no_grad():
        graphed(x)
    assert seen.calls == ["forward"]
    kept = net(x).sum()
    assert seen.saved[-1]() is not None, "eager keeps it"
    del kept


def test_an_input_that_is_written_before_the_backward_is_an_error(tmp_path: Path) -> None:
    net, graphed = pair(Direct, tmp_path)
    x = torch.randn(5, 4, requires_grad=True)
    for module in (net, graphed):
        module(x).sum().backward()
        loss = module(x).sum()
        with torch.no_grad():
            (module.weight if isinstance(module, Net) else rekindle.unwrap(module).weight).mul_(2)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            loss.backward()


def test_autocast_is_that_of_the_forward(tmp_path: Path) -> None:
    net, graphed = pair(Net, tmp_path)
    x = torch.randn(5, 4)
    found = []
    for module in (net, graphed, net, graphed):
        torch.manual_seed(3)
        module.zero_grad()
        with torch.autocast("cpu", torch.bfloat16):
            result = module(x)
        result.float().sum().backward()
        found.append([result, *(parameter.grad for parameter in module.parameters())])
    torch.testing.assert_close(found[1::2], found[::2])


@pytest.mark.parametrize(
    "other",
    [{"inline": True}, {"export": lambda x, weight, power: x}, {"inplace_map": {0: 0}}],
    ids=["inline", "export", "reuse"],
)
def test_what_cannot_be_recomputed_is_refused(other: dict[str, Any]) -> None:
    class Plain(torch.autograd.Function):
        pass

    with pytest.raises(PythonOpError, match=r"both recompute=True and .*; choose one"):
        rekindle.register_python_op(Plain, recompute=True, **other)
    with pytest.raises(PythonOpError, match=r"recompute of the autograd Function .* is 1; it must be True or False"):
        rekindle.register_python_op(Plain, recompute=1)  # type: ignore[arg-type]
