"""Functions with a cache that a forward asks: later calls find the answers that eager would have left, and no others."""

from __future__ import annotations

import functools
import pathlib
from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import torch
from module_support import assert_same
from torch import nn

SCALE = [1.5]
WEIGHT = nn.Parameter(torch.ones(2))


@functools.cache
def cached(n: int) -> float:
    return SCALE[0] * n


@functools.lru_cache(maxsize=64)
def bounded(n: int) -> float:
    return SCALE[0] * n


@functools.lru_cache(maxsize=2)
def small(n: int) -> float:
    return SCALE[0] * n


@functools.lru_cache(maxsize=1)
def single() -> float:
    return SCALE[0]


@functools.lru_cache(typed=True)
def typed(n: float, more: float = 2) -> float:
    return SCALE[0] * n * more


@functools.lru_cache
def nested(n: int) -> float:
    return cached(n) + bounded(n)


@functools.lru_cache
def tensor(n: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.full((2,), SCALE[0] * n, dtype=dtype)


@functools.lru_cache
def random_tensor(n: int) -> torch.Tensor:
    return torch.rand(2) * n


@functools.lru_cache
def of_a_weight(n: int) -> torch.Tensor:
    return WEIGHT.detach() * n


class Asking(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w, self.k = nn.Parameter(torch.ones(2)), 2
        self.held = functools.cache(lambda n: SCALE[0] * n)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.w * self.ask(x)

    def ask(self, x: torch.Tensor) -> Any:
        raise NotImplementedError

    @functools.cache  # noqa: B019
    def of_the_module(self, n: int) -> int:
        return self.k * n


class OfAFunction(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * cached(2)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * bounded(3)


CACHES = (cached, bounded, small, single, typed, nested, tensor, random_tensor, of_a_weight, Asking.of_the_module)
ASKS: dict[str, Callable[[Asking, torch.Tensor], Any]] = {
    "cache": lambda self, x: cached(2),
    "lru_cache": lambda self, x: bounded(2),
    "a small cache": lambda self, x: small(2),
    "too many for the cache": lambda self, x: small(2) * small(3) * small(4),
    "one question": lambda self, x: single(),
    "types and names": lambda self, x: typed(2) * typed(2.0, more=3) * typed(more=2, n=1),
    "nested": lambda self, x: nested(2),
    "by map": lambda self, x: sum(map(cached, (1, 2, 3))),
    "tensor": lambda self, x: tensor(2, dtype=x.dtype),
    "random tensor": lambda self, x: random_tensor(2),
    "of a weight": lambda self, x: of_a_weight(2),
    "of a size": lambda self, x: cached(x.shape[0]),
    "method": lambda self, x: self.of_the_module(2),
    "held by the module": lambda self, x: self.held(2),
    "cleared by the forward": lambda self, x: (cached.cache_clear(), cached(2))[1],
    "autograd Function": lambda self, x: OfAFunction.apply(x),
}
IN_GRAPHS = ["cache", "lru_cache", "one question", "types and names", "nested", "by map", "tensor", "of a size"]


def _clear(module: Asking) -> None:
    for function in (*CACHES, module.held):
        function.cache_clear()


def _set(value: float) -> Callable[[Asking], None]:
    def change(module: Asking) -> None:
        SCALE[0], module.k = value, int(value)
        WEIGHT.data.fill_(value)

    return change


STEPS: list[Callable[[Asking], Any]] = [lambda _: None] * 2
STEPS += [_set(3.0), _clear, lambda _: None, _set(4.0), _clear, _set(5.0), lambda module: module.w.data.fill_(2)]


def _history(name: str, wrap: Callable[[nn.Module], Any]) -> tuple[Any, list[Any]]:
    """The module, and after each step result, gradient, sizes of the caches and the random state."""
    kind = type("Asks", (Asking,), {"ask": ASKS[name], "__module__": __name__})
    torch.manual_seed(1)
    module = kind()
    _clear(module)
    _set(1.5)(module)
    called, found = wrap(module), []
    for step in STEPS:
        step(module)
        module.zero_grad()
        y = called(torch.ones(2, 2))
        y.sum().backward()
        sizes = [function.cache_info().currsize for function in (*CACHES, module.held)]
        found.append((y.detach().clone(), module.w.grad.clone(), sizes, torch.rand(1).item()))
    return called, found


@pytest.mark.parametrize("name", ASKS)
def test_caches_hold_what_eager_would_leave_in_them(name: str, tmp_path: pathlib.Path) -> None:
    _, expected = _history(name, lambda module: module)
    for _ in range(2):  # the second time with a store that is filled
        wrapped, found = _history(
            name, lambda module: rekindle.Module(module, rekindle.Options(log="error", cache_dir=str(tmp_path)))
        )
        for ours, theirs in zip(found, expected, strict=True):
            assert_same(ours[0], theirs[0])
            assert_same(ours[1], theirs[1])
            assert ours[2:] == theirs[2:]
        if name in IN_GRAPHS:
            assert rekindle.status(wrapped).eager_calls == 0, rekindle.status(wrapped).bypass


@functools.cache
def large(n: int) -> torch.Tensor:
    return torch.zeros(n, 2)


@functools.cache
def settings(n: int) -> dict[str, Any]:
    return {"scales": [1.0] * n}


@pytest.mark.parametrize("part", ["dict", "list"])
def test_a_part_of_an_answer_that_is_edited_is_another(part: str, tmp_path: pathlib.Path) -> None:
    class Asks(Asking):
        def ask(self, x: torch.Tensor) -> Any:
            return settings(2)["scales"][0]

    module = Asks()
    wrapped = rekindle.Module(module, rekindle.Options(log="error", cache_dir=str(tmp_path)))
    x = torch.ones(2, 2)
    for factor in (1.0, 2.0, 3.0):
        if part == "dict":
            settings(2)["scales"] = [factor, factor]
        else:
            settings(2)["scales"][0] = factor
        assert_same(wrapped(x), module(x))
    assert rekindle.status(wrapped).eager_calls == 0, rekindle.status(wrapped).bypass


@pytest.mark.parametrize(("answer", "size"), [(tensor, 2), (large, 1 << 18)])
def test_an_answer_that_is_edited_is_another(answer: Any, size: int, tmp_path: pathlib.Path) -> None:
    class Asks(Asking):
        def ask(self, x: torch.Tensor) -> Any:
            return answer(size)[0]

    module = Asks()
    wrapped = rekindle.Module(module, rekindle.Options(log="error", cache_dir=str(tmp_path)))
    x = torch.ones(2, 2)
    assert_same(wrapped(x), module(x))
    answer(size).add_(1)
    assert_same(wrapped(x), module(x))
    assert rekindle.status(wrapped).eager_calls == 0, rekindle.status(wrapped).bypass


def test_a_method_that_the_forward_does_not_ask_is_no_matter(tmp_path: pathlib.Path) -> None:
    class Asks(Asking):
        def ask(self, x: torch.Tensor) -> Any:
            return 2.0

    module = Asks()
    module.of_the_module(2)
    wrapped = rekindle.Module(module, rekindle.Options(log="error", cache_dir=str(tmp_path)))
    assert_same(wrapped(torch.ones(2, 2)), module(torch.ones(2, 2)))
    assert rekindle.status(wrapped).source == "export", rekindle.status(wrapped).bypass


def test_a_cached_method_keeps_its_answers_over_many_exports(tmp_path: pathlib.Path) -> None:
    class Asks(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.k = 1.5

        @functools.lru_cache(maxsize=4)  # noqa: B019
        def scale(self, n: int) -> float:
            return self.k * n

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.scale(2)

    module = Asks()
    wrapped = rekindle.Module(module, rekindle.Options(log="error", cache_dir=str(tmp_path)))
    for size in range(1, 9):  # each size one export, which asks for a copy of the module
        assert_same(wrapped(torch.ones(size, 2)), torch.full((size, 2), 3.0))
        module.k += 1.0
    assert Asks.scale.cache_info().currsize == 1


@pytest.mark.parametrize("store", ["empty", "filled"])
def test_an_answer_of_inference_mode_is_eagers_error(store: str, tmp_path: pathlib.Path) -> None:
    """Also where the question is an open size, which an export asks anew, outside of inference mode."""

    class Asks(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * tensor(x.shape[-1])

    for is_inference in [True] if store == "empty" else [False, True]:
        tensor.cache_clear()
        module = Asks()
        wrapped = rekindle.Module(module, rekindle.Options(log="error", cache_dir=str(tmp_path)))
        with torch.inference_mode(is_inference):
            tensor(2)
        x = torch.ones(2, 2, requires_grad=True)
        for model in (wrapped, module):
            if is_inference:
                with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
                    model(x)
            else:
                assert torch.equal(model(x).detach(), x.detach() * tensor(2))
        rekindle.lookup.store.flush()
    tensor.cache_clear()
