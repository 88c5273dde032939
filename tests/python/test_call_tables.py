"""What a module remembers of the calls that it had: bounded, and nothing is refused for its age."""

from __future__ import annotations

import gc
import sys
from typing import Any

import pytest
import rekindle
import torch
from module_support import Twins, assert_same, mlp, rows
from rekindle.calls import call_kinds
from rekindle.calls.call_kind import MAX_ATTEMPTS, CallKind
from rekindle.calls.call_kinds import CallKinds
from torch import nn


class Scaled(nn.Module):
    """Takes a plain value."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
        return self.linear(x) * scale


def test_signatures_that_return_are_served_however_many_there_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_kinds, "_MOST_KINDS", 4)
    monkeypatch.setattr(call_kinds, "_MOST_LAYOUTS", 8)
    twins = Twins(mlp())
    for _ in range(10):
        for count in range(2, 9):
            assert_same(twins.wrapped(rows(0, count)), twins.eager(rows(0, count)))
    assert twins.status.bypass == [] and twins.status.eager_calls == 0 and twins.status.exports == 1
    assert len(twins.wrapped._runtime._kinds) == 4


def test_what_is_forgotten_of_plain_values_and_layouts_is_made_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_kinds, "_MOST_KINDS", 2)
    monkeypatch.setattr(call_kinds, "_MOST_FAMILIES", 2)
    twins = Twins(Scaled())
    for _ in range(3):
        for scale in (1.0, 2.0, 3.0, 4.0):
            twins.call(rows(), scale)
    assert twins.status.bypass == [] and twins.status.eager_calls == 0
    assert twins.status.exports == 4  # then they are found in the cache


def test_ever_new_plain_values_are_exported_so_often_and_those_known_stay_in_graphs() -> None:
    twins = Twins(Scaled())
    for step in range(MAX_ATTEMPTS + 4):
        twins.call(rows(), float(step))
    assert twins.status.exports == MAX_ATTEMPTS and twins.status.eager_calls == 4
    assert twins.reasons() == ["value_specialized"]
    twins.call(rows(), 3.0)
    assert twins.status.eager_calls == 4


def test_values_that_follow_the_sizes_are_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_kinds, "_MOST_VALUES", 3)
    twins = Twins(Scaled())
    for count in range(2, 8):
        twins.call(rows(0, count), float(count))
    assert twins.status.exports == 3 and twins.status.eager_calls == 3


def test_5000_signatures_leave_memory_flat() -> None:
    table = CallKinds(is_part=False)

    def key(number: int) -> tuple[Any, ...]:
        return (True, ((number, torch.Tensor, torch.Size((number, 4)), (4, 1)),), (float, "1.0"))

    def fill(numbers: range) -> int:
        for number in numbers:
            layout = (True, ((torch.Tensor, 2),))
            kind, refused = table.get(key(number)), None
            if kind is None:
                kind, refused = table.new(key(number), layout)
            assert refused is None and kind.refusal is None
        gc.collect()
        return sys.getallocatedblocks()

    before = fill(range(1200))
    assert fill(range(1200, 6200)) - before < 200
    fill(range(6200))  # those that return are refused as little


def test_variants_are_bounded_and_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(call_kinds, "_MOST_VARIANTS", 2)
    twins = Twins(mlp(), dynamic="static")
    for _ in range(2):
        for count in (2, 3, 4, 5):
            twins.call(rows(0, count))
    assert len(twins.wrapped._runtime._kinds.graphs()) <= 2
    assert twins.status.exports == 4 and twins.status.eager_calls == 0


def test_a_refused_module_keeps_one_guard_for_all_its_signatures() -> None:
    class Reads(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) if x.sum().item() > 0 else x

    twins = Twins(Reads(4, 4))
    for count in range(2, 8):
        twins.call(rows(0, count))
    assert set(twins.reasons()) == {"value_specialized"} and twins.status.eager_calls == 6
    guards = {id(kind.refused_while) for kind in twins.wrapped._runtime._kinds}
    assert len(guards) == 1


@pytest.mark.parametrize(
    ("hook", "stands"),
    [
        ("register_forward_hook", False),
        ("register_full_backward_hook", False),
        ("register_state_dict_pre_hook", True),
        ("register_load_state_dict_post_hook", True),
    ],
)
def test_a_refusal_stands_whatever_hooks_there_are_around_no_forward(hook: str, stands: bool) -> None:
    class Reads(nn.Sequential):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) if x.sum().item() > 0 else x

    twins = Twins(Reads(nn.Linear(4, 4)))
    twins.call(rows())
    (kind,) = twins.wrapped._runtime._kinds
    assert kind.is_refused
    getattr(twins.wrapped.module[0], hook)(lambda *_, **__: None)
    assert kind.is_refused == stands


def test_a_kind_can_be_read_while_others_change_it() -> None:
    class Fake:
        def __init__(self, right: bool) -> None:
            self.right = right

        def ready(self, arguments: list[torch.Tensor]) -> bool:
            kind.add(other)  # as another thread would
            return self.right

    kind, other = CallKind(), Fake(False)
    first, second = Fake(False), Fake(True)
    kind.graphs = (first, second)  # type: ignore[assignment]
    assert kind.ready([]) is second  # type: ignore[comparison-overlap]
    assert set(kind.graphs) == {first, second, other} and kind.graphs[0] is second


def test_a_refusal_keeps_no_tensor_of_the_call() -> None:
    import weakref

    class Reads(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) if x.sum().item() > 0 else x

    wrapped = rekindle.Module(Reads(4, 4), rekindle.Options(log="error"))
    x = rows()
    known = weakref.ref(x)
    wrapped(x)
    rekindle.explain(wrapped, x)
    del x
    gc.collect()
    assert known() is None
