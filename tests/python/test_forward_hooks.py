"""Forward hooks and pre-hooks of submodules are code of the forward: traced where they compute, eager where they keep things."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import torch
from module_support import Twins, assert_same, mlp, rows
from torch import nn
from torch.utils.checkpoint import checkpoint

SEEN: dict[str, torch.Tensor] = {}


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 4))
        self.last = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.body(x)) + self.last(x)


class Scale:
    """A hook that is an object, as those of pruning are."""

    def __init__(self, by: float) -> None:
        self.by = by

    def __call__(self, module: nn.Module, args: Any, result: torch.Tensor) -> torch.Tensor:
        return result * self.by


class Bound(nn.Module):
    def hook(self, module: nn.Module, args: Any) -> tuple[Any, ...]:
        return (args[0] * module.weight.mean(),)


def _with_arguments(module: nn.Module, args: Any, kwargs: Any, result: torch.Tensor) -> torch.Tensor:
    return result + args[0].mean()


COMPUTE: dict[str, Callable[[Net], Any]] = {
    "function": lambda net: net.body[0].register_forward_hook(lambda module, args, result: result.tanh()),
    "pre": lambda net: net.body[3].register_forward_pre_hook(lambda module, args: (args[0] + module.bias.sum(),)),
    "object": lambda net: net.last.register_forward_hook(Scale(0.5)),
    "method": lambda net: net.last.register_forward_pre_hook(Bound().hook),
    "with arguments": lambda net: net.last.register_forward_hook(_with_arguments, with_kwargs=True),
    "always": lambda net: net.last.register_forward_hook(lambda *_: None, always_call=True),
    "in place": lambda net: net.body[1].register_forward_hook(lambda module, args, result: result.mul_(2)),
    "of a container": lambda net: net.body.register_forward_hook(lambda module, args, result: result + args[0]),
    "by mode": lambda net: net.body.register_forward_hook(lambda module, args, result: result * (2 if module.training else 3)),
    "two, in order": lambda net: [
        net.last.register_forward_hook(lambda module, args, result: result + 1),
        net.last.register_forward_hook(lambda module, args, result: result * 2, prepend=True),
    ],
}


def _pair(register: Callable[[Net], Any]) -> tuple[Net, Net]:
    torch.manual_seed(0)
    eager = Net()
    own = copy.deepcopy(eager)
    for net in (eager, own):
        register(net)
    return eager, own


def _step(called: nn.Module, net: Net, x: torch.Tensor) -> list[Any]:
    net.zero_grad()
    x = x.clone().requires_grad_()
    result = called(x)
    result.square().sum().backward()
    return [result, x.grad, *(p.grad for p in net.parameters()), *(b.clone() for b in net.buffers())]


@pytest.mark.parametrize("name", COMPUTE)
def test_hooks_that_compute_run_in_the_graph(name: str) -> None:
    for expected in ("export", "local"):
        eager, own = _pair(COMPUTE[name])
        wrapped = rekindle.Module(own)
        for train in (True, False):
            for net in (eager, own):
                net.train(train)
            for size in (5, 3):
                x = torch.randn(size, 4)
                assert_same(_step(wrapped, own, x), _step(eager, eager, x))
        status = rekindle.status(wrapped)
        assert (status.exports, status.bypass) == ((2 if expected == "export" else 0), [])
        rekindle.lookup.store.flush()


def test_another_hook_is_another_graph() -> None:
    eager, own = _pair(lambda net: None)
    wrapped = rekindle.Module(own)
    x = torch.randn(3, 4)
    handles: list[Any] = []
    for by in (None, 2.0, 3.0, None, 2.0):
        for handle in handles:
            handle.remove()
        handles = [] if by is None else [net.last.register_forward_hook(Scale(by)) for net in (eager, own)]
        assert_same(_step(wrapped, own, x), _step(eager, eager, x))
    assert rekindle.status(wrapped).exports == 3
    assert rekindle.status(wrapped).bypass == []


def test_a_changed_object_of_a_hook_is_another_graph() -> None:
    scales = Scale(2.0), Scale(2.0)
    eager, own = Net(), Net()
    own.load_state_dict(eager.state_dict())
    for net, scale in zip((eager, own), scales, strict=True):
        net.last.register_forward_hook(scale)
    wrapped = rekindle.Module(own)
    x = torch.randn(3, 4)
    for by in (2.0, 5.0):
        for scale in scales:
            scale.by = by
        assert_same(_step(wrapped, own, x), _step(eager, eager, x))
    assert rekindle.status(wrapped).exports == 2


def _keeps(kept: Any) -> Callable[..., None]:
    return lambda module, args, result: kept.append(result.detach())


def _keeps_globally(kept: Any, module: nn.Module, args: Any, result: torch.Tensor) -> None:
    SEEN["r"] = result.detach()
    kept.append(SEEN["r"])


def _keeps_on_the_module(kept: Any, module: Any, args: Any, result: torch.Tensor) -> None:
    module.met = result.detach()
    kept.append(module.met)


KEEP: dict[str, Callable[[Net, Any], Any]] = {
    "list": lambda net, kept: net.body[0].register_forward_hook(_keeps(kept)),
    "global": lambda net, kept: net.body[0].register_forward_hook(functools.partial(_keeps_globally, kept)),
    "attribute": lambda net, kept: net.body[0].register_forward_hook(functools.partial(_keeps_on_the_module, kept)),
}


@pytest.mark.parametrize("name", KEEP)
def test_what_hooks_keep_is_what_eager_keeps(name: str) -> None:
    torch.manual_seed(0)
    eager = Net()
    own = copy.deepcopy(eager)
    kept: tuple[list[Any], list[Any]] = ([], [])
    for net, into in zip((eager, own), kept, strict=True):
        KEEP[name](net, into)
    wrapped = rekindle.Module(own, rekindle.Options(log="off"))
    for _ in range(4):
        x = torch.randn(3, 4)
        assert_same(_step(wrapped, own, x), _step(eager, eager, x))
    assert len(kept[0]) == len(kept[1]) == 4
    assert_same(kept[1], kept[0])
    assert {code for code, _ in rekindle.status(wrapped).bypass} == {"state_mutated"}


def test_an_always_called_hook_leaves_the_error_of_eager() -> None:
    net = Net()
    net.last.register_forward_hook(lambda *_: None, always_call=True)
    wrapped = rekindle.Module(net)
    wrapped(torch.randn(3, 4))
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        wrapped(torch.randn(3, 5))


class Tuned(nn.Module):
    """Frozen but for a low-rank update, whose inputs a hook lets require gradients, as transformers does for checkpoints."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.frozen, self.update = nn.Embedding(10, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        for module in (self.embed, self.frozen):
            module.requires_grad_(False)
        self.embed.register_forward_hook(lambda module, args, result: result.requires_grad_(True))

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return checkpoint(self._block, self.embed(tokens), use_reentrant=True)

    def _block(self, x: torch.Tensor) -> torch.Tensor:
        return self.frozen(x) + self.update(x)


def test_a_hook_that_lets_a_frozen_embedding_require_gradients_is_in_the_graph() -> None:
    torch.manual_seed(0)
    eager, own = Tuned(), Tuned()
    own.load_state_dict(eager.state_dict())
    wrapped = rekindle.Module(own)
    for size in (4, 6):
        tokens = torch.randint(10, (3, size))
        for net, called in ((eager, eager), (own, wrapped)):
            net.zero_grad()
            called(tokens).square().sum().backward()
        assert_same(
            [p.grad for p in own.parameters() if p.requires_grad], [p.grad for p in eager.parameters() if p.requires_grad]
        )
        assert own.embed.weight.grad is None
    assert rekindle.status(wrapped).bypass == []


class KeepsHandles(nn.Module):
    """Keeps what its hooks were registered with, and reads how many there are."""

    def __init__(self) -> None:
        super().__init__()
        self.inner = mlp()
        self.handles = [self.inner.first.register_forward_hook(lambda module, args, out: out * 2)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * len(self.handles)


def test_how_many_hooks_a_process_has_had_is_no_part_of_the_key() -> None:
    for source in ("export", "local"):
        twins = Twins(KeepsHandles(), fallback="error")
        twins.call(rows()).sum().register_hook(lambda gradient: None)
        assert twins.status.source == source
        rekindle.cache.stats()  # waits until everything is stored


class ReadsHandles(KeepsHandles):
    """Reads which hooks a handle is for."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x) * len(self.handles[0].hooks_dict_ref())


def test_what_else_a_handle_holds_is_no_part_of_a_graph() -> None:
    twins = Twins(ReadsHandles())
    twins.call(rows())
    assert twins.reasons() == ["opaque_value"]
