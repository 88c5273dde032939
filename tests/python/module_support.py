"""Comparisons of a wrapped module with the same module in eager: results, gradients, state and random numbers."""

from __future__ import annotations

import copy
import pathlib
import sys
from collections.abc import Callable
from typing import Any

import rekindle
import torch
from rekindle.process.random_states import random_states, random_states_equal, set_random_states
from rekindle.results.structure import is_plain_class
from seeded import seeded
from torch import nn
from torch.utils._pytree import tree_leaves

torch.set_num_threads(1)  # the models are too small for more, and the machine may be busy

# pytest has it on its path (pyproject.toml); the processes that tests start have not
sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "examples"))

from gpt import GPT, GPTConfig  # noqa: E402

TINY = {"vocab": 32, "context": 16, "layers": 2, "heads": 2, "width": 16}


def tiny_gpt(dropout: float = 0.0) -> GPT:
    torch.manual_seed(1)
    return GPT(GPTConfig(**TINY, dropout=dropout))


def tokens(step: int = 0) -> torch.Tensor:
    return torch.randint(0, TINY["vocab"], (2, 16), generator=seeded(step))


class Mlp(nn.Module):
    """Two layers with an activation; small enough to export in a moment."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.second = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.second(torch.relu(self.first(x)))


class Smooth(Mlp):
    """Has second derivatives; with dropout, random numbers as well."""

    def __init__(self, dropout: float = 0.0) -> None:
        super().__init__()
        self.drop = nn.Dropout(dropout)

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return self.second(self.drop(torch.tanh(self.first(x)))) * scale


def mlp() -> Mlp:
    torch.manual_seed(1)
    return Mlp()


def rows(step: int = 0, count: int = 5) -> torch.Tensor:
    return torch.randn(count, 4, generator=seeded(step))


class Twins:
    """One module in eager and a copy of it wrapped; every call goes to both, from the same random state."""

    def __init__(self, module: nn.Module, **options: Any) -> None:
        self.eager = module
        self.module = copy.deepcopy(module)
        self.wrapped = rekindle.Module(self.module, rekindle.Options(**options))

    @property
    def status(self) -> rekindle.Status:
        return rekindle.status(self.wrapped)

    def reasons(self) -> list[str]:
        return [code for code, _ in self.status.bypass]

    def both(self, action: Callable[[Any], Any]) -> tuple[Any, Any]:
        """(eager's, ours): results of `action` on either model."""
        states = random_states()
        theirs = action(self.eager)
        after = random_states()
        set_random_states(states)
        ours = action(self.wrapped)
        assert random_states_equal(after, random_states()), "another amount of random numbers was drawn"
        return theirs, ours

    def call(self, *args: Any, **kwargs: Any) -> Any:
        """Forward of both and, where something requires gradients, backward of the sum; all is compared."""
        theirs, ours = self.both(lambda model: model(*args, **kwargs))
        assert_same(ours, theirs)
        if torch.is_grad_enabled():
            for result in (theirs, ours):
                total = [leaf.sum() for leaf in leaves(result) if leaf.requires_grad and not leaf.is_leaf]
                if total:
                    sum(total).backward()
        self.compare()
        return ours

    def compare(self) -> None:
        """Parameters, buffers and gradients are those of eager."""
        ours = dict([*self.module.named_parameters(), *self.module.named_buffers()])
        for name, theirs in [*self.eager.named_parameters(), *self.eager.named_buffers()]:
            assert_same(ours[name], theirs, name)
            assert (ours[name].grad is None) == (theirs.grad is None), f"gradient of {name}"
            if theirs.grad is not None:
                assert_same(ours[name].grad, theirs.grad, f"gradient of {name}")


def leaves(result: Any) -> list[torch.Tensor]:
    """Tensors of a result, those that objects in it have as attributes included."""
    found = []
    for leaf in tree_leaves(result):
        if is_plain_class(type(leaf)):
            found += leaves(vars(leaf))
        elif isinstance(leaf, torch.Tensor):
            found.append(leaf)
    return found


def assert_same(ours: Any, theirs: Any, what: str = "result") -> None:
    """Same type, structure and plain values; tensors agree to the rounding of their dtype."""
    assert type(ours) is type(theirs), f"{what}: {type(ours)} instead of {type(theirs)}"
    mine, other = tree_leaves(ours), tree_leaves(theirs)
    assert len(mine) == len(other), what
    for ours_leaf, theirs_leaf in zip(mine, other, strict=True):
        if is_plain_class(type(theirs_leaf)):
            assert list(vars(ours_leaf)) == list(vars(theirs_leaf)), what
            assert_same(vars(ours_leaf), vars(theirs_leaf), f"{what} {type(theirs_leaf).__name__}")
            continue
        if isinstance(theirs_leaf, torch.Tensor):
            assert ours_leaf.requires_grad == theirs_leaf.requires_grad, f"{what} requires a gradient"
            torch.testing.assert_close(ours_leaf, theirs_leaf, rtol=1e-5, atol=1e-5, msg=lambda text: f"{what}: {text}")
        else:
            assert ours_leaf == theirs_leaf, what


def train(
    model: Any, steps: int, optimizer: Callable[[Any], torch.optim.Optimizer], call: Callable[[Any, int], torch.Tensor]
) -> list[float]:
    """Losses of `steps` steps."""
    torch.manual_seed(7)
    optimize = optimizer(model.parameters())
    losses = []
    for step in range(steps):
        loss = call(model, step)
        optimize.zero_grad()
        loss.backward()
        optimize.step()
        losses.append(loss.item())
    return losses
