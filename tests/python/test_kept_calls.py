"""What a table keeps of calls: exchanged, forgotten, collected and bounded."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
import torch
from module_support import Twins, mlp, rows
from rekindle import _native
from rekindle.calls import call_kinds
from torch import nn


def _find(table: Any, call: Any) -> tuple[Any, list[torch.Tensor]]:
    tensors: list[torch.Tensor] = []
    return table.find(*call, tensors), tensors


def test_a_module_finds_the_kind_of_a_call_with_an_object() -> None:
    class Scale:
        by = 2.0

    class Scaled(nn.Linear):
        def forward(self, x: torch.Tensor, scale: Scale) -> torch.Tensor:
            return super().forward(x) * scale.by

    twins = Twins(Scaled(4, 4))
    for by in (2.0, 3.0, 4.0):
        scale = Scale()
        scale.by = by
        twins.call(rows(), scale)
    kinds = twins.wrapped._runtime._kinds
    assert twins.reasons() == ["unsupported_input"] and kinds.find((rows(), Scale()), {}, []) in list(kinds)


def test_what_is_kept_can_be_exchanged_forgotten_and_collected() -> None:
    class Kept:
        pass

    table, call, other = _native.CallTable(), ((1,), {}), ((2,), {})
    one, two = Kept(), Kept()
    table.keep(*call, one)
    table.keep(*other, one)
    table.keep(*call, two)
    assert _find(table, call)[0] is two and _find(table, other)[0] is one
    table.forget(one)
    assert _find(table, call)[0] is two and _find(table, other)[0] is None
    two.table = table  # type: ignore[attr-defined]
    gone = weakref.ref(two)
    del two, table
    gc.collect()
    assert gone() is None


def test_a_table_is_bounded() -> None:
    table = _native.CallTable()
    for number in range(5000):
        table.keep((number,), {}, number)
    kept = [number for number in range(5000) if _find(table, ((number,), {}))[0] == number]
    assert 0 < len(kept) <= 2048 and kept[-1] == 4999


def test_a_forgotten_kind_is_not_found_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_kinds, "_MOST_KINDS", 2)
    twins = Twins(mlp())
    kinds = twins.wrapped._runtime._kinds
    for count in (2, 3, 4, 5):
        for _ in range(3):
            twins.call(rows(0, count))
        assert kinds.find((rows(0, count),), {}, []) in list(kinds)
    found = [kinds.find((rows(0, count),), {}, []) for count in (2, 3, 4, 5)]
    assert {id(kind) for kind in found if kind is not None} == {id(kind) for kind in kinds}
