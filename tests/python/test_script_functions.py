"""Functions that torch.jit.script has compiled: a graph has what they compute, and the key their code."""

from __future__ import annotations

import importlib
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import torch
from torch import nn


@torch.jit.script
def gelu(x: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    y = x + bias
    return y * 0.5 * (1.0 + torch.tanh(0.79788456 * y * (1 + 0.044715 * y * y)))


@torch.jit.script
def swish(x: torch.Tensor) -> torch.Tensor:
    return x.mul(torch.sigmoid(x))


@torch.jit.script
def swish_gradient(x: torch.Tensor, gradient: torch.Tensor) -> torch.Tensor:
    sigmoid = torch.sigmoid(x)
    return gradient * (sigmoid * (1 + x * (1 - sigmoid)))


class Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return swish(x)

    @staticmethod
    def backward(ctx: Any, *gradients: Any) -> torch.Tensor:
        return swish_gradient(ctx.saved_tensors[0], gradients[0])


@torch.jit.script
def dropped(x: torch.Tensor) -> torch.Tensor:
    return torch.dropout(x, 0.5, True)


@torch.jit.script
def raised(x: torch.Tensor, by: torch.Tensor) -> torch.Tensor:
    by.add_(1)
    return x * by


@torch.jit.script
def of_rows(x: torch.Tensor) -> torch.Tensor:
    if x.size(0) > 2:
        return x * 2
    return x * 3


@torch.jit.script
def branches(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:  # noqa: SIM108
        y = x * 2
    else:
        y = x - 1
    return y


@torch.jit.script
def prints(x: torch.Tensor) -> torch.Tensor:
    print("called")
    return x * 2


@torch.jit.ignore
def of_python(x):  # type: ignore[no-untyped-def]
    return x * 2


@torch.jit.script
def calls_python(x: torch.Tensor) -> torch.Tensor:
    return of_python(x) + 1


@torch.jit.script
def by_constants(x: torch.Tensor) -> torch.Tensor:
    a, b = x.chunk(2, 1)
    return torch.cat([b, a], 1) * torch.tensor([1.5, 2.5, 3.5, 4.5])


class Scripted(nn.Module):
    def __init__(self, do: Callable[[Any, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.linear, self.do = nn.Linear(4, 4), do
        self.register_buffer("by", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.do(self, self.linear(x))


IN_GRAPHS: dict[str, Callable[[Any, torch.Tensor], torch.Tensor]] = {
    "fused": lambda self, y: gelu(y, self.by),
    "in a Function": lambda self, y: Swish.apply(y),
    "draws": lambda self, y: dropped(y),
    "writes": lambda self, y: raised(y, self.by),
    "by sizes": lambda self, y: of_rows(y),
    "by constants": lambda self, y: by_constants(y),
}
IN_EAGER: dict[str, tuple[Callable[[Any, torch.Tensor], torch.Tensor], str, str]] = {
    "branches": (lambda self, y: branches(y), "value_specialized", "torch.jit.script function computes in a branch"),
    "calls Python": (lambda self, y: calls_python(y), "opaque_value", "= ^"),
    "prints": (lambda self, y: prints(y), "opaque_value", "prim::Print"),
}


def _trained(model: Any, inner: nn.Module) -> list[torch.Tensor]:
    found = []
    for step, rows in enumerate((3, 5, 2, 3)):
        torch.manual_seed(step)
        y = model(torch.randn(rows, 4))
        y.sum().backward()
        found.append(y.detach())
    return [*found, *(p.grad for p in inner.parameters()), *inner.buffers()]


def _compare(do: Callable[[Any, torch.Tensor], torch.Tensor]) -> rekindle.Status:
    torch.manual_seed(0)
    plain, inner = Scripted(do), Scripted(do)
    inner.load_state_dict(plain.state_dict())
    model = rekindle.Module(inner, rekindle.Options(log="error", cache="off"))
    for mine, theirs in zip(_trained(model, inner), _trained(plain, plain), strict=True):
        torch.testing.assert_close(mine, theirs)
    return rekindle.status(model)


@pytest.mark.parametrize("name", IN_GRAPHS)
def test_it_is_part_of_the_graph(name: str) -> None:
    status = _compare(IN_GRAPHS[name])
    assert status.eager_calls == 0, status.bypass


@pytest.mark.parametrize("name", IN_EAGER)
def test_what_no_graph_has_runs_in_eager(name: str) -> None:
    do, code, message = IN_EAGER[name]
    status = _compare(do)
    assert status.exports == 0
    assert status.bypass[0][0] == code
    assert message in status.bypass[0][1]


def test_another_body_is_another_graph(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    found: list[tuple[str, float]] = []
    for lines, factor in (("", 2.0), ("\n\n", 2.0), ("", 3.0)):  # lines alone are no other body
        (tmp_path / "scripted_here.py").write_text(
            f"{lines}import torch\n@torch.jit.script\ndef scaled(x: torch.Tensor) -> torch.Tensor:\n    return x * {factor}\n"
        )
        sys.modules.pop("scripted_here", None)
        importlib.invalidate_caches()
        scaled = importlib.import_module("scripted_here").scaled
        torch.manual_seed(0)
        model = rekindle.Module(Scripted(lambda self, y, scaled=scaled: scaled(y)), rekindle.Options(log="error"))
        y = model(torch.ones(1, 4))
        rekindle.lookup.store.flush()
        found.append((rekindle.status(model).source, float(y.sum())))
    assert [source for source, _ in found] == ["export", "local", "export"]
    assert found[0][1] == found[1][1] == pytest.approx(found[2][1] * 2 / 3)


def test_a_scripted_module_is_named() -> None:
    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scripted = torch.jit.script(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
            self.rest = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.rest(self.scripted(x))

    model = rekindle.Module(Holder(), rekindle.Options(log="error", cache="off"))
    model(torch.ones(2, 4))
    status = rekindle.status(model)
    assert "model.scripted is a scripted module" in status.bypass[0][1]
    assert [part.source for part in status.parts if part.name == "rest"] == ["export"]
