"""What the cases of everyday behaviour are made of: see test_semantics.py."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import rekindle
import torch
from rekindle.process.random_states import random_states
from seeded import seeded
from torch import nn
from torch.utils._pytree import tree_leaves

# By name: how to make the module, and what to do with it. What the second returns is compared.
CASES: dict[str, tuple[Callable[[], nn.Module], Callable[[nn.Module], Any]]] = {}


def case(make: Callable[[], nn.Module]) -> Callable[[Callable[[nn.Module], Any]], Callable[[nn.Module], Any]]:
    """Register a function of a module, wrapped or not, as a case."""

    def register(run: Callable[[nn.Module], Any]) -> Callable[[nn.Module], Any]:
        assert run.__name__ not in CASES, run.__name__
        CASES[run.__name__] = (make, run)
        return run

    return register


def rows(seed: int = 0, *shape: int) -> torch.Tensor:
    return torch.randn(*(shape or (5, 4)), generator=seeded(seed))


def backward(result: Any) -> Any:
    """Differentiate the sum of all that can be differentiated; returns the result."""
    terms = [leaf.float().sum() for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if terms:
        sum(terms).backward()
    return result


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(4, 8)
        self.b = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.b(torch.relu(self.a(x)))


def made_of(forward: Callable[..., Any], prepare: Callable[[Any], Any] | None = None) -> Callable[[], nn.Module]:
    """Modules with two linear layers `a` and `b`, a dropout `drop` and this forward; `prepare` adds what else it needs."""

    class Made(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(4, 4)
            self.b = nn.Linear(4, 4)
            self.drop = nn.Dropout(0.3)
            if prepare is not None:
                prepare(self)

    Made.forward = forward  # type: ignore[method-assign]
    return Made


def _observed(run: Callable[[nn.Module], Any], model: nn.Module, module: nn.Module) -> dict[str, Any]:
    torch.manual_seed(5)
    try:
        result = run(model)
    except Exception as error:
        result = type(error)
    return {
        "result": result,
        "state": {name: value.detach().clone() for name, value in module.state_dict().items()},
        "gradients": {name: parameter.grad for name, parameter in module.named_parameters()},
        "random states": random_states(),
    }


def _assert_same(ours: Any, theirs: Any, what: str) -> None:
    mine, other = tree_leaves(ours), tree_leaves(theirs)
    assert len(mine) == len(other), what
    for left, right in zip(mine, other, strict=True):
        if isinstance(right, torch.Tensor):
            torch.testing.assert_close(left, right, rtol=2e-4, atol=2e-5, equal_nan=True, msg=lambda text: f"{what}: {text}")
        else:
            assert left == right, what


def compared(make: Callable[[], nn.Module], run: Callable[[nn.Module], Any]) -> rekindle.Status:
    """Do it in eager, with a cold and with a warm cache, and compare; the warm status."""
    torch.manual_seed(0)
    module = make()
    observed = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind in ("eager", "cold", "warm"):
            own = copy.deepcopy(module)
            model = own if kind == "eager" else rekindle.Module(own, rekindle.Options(log="error"))
            observed[kind] = _observed(run, model, own)
            rekindle.lookup.store.flush()
    failed = observed["eager"]["result"]
    assert not (isinstance(failed, type) and issubclass(failed, Exception)), f"the case itself raises {failed}"
    for kind in ("cold", "warm"):
        for what, theirs in observed["eager"].items():
            _assert_same(observed[kind][what], theirs, f"{what} ({kind})")
    status = rekindle.status(model)
    assert status.exports == 0, "the warm run exports nothing"
    return status
