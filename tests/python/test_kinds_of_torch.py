"""State that torch's own Python code keeps: what is changed there after a call is followed, as eager follows it."""

from __future__ import annotations

import contextlib
import pathlib
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import rekindle
import torch
from module_support import assert_same, rows
from torch import nn
from torch.backends import opt_einsum
from torch.distributions import Distribution, Normal, kl
from torch.nn.utils import parametrizations, parametrize


class Own(Normal):
    pass


class Kl(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * torch.distributions.kl_divergence(Own(x, 1.0), Own(0.0, 2.0))


class Validated(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = Normal(0.0, 1.0)
        return self.linear(x) * (3.0 if made._validate_args else 1.0)


class Imports(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        import imported_by_forward  # where divergences are computed, too

        return self.linear(x) * imported_by_forward.kl_divergence(Own(x, 1.0), Own(0.0, 2.0))


class Asks(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * (3.0 if torch.backends.opt_einsum.enabled else 1.0)


@contextlib.contextmanager
def _registered() -> Iterator[None]:
    before = dict(kl._KL_REGISTRY)
    kl.register_kl(Own, Own)(lambda p, q: 3.0 + 0 * p.loc)
    try:
        yield
    finally:
        kl._KL_REGISTRY.clear()
        kl._KL_REGISTRY.update(before)
        kl._KL_MEMOIZE.clear()


@contextlib.contextmanager
def _not_validated() -> Iterator[None]:
    before = Distribution._validate_args
    Distribution.set_default_validate_args(not before)
    try:
        yield
    finally:
        Distribution.set_default_validate_args(before)


@contextlib.contextmanager
def _not_optimized() -> Iterator[None]:
    before = opt_einsum.enabled
    opt_einsum.enabled = not before
    try:
        yield
    finally:
        opt_einsum.enabled = before


CHANGES: dict[str, tuple[Callable[[], nn.Module], Callable[[], Any]]] = {
    "register_kl": (Kl, _registered),
    "set_default_validate_args": (Validated, _not_validated),
    "a flag of torch.backends": (Asks, _not_optimized),
}


@pytest.mark.parametrize("name", CHANGES)
@pytest.mark.parametrize("is_asked_before", [False, True])
def test_a_change_of_torch_is_followed(name: str, is_asked_before: bool, tmp_path: pathlib.Path) -> None:
    make, changed = CHANGES[name]
    module = make()
    x = rows()
    if is_asked_before:  # fills torch's caches
        module(x)
    wrapped = rekindle.Module(module, rekindle.Options(cache_dir=str(tmp_path)))
    before = wrapped(x)
    assert_same(wrapped(x), module(x))
    assert rekindle.status(wrapped).source == "export", rekindle.status(wrapped).bypass
    with changed():
        after = module(x)
        assert_same(wrapped(x), after)
        assert_same(rekindle.Module(module, rekindle.Options(cache_dir=str(tmp_path)))(x), after)
    assert not torch.equal(before, after)
    again = rekindle.Module(make(), rekindle.Options(cache_dir=str(tmp_path)))
    again.load_state_dict(module.state_dict())
    assert_same(again(x), before)
    assert rekindle.status(again).source == "local", rekindle.explain(again, x)


def test_torch_code_that_an_import_ran_first_is_observed_in_the_forward(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines = "from torch.distributions import Normal, kl_divergence\n\nkl_divergence(Normal(0.0, 1.0), Normal(0.0, 2.0))\n"
    (tmp_path / "imported_by_forward.py").write_text(lines)
    monkeypatch.syspath_prepend(tmp_path)
    module = Imports()
    wrapped = rekindle.Module(module, rekindle.Options(cache_dir=str(tmp_path / "cache")))
    try:
        for _ in range(2):
            assert_same(wrapped(rows()), module(rows()))
        assert rekindle.status(wrapped).source == "export", rekindle.status(wrapped).bypass
        with _registered():
            assert_same(wrapped(rows()), module(rows()))
    finally:
        sys.modules.pop("imported_by_forward", None)


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = parametrizations.weight_norm(nn.Linear(4, 4))

    @property
    def parametrizations(self) -> Any:
        return self.linear.parametrizations

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(self.linear(x))


def test_cached_parametrizations_are_those_of_eager(tmp_path: pathlib.Path) -> None:
    torch.manual_seed(0)
    module = Twice()
    wrapped = rekindle.Module(module, rekindle.Options(cache_dir=str(tmp_path)))
    assert_same(wrapped(rows()), module(rows()))
    with parametrize.cached():
        before = module(rows())
        with torch.no_grad():
            for parameter in module.parametrizations.weight.parameters():
                parameter.mul_(2)
        assert_same(module(rows()), before)
        assert_same(wrapped(rows()), before)
    with parametrize.cached():
        ours = wrapped(rows())
        assert_same(ours, module(rows()))
        assert all(type(tensor) is torch.Tensor for tensor in parametrize._cache.values())
    assert_same(wrapped(rows()), module(rows()))
