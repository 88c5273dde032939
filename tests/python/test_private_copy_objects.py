"""The copy for an export holds the user's objects as they are: none of their code copies, and each change happens once."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import torch
from seeded import seeded
from torch import nn


def rows(step: int = 0) -> torch.Tensor:
    return torch.randn(3, 4, generator=seeded(step))


class Keeps:
    """A user's object that must not be copied by its own code."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __deepcopy__(self, memo: Any) -> Any:
        raise AssertionError("copied")

    __copy__ = __reduce_ex__ = __getstate__ = __deepcopy__


class Holds(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("table", torch.ones(4))
        self.kept = Keeps(self.table)
        self.cycle = [self, {"me": self}]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.cycle[1]["me"].linear(x) * self.kept.tensor


def test_no_code_of_the_users_copies() -> None:
    model = Holds()
    wrapped = rekindle.Module(model)
    for step in range(2):
        torch.testing.assert_close(wrapped(rows(step)), model(rows(step)))
    assert rekindle.status(wrapped).source == "export"


def test_a_wrapped_module_inside_of_another_is_copied_with_it() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = rekindle.Module(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
            self.last = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.last(self.inner(x))

    torch.manual_seed(0)
    model = Outer()
    torch.manual_seed(0)
    twin = Outer()
    wrapped = rekindle.Module(model)
    for step in range(3):
        torch.testing.assert_close(wrapped(rows(step)), twin.last(twin.inner.module(rows(step))))
        torch.testing.assert_close(dict(wrapped.state_dict()), dict(twin.state_dict()))
    assert rekindle.status(wrapped).source == "export"


class Shy:
    """Its class shows no attributes."""

    asked = 0

    def __init__(self) -> None:
        self.shift = torch.ones(4)

    @property
    def __dict__(self) -> dict[str, Any]:  # type: ignore[override]
        Shy.asked += 1
        return {}


class Attributes(dict[str, Any]):
    pass


class HoldsOdd(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.odd = nn.Linear(4, 4), type("Plain", (), {})()
        self.odd.__dict__ = Attributes(scale=torch.full((4,), 3.0), count=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * self.odd.scale * self.odd.count


class HoldsShy(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer, self.odd = nn.Linear(4, 4), Shy()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) + self.odd.shift


@pytest.mark.parametrize("kind", [HoldsOdd, HoldsShy])
def test_copies_have_the_attributes_of_objects_whatever_their_classes_say(kind: type[nn.Module]) -> None:
    model = kind()
    wrapped = rekindle.Module(model)
    Shy.asked = 0
    for step in range(2):
        torch.testing.assert_close(wrapped(rows(step)), model(rows(step)))
    assert Shy.asked == 0
    assert rekindle.status(wrapped).source == "export"


@dataclasses.dataclass
class Settings:
    seen: int = 1


def _append(given: Any) -> int:
    given.append(2)
    return len(given)


def _insert(given: Any) -> int:
    given["seen"] = given["seen"] + 1
    return int(given["seen"])


def _set(given: Any) -> int:
    given.seen += 1
    return int(given.seen)


GIVEN: dict[str, tuple[Callable[[], Any], Callable[[Any], int]]] = {
    "list": (lambda: [1], _append),
    "dict": (lambda: {"seen": 1}, _insert),
    "ordered dict": (lambda: collections.OrderedDict(seen=1), _insert),
    "dataclass": (Settings, _set),
    "list in a tuple": (lambda: (1, [1]), lambda given: _append(given[1])),
    "list in a dict": (lambda: {"list": [1]}, lambda given: _append(given["list"])),
    "list with a tensor": (lambda: [torch.ones(1)], _append),
}


class ChangesWhatItIsGiven(nn.Module):
    def __init__(self, change: Callable[[Any], int]) -> None:
        super().__init__()
        self.layer, self.change = nn.Linear(4, 4), change

    def forward(self, x: torch.Tensor, given: Any) -> torch.Tensor:
        return self.layer(x) * self.change(given)


@pytest.mark.parametrize("name", GIVEN)
@pytest.mark.parametrize("cache", ["off", "on"])
def test_what_a_call_is_given_is_changed_once(name: str, cache: str) -> None:
    make, change = GIVEN[name]
    model = ChangesWhatItIsGiven(change)
    wrapped = rekindle.Module(model, rekindle.Options(cache=cache))
    kept, expected = make(), make()
    for _ in range(3):
        ours, theirs = make(), make()
        torch.testing.assert_close(wrapped(rows(), ours), model(rows(), theirs))
        assert ours == theirs
        torch.testing.assert_close(wrapped(rows(), given=kept), model(rows(), given=expected))
        assert kept == expected
