"""An entry whose checksum is right and whose content is not: a miss, never an error and never another result."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from typing import Any

import pytest
import rekindle
import torch
from module_support import Twins, rows
from rekindle import _native
from torch import nn


class Doubled(torch.autograd.Function):
    """Twice its input."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, times: int) -> torch.Tensor:
        return times * x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return 2 * gradient, None


class Everything(nn.Module):
    """Its contract has something in most fields."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        self.seen.add_(x.detach().mean(0))
        y = Doubled.apply(self.linear(x), 2)
        z = torch.tanh(x)
        return {"y": y, "pair": (z, z[1:]), "rows": x.shape[0], "given": x, "none": None, "turned": (y * 2).t()}


DATA = ("value", "plain", "numbers", "fixed")  # of which no one can tell that they are other than they were
STEP_DATA = (1, 2)  # nor of the arguments of a view's steps, of which nearly all are valid ones


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """All that can be reached in JSON, but what is in the result as it is."""
    yield path
    if isinstance(value, dict):
        for key, item in value.items():
            if key not in DATA:
                yield from places(item, (*path, key))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            if not isinstance(item, str) and not (path[-2:-1] == ("steps",) and i in STEP_DATA):
                yield from places(item, (*path, i))


def mutated(contract: Any, dice: random.Random) -> Any:
    """A copy with something missing, of another type or out of every range."""
    other = copy.deepcopy(contract)
    *above, last = dice.choice([path for path in places(other) if path])
    parent = other
    for key in above:
        parent = parent[key]
    old = parent[last]
    if dice.random() < 0.3 and isinstance(parent, dict):
        del parent[last]
        return other
    wrong = [{}, [[[]]], "no such thing", -7, 1 << 70, 1.5, {"input": 99}, [1 << 40], [None]]
    parent[last] = dice.choice([value for value in wrong if type(value) is not type(old) or value != old])
    return other


@pytest.fixture
def entry() -> tuple[Any, str, bytes, bytes, dict[str, bytes]]:
    """The cache, the prekey and what is stored under it."""
    twins = Twins(Everything())
    twins.call(rows())
    assert twins.status.source == "export"
    rekindle.lookup.store.flush()
    cache = rekindle.lookup.store.Store.open(rekindle.Options())._cache
    prekey = next(iter(twins.wrapped._runtime._kinds)).graphs[0].prekey
    [(id, observations, _)] = cache.lookup(prekey)
    loaded = cache.load(id)
    return cache, prekey, observations, loaded["meta"], loaded["sections"]


def replace_entry(entry: Any, observations: bytes | None = None, meta: Any = None, **sections: bytes) -> None:
    cache, prekey, old_observations, old_meta, old = entry
    rekindle.lookup.store.flush()
    for id, _, _ in cache.lookup(prekey):
        cache.remove(id)
    cache.store(prekey, observations or old_observations, meta or old_meta, {**old, **sections}, _native.LeafTree())


def call(expected: str | None = None) -> Twins:
    twins = Twins(Everything())
    for step in range(2):
        twins.call(rows(step))
    if expected is not None:
        assert twins.status.source == expected
    return twins


def test_what_is_stored_is_used_and_an_empty_contract_is_a_miss(entry: Any, capfd: pytest.CaptureFixture[str]) -> None:
    replace_entry(entry)
    call("local")
    replace_entry(entry, contract=b"{}")
    capfd.readouterr()
    call("export")
    assert "the contract's structure is missing" in capfd.readouterr().err
    rekindle.lookup.store.flush()
    call("local")


def test_no_field_may_be_missing(entry: Any) -> None:
    contract = json.loads(entry[-1]["contract"])
    _native.Contract.parse(json.dumps(contract).encode())
    assert tuple(contract) == _native.Contract.FIELDS
    for name in contract:
        with pytest.raises(_native.Corruption, match=f"{name} is missing"):
            _native.Contract.parse(json.dumps({key: value for key, value in contract.items() if key != name}).encode())


@pytest.mark.parametrize("seed", range(16))
def test_random_damage_of_a_contract(entry: Any, seed: int) -> None:
    dice = random.Random(seed)
    contract = json.loads(entry[-1]["contract"])
    for _ in range(2):
        replace_entry(entry, contract=json.dumps(mutated(contract, dice)).encode())
        call()


@pytest.mark.parametrize(
    "damage",
    [
        {"contract": b"[" * 100_000},
        {"contract": b"\xff"},
        {"observations": b'[["shape", "argument 0", "", 7]]'},
        {"observations": b"[[]]"},
        {"observations": b"{}"},
        {"meta": "{}"},
        {"joint": b""},
        {"guards": b"nothing"},
    ],
)
def test_damage_elsewhere(entry: Any, damage: dict[str, Any]) -> None:
    replace_entry(entry, **damage)
    call("export")
