"""Everyday behaviour: every case does the same in eager, with a cold cache and with a warm one."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import semantics_autograd  # noqa: F401
import semantics_calls  # noqa: F401
import semantics_forwards  # noqa: F401
import semantics_state  # noqa: F401
import torch
from semantics_support import CASES
from torch import nn
from torch.utils._pytree import tree_leaves


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
        "random state": torch.get_rng_state(),
    }


def _assert_same(ours: Any, theirs: Any, what: str) -> None:
    mine, other = tree_leaves(ours), tree_leaves(theirs)
    assert len(mine) == len(other), what
    for left, right in zip(mine, other, strict=True):
        if isinstance(right, torch.Tensor):
            torch.testing.assert_close(left, right, rtol=2e-4, atol=2e-5, equal_nan=True, msg=lambda text: f"{what}: {text}")
        else:
            assert left == right, what


@pytest.mark.parametrize("name", sorted(CASES))
def test_behaviour_is_that_of_eager(name: str) -> None:
    make, run = CASES[name]
    torch.manual_seed(0)
    module = make()
    observed = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for kind in ("eager", "cold", "warm"):
            own = copy.deepcopy(module)
            model = own if kind == "eager" else rekindle.Module(own, rekindle.Options(log="error"))
            observed[kind] = _observed(run, model, own)
            rekindle.store.flush()
    for kind in ("cold", "warm"):
        for what, theirs in observed["eager"].items():
            _assert_same(observed[kind][what], theirs, f"{what} ({kind})")
    assert rekindle.status(model).exports == 0, "the warm run exports nothing"
