"""Lists, dicts and dataclasses that are in several places of what a forward returns and sets: one object stays one."""

from __future__ import annotations

import dataclasses
import random
from collections import OrderedDict
from typing import Any, NamedTuple

import pytest
import rekindle
import torch
from module_support import Twins, mlp, rows
from torch import nn


@dataclasses.dataclass
class Pair:
    """Holds two values."""

    first: Any
    second: Any


@dataclasses.dataclass
class Checked(Pair):
    """Is no container to Rekindle, but an object, as it runs code when it is made."""

    def __post_init__(self) -> None:
        self.count = 2


class Named(NamedTuple):
    """Holds two values that cannot be replaced."""

    first: Any
    second: Any


class Sharing(nn.Module):
    """Returns, and sets, what a seed says: containers in containers, of which some are in several places."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.inner, random_numbers = mlp(), random.Random(seed)
        self.steps = [[random_numbers.randrange(1000) for _ in range(3)] for _ in range(random_numbers.randrange(2, 7))]

    def forward(self, x: torch.Tensor) -> Any:
        hidden = self.inner.first(x)
        made: list[Any] = [hidden, 1, "text", hidden.tanh()]
        for first, second, kind in self.steps:
            one, other = made[first % len(made)], made[second % len(made)]
            kinds = (
                [one, other], (one, other), {"one": one, "other": other}, OrderedDict(one=one, other=other),
                Pair(one, other), Checked(one, other), Named(one, other),
            )  # fmt: skip
            made.append(kinds[kind % len(kinds)])
        self.kept, self.inner.kept = made[self.steps[0][0] % len(made)], made[-1]
        return [made[3], made[self.steps[0][1] % len(made)], made[-1]]


def _places(value: Any, path: str, found: dict[int, tuple[str, Any]], places: list[tuple[str, str]]) -> None:
    """Notes for each container, or object, that can be written to where it is and where it was met first."""
    if isinstance(value, (list, dict, Pair)):
        known = id(value) in found
        places.append((path, found.setdefault(id(value), (path, value))[0]))
        if known:
            return
    if isinstance(value, (list, tuple)):
        items = list(enumerate(value))
    else:
        items = list((value if isinstance(value, dict) else vars(value) if isinstance(value, Pair) else {}).items())
    for key, item in items:
        _places(item, f"{path}/{key}:{type(item).__name__}", found, places)


def _all_places(module: Any, result: Any) -> list[tuple[str, str]]:
    places: list[tuple[str, str]] = []
    _places((result, module.kept, module.inner.kept), "", {}, places)
    return places


def test_containers_in_several_places_are_one() -> None:
    several = 0
    for seed in range(12):
        for exports in (1, 0):
            twins = Twins(Sharing(seed), fallback="error")
            for count in (4, 3):
                theirs, ours = twins.both(lambda model, count=count: model(rows(count=count)))
                wanted = _all_places(twins.eager, theirs)
                assert _all_places(twins.wrapped, ours) == wanted, (seed, exports)
                torch.testing.assert_close(ours[0], theirs[0])
                several += any(path != first for path, first in wanted)
            assert twins.status.exports == exports
            rekindle.cache.stats()  # waits until everything is stored
    assert several > 20


def test_a_caller_may_write_to_what_is_also_an_attribute() -> None:
    class Logging(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = mlp()

        def forward(self, x: torch.Tensor) -> dict[str, Any]:
            self.last = {"loss": self.inner(x).sum(), "n": len(x)}
            return self.last

    wrapped = rekindle.Module(Logging(), rekindle.Options(fallback="error"))
    for step in range(3):
        result = wrapped(rows())
        result["step"] = step
        assert wrapped.last is result and list(wrapped.last) == ["loss", "n", "step"]


def test_a_container_that_holds_itself_is_eagers() -> None:
    class Endless(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = mlp()

        def forward(self, x: torch.Tensor) -> list[Any]:
            result: list[Any] = [self.inner(x)]
            result.append(result)
            return result

    wrapped = rekindle.Module(Endless())
    result = wrapped(rows())
    assert result[1] is result
    assert [reason for reason, _ in rekindle.status(wrapped).bypass] == ["unsupported_output"]


def test_a_dataclass_that_is_the_same_at_each_call_is_eagers() -> None:
    class Keeping(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = mlp()

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, Pair]:
            return self.inner(x), _KEPT

    wrapped = rekindle.Module(Keeping())
    assert wrapped(rows())[1] is _KEPT and wrapped(rows(count=3))[1] is _KEPT


_KEPT = Pair(1, "text")


@pytest.mark.parametrize("kind", [list, dict, OrderedDict])
def test_empty_containers_are_one_too(kind: type) -> None:
    class Empty(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = mlp()

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, Any, Any]:
            self.found = kind()
            return self.inner(x), self.found, kind()

    wrapped = rekindle.Module(Empty(), rekindle.Options(fallback="error"))
    _, one, other = wrapped(rows())
    assert one is wrapped.found and other is not one and type(other) is kind
