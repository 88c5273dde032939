"""What is alive after an export and some steps: parameters, buffers, plans and what the user holds."""

from __future__ import annotations

import gc
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import torch
from module_support import leaves, rows
from torch import nn
from torch.nn import functional as F


class Body(nn.Module):
    """A layer, and a forward that is given."""

    def __init__(self, forward: Callable[..., Any], **attributes: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.body = forward
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.body(self, *args, **kwargs)


class Square(torch.autograd.Function):
    """Saves what it is given."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return 2 * ctx.saved_tensors[0] * gradient


def plain(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.linear(x)


def pair(self: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return self.linear(x), x[1:]


def named(self: Any, batch: dict[str, Any]) -> dict[str, Any]:
    return {"y": self.linear(batch["x"]) + batch["more"][0], "given": batch["x"]}


def keyword(self: Any, *, x: torch.Tensor, scale: float = 2.0) -> torch.Tensor:
    return self.linear(x) * scale


def squared(self: Any, x: torch.Tensor) -> torch.Tensor:
    return Square.apply(self.linear(x))


def branching(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.linear(x) if x.sum() > 0 else self.linear(-x)


def printing(self: Any, x: torch.Tensor) -> torch.Tensor:
    print(end="")
    return self.linear(x)


def counting(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.calls += 1
    return self.linear(x)


def writing(self: Any, x: torch.Tensor) -> torch.Tensor:
    y = self.linear(x * 1)
    x.data.add_(1)
    return y


def dropping(self: Any, x: torch.Tensor) -> torch.Tensor:
    return F.dropout(self.linear(x), 0.5)


def checkpointed(self: Any, x: torch.Tensor) -> torch.Tensor:
    from torch.utils.checkpoint import checkpoint

    return checkpoint(self.linear, x, use_reentrant=False)


def noting(self: Any, x: torch.Tensor) -> torch.Tensor:
    self.seen.add_(x.detach().sum())
    return self.linear(x)


def wrong(self: Any, x: torch.Tensor) -> torch.Tensor:
    import time

    return self.linear(x) * (1 + 0 * time.time())


def unsupported(self: Any, x: torch.Tensor) -> torch.Tensor:
    return self.linear(x).to_dense() if False else torch.linalg.lu_factor(self.linear(x)[:3, :3]).LU


MODELS: dict[str, Callable[[], nn.Module]] = {
    function.__name__: (lambda function=function: Body(function))
    for function in (
        plain,
        pair,
        named,
        keyword,
        squared,
        branching,
        printing,
        writing,
        dropping,
        checkpointed,
        wrong,
        unsupported,
    )
} | {
    "counting": lambda: Body(counting, calls=0),
    "noting": lambda: Body(noting, seen=nn.Buffer(torch.zeros(()))),
    "norms": lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.LayerNorm(4)),
    "recurrent": lambda: nn.GRU(4, 4, batch_first=True),
    "transformer": lambda: nn.TransformerEncoderLayer(4, 2, 8, 0.0, batch_first=True),
    "embedding": lambda: nn.Sequential(nn.Linear(4, 4), nn.Flatten(0), nn.Unflatten(0, (-1, 4))),
    "hooked": lambda: _hooked(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 4))),
    "convolution": lambda: nn.Sequential(nn.Unflatten(1, (1, 4)), nn.Conv1d(1, 2, 3), nn.Flatten()),
}


def _hooked(module: nn.Module) -> nn.Module:
    module[0].register_forward_hook(lambda module, given, result: None)
    return module


def _arguments(name: str, step: int) -> tuple[tuple[Any, ...], dict[str, Any]]:
    x = rows(step, 3)
    if name in ("recurrent", "transformer"):
        x = x[None]
    x = x.detach().requires_grad_(name != "writing")
    if name == "named":
        return ({"x": x, "more": [torch.ones(4)]},), {}
    return ((), {"x": x}) if name == "keyword" else ((x,), {})


def _step(model: Any, name: str, step: int) -> list[tuple[str, Any]]:
    """Weak references to all tensors of a call and its backward."""
    args, kwargs = _arguments(name, step)
    result = model(*args, **kwargs)
    given, made = leaves((args, kwargs)), leaves(result)
    differentiable = [tensor for tensor in made if tensor.requires_grad and not tensor.is_leaf]
    cotangents = [torch.ones_like(tensor) for tensor in differentiable]
    torch.autograd.backward(differentiable, cotangents)
    gradients = [tensor.grad for tensor in given if tensor.is_leaf and tensor.grad is not None]
    kinds = {"argument": given, "result": made, "cotangent": cotangents, "gradient": gradients}
    return [(f"{kind} {i} of call {step}", weakref.ref(each)) for kind, found in kinds.items() for i, each in enumerate(found)]


def _live() -> list[torch.Tensor]:
    gc.collect()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [thing for thing in gc.get_objects() if issubclass(type(thing), torch.Tensor)]


@pytest.mark.parametrize("name", MODELS)
def test_nothing_of_the_calls_is_alive(name: str) -> None:
    module = MODELS[name]()
    before = {id(tensor) for tensor in _live()}
    model = rekindle.Module(module, rekindle.Options(log="error"))
    known = [found for step in range(3) for found in _step(model, name, step)]
    rekindle.lookup.store.flush()
    live = _live()
    assert [what for what, reference in known if reference() is not None] == []
    owned = {id(tensor) for parameter in module.parameters() for tensor in (parameter, parameter.grad)}
    owned |= {id(buffer) for buffer in module.buffers()}
    more = [tensor for tensor in live if id(tensor) not in before | owned]
    assert sum(tensor.untyped_storage().nbytes() for tensor in more) == 0, [tensor.shape for tensor in more]


def kept(model: Any, name: str) -> None:
    """A step, of which the module keeps the loss."""
    args, kwargs = _arguments(name, 0)
    loss = torch.stack([made.sum() for made in leaves(model(*args, **kwargs)) if made.requires_grad]).sum()
    loss.backward()
    model.last_loss = loss


@pytest.mark.parametrize("calls", [1, 2])
@pytest.mark.parametrize("name", MODELS)
def test_a_module_that_keeps_its_loss_is_collected(name: str, calls: int) -> None:
    model = rekindle.Module(MODELS[name](), rekindle.Options(log="error"))
    for _ in range(calls):
        kept(model, name)
    known = weakref.ref(unwrapped := rekindle.unwrap(model))
    del model, unwrapped
    rekindle.lookup.store.flush()
    gc.collect()
    assert known() is None
