"""torch.utils.checkpoint in a graph: results are eager's, and a step holds no more of a checkpoint than eager does."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import pytest
import rekindle
import torch
from seeded import seeded
from torch import nn
from torch.utils.checkpoint import checkpoint

_ROWS, _WIDTH, _LAYERS = 256, 32, 4
_VALUE = _ROWS * _WIDTH * 4  # bytes of what a layer returns


class Layer(nn.Module):
    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(_WIDTH)
        self.wide = nn.Linear(_WIDTH, 4 * _WIDTH)
        self.narrow = nn.Linear(4 * _WIDTH, _WIDTH)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.dropout(self.narrow(torch.tanh(self.wide(self.norm(x)))))


class Layers(nn.Module):
    """Runs each layer by `run`."""

    def __init__(self, run: Callable[..., torch.Tensor], dropout: float = 0.0) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(dropout) for _ in range(_LAYERS))
        self.run = run

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = self.run(layer, x)
        return x.square().sum()


def plainly(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return layer(x)


def nested(layer: nn.Module, x: torch.Tensor) -> torch.Tensor:
    return checkpoint(functools.partial(checkpoint, layer, use_reentrant=False), x, use_reentrant=False)


_REENTRANT = functools.partial(checkpoint, use_reentrant=True)
_NOT_REENTRANT = functools.partial(checkpoint, use_reentrant=False)
_WAYS = {"re-entrant": _REENTRANT, "not re-entrant": _NOT_REENTRANT, "nested": nested}


def made(run: Callable[..., torch.Tensor], dropout: float = 0.0) -> Layers:
    torch.manual_seed(3)
    return Layers(run, dropout)


def data() -> torch.Tensor:
    return torch.randn(_ROWS, _WIDTH, generator=seeded(1)).requires_grad_()


def step(module: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """Returns the loss, all gradients, and what is drawn next."""
    module.zero_grad()
    x.grad = None
    torch.manual_seed(7)
    loss = module(x)
    loss.backward()
    return [loss.detach(), x.grad, *(parameter.grad for parameter in module.parameters()), torch.rand(3)]


def wrapped(module: nn.Module, path: Path, **options: object) -> rekindle.Module:
    return rekindle.Module(module, rekindle.Options(cache_dir=path, log="error", fallback="error", **options))


@pytest.mark.parametrize("way", _WAYS)
@pytest.mark.parametrize("dropout", [0.0, 0.3])
def test_a_step_holds_what_checkpoints_return(way: str, dropout: float, tmp_path: Path) -> None:
    x = data()
    module = wrapped(made(_WAYS[way], dropout), tmp_path)
    torch.testing.assert_close(step(module, x), step(made(_WAYS[way], dropout), x), rtol=1e-4, atol=1e-4)
    account = rekindle.memory(module, x)
    masks = _LAYERS * _VALUE // 4 if dropout else 0  # drawn once: a byte an element
    small = 4 * _LAYERS * _ROWS * 4  # statistics of normalizations
    assert account.saved <= _LAYERS * _VALUE + masks + small
    free = rekindle.memory(wrapped(made(plainly, dropout), tmp_path), x)
    assert free.saved > 3 * account.saved
    assert free.activations > 1.5 * account.activations


@pytest.mark.parametrize("way", _WAYS)
def test_no_bit_changes(way: str, tmp_path: Path) -> None:
    x = data()
    checkpointed = step(wrapped(made(_WAYS[way], 0.2), tmp_path), x)
    free = step(wrapped(made(plainly, 0.2), tmp_path, memory_budget=1.0), x)
    assert all(torch.equal(one, other) for one, other in zip(checkpointed, free, strict=True))


def test_a_graph_from_the_cache_has_its_checkpoints(tmp_path: Path) -> None:
    x = data()
    cold = wrapped(made(_NOT_REENTRANT), tmp_path)
    step(cold, x)
    warm = wrapped(made(_NOT_REENTRANT), tmp_path)
    step(warm, x)
    assert rekindle.status(warm).source != "export"
    assert rekindle.memory(warm, x).saved == rekindle.memory(cold, x).saved


@pytest.mark.parametrize("options", [{"memory_level": 0}, {"memory_budget": 1.0}])
def test_a_level_or_a_budget_decides_instead(options: dict[str, object], tmp_path: Path) -> None:
    x = data()
    module, free = wrapped(made(_NOT_REENTRANT), tmp_path, **options), wrapped(made(plainly), tmp_path, **options)
    step(module, x)
    step(free, x)
    assert rekindle.memory(module, x).saved == rekindle.memory(free, x).saved


def test_what_others_read_of_a_checkpoint_is_held(tmp_path: Path) -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.head = Layer(), nn.Linear(_WIDTH, _WIDTH)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            def both(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
                hidden = self.layer(x)
                return hidden.tanh(), hidden

            first, second = checkpoint(both, x, use_reentrant=False)
            return (self.head(first) * second).sum(), first

    torch.manual_seed(3)
    eager = Two()
    module, x = wrapped(eager, tmp_path), data()
    for at in (0, 1):
        grads = []
        for run in (module, eager):
            x.grad = None
            result = run(x)[at]
            result.sum().backward()
            grads.append([result.detach(), x.grad])
        torch.testing.assert_close(*grads)


def test_a_write_to_a_parameter_before_the_backward_is_an_error(tmp_path: Path) -> None:
    module, x = wrapped(made(_NOT_REENTRANT), tmp_path), data()
    step(module, x)
    loss = module(x)
    with torch.no_grad():
        module.layers[1].wide.weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


class Normalizing(nn.Module):
    """Is what a checkpoint of convolution networks holds: eager moves its statistics in the forward and in the backward."""

    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(_WIDTH, _WIDTH), nn.BatchNorm1d(_WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(self.norm(self.linear(x)))


class Blocks(nn.Module):
    def __init__(self, run: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Normalizing() for _ in range(2))
        self.run = run

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = self.run(block, x)
        return x.square().sum()


@pytest.mark.parametrize("way", _WAYS)
def test_a_batch_norm_in_a_checkpoint_moves_its_statistics_as_often_as_in_eager(way: str, tmp_path: Path) -> None:
    torch.manual_seed(3)
    eager, model = Blocks(_WAYS[way]), Blocks(_WAYS[way])
    model.load_state_dict(eager.state_dict())
    wrapped = rekindle.Module(model, options=rekindle.Options(start="wait", cache_dir=str(tmp_path)))
    for rows in (16, 16, 12):
        x = torch.randn(rows, _WIDTH, requires_grad=True)
        for module in (eager, wrapped):
            module.zero_grad()
            module(x).backward()
        torch.testing.assert_close(model.state_dict(), eager.state_dict())
        for ours, theirs in zip(model.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(ours.grad, theirs.grad)
    status = rekindle.status(wrapped)
    assert status.bypass[0][0] == "buffer_mutated" and "checkpoint" in status.bypass[0][1]
    from_graphs = [part.source != "eager" for part in status.parts if part.name]
    assert from_graphs == [way == "re-entrant"] * 2  # twice as well; in the other ways saved-tensor hooks are around them
    wrapped.eval()
    with torch.no_grad():
        torch.testing.assert_close(wrapped(x), eager.eval()(x))
