"""The sizes at which a graph is compared with eager: what is wrong at some of them is found, and they are cheap."""

from __future__ import annotations

from typing import Any

import pytest
import rekindle
import torch
from rekindle.miss import acceptance, open_shapes
from torch import nn


class _Scaled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.view_as(x)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return gradient * (1 + 1e-4)


class _Mutant:
    """A session that is wrong where a comparison of a size of the first input with that of the call says so.

    what: "an output" is wrong, or "a gradient" of the last input
    """

    def __init__(self, session: Any, what: str, is_wrong: Any) -> None:
        self._session, self._what, self._is_wrong = session, what, is_wrong

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def forward(self, inputs: list[torch.Tensor], grad: bool) -> list[torch.Tensor]:
        if not self._is_wrong(inputs[0].shape):
            return self._session.forward(inputs, grad)
        if self._what == "a gradient":
            inputs = [*inputs[:-1], _Scaled.apply(inputs[-1])]
        first, *rest = self._session.forward(inputs, grad)
        return [first * (1 + 1e-4), *rest] if self._what == "an output" else [first, *rest]


_CALL = (4, 40, 8)
_WRONG = {
    "at the call's sizes": lambda shape: tuple(shape) == _CALL,
    "at more rows": lambda shape: shape[0] > _CALL[0],
    "at longer ones": lambda shape: shape[1] > _CALL[1],
    "at fewer rows": lambda shape: shape[0] < _CALL[0],
    "at shorter ones": lambda shape: shape[1] < _CALL[1],
}


@pytest.mark.parametrize("what", ["an output", "a gradient"])
@pytest.mark.parametrize("where", _WRONG)
def test_a_graph_that_is_wrong_at_some_sizes_is_not_used_there(where: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    compare = acceptance.compare_session

    compared: list[torch.Size] = []

    def compare_mutant(session: Any, eager: Any, *rest: Any, **named: Any) -> Any:
        compared.append(eager.inputs[0].shape)
        return compare(_Mutant(session, what, _WRONG[where]), eager, *rest, **named)

    monkeypatch.setattr(acceptance, "compare_session", compare_mutant)
    torch.manual_seed(0)
    model = rekindle.Module(nn.Sequential(nn.Linear(8, 6), nn.GELU(), nn.Linear(6, 3)), rekindle.Options(log="off"))
    model(torch.randn(_CALL))
    status = rekindle.status(model)
    if where == "at the call's sizes":
        assert [code for code, _ in status.bypass] == ["verification_failed"]
        return
    assert status.source == "export"
    (variant,) = model._runtime._kinds.graphs()
    fixed = dict(variant.contract.shapes.fixed)
    assert all("at other sizes" in fixed[f"argument 0 dim {axis}"] for axis in (0, 1)), fixed
    assert compared.count(torch.Size(_CALL)) == 2, compared  # the call itself once, and once with other numbers


@pytest.mark.parametrize("batch", [8, 2])  # 2 cannot shrink
def test_a_size_that_is_fixed_costs_no_call_at_all_of_the_others(batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[torch.Size] = []
    call_again = open_shapes.call_again

    def noted(request: Any, writes: Any, changed: Any, arguments: list[torch.Tensor]) -> Any:
        found = call_again(request, writes, changed, arguments)
        if found is not None:
            ran.append(arguments[0].shape)
        return found

    monkeypatch.setattr(open_shapes, "call_again", noted)
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 2))
    model, x = rekindle.Module(net, rekindle.Options(log="off")), torch.randn(batch, 3, 32, 32)
    model(x)
    (variant,) = model._runtime._kinds.graphs()
    assert [why for _, why in variant.contract.shapes.fixed] == [
        "no other size was found that eager and the branches taken allow"
    ]
    assert all(max(shape[axis] for shape in ran) > x.shape[axis] for axis in (0, 2, 3))
    assert all(shape.numel() < x.numel() / 2 for shape in ran), ran


def test_a_net_that_takes_no_tiny_images_has_open_sizes() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 9, 2), nn.MaxPool2d(3), nn.Conv2d(4, 2, 3), nn.AdaptiveAvgPool2d(1))
    model = rekindle.Module(net, rekindle.Options(log="off"))
    for sizes in ((4, 3, 224, 224), (2, 3, 96, 80)):
        assert rekindle.verify(model, torch.randn(sizes))
    assert rekindle.status(model).exports == 1


def test_comparisons_keep_no_gradients_and_look_for_reads_on_the_smallest_call(monkeypatch: pytest.MonkeyPatch) -> None:
    compare, saved_writes = acceptance.compare_session, acceptance.saved_writes
    gradients: list[Any] = []
    counts: list[int] = []
    compared: list[int] = []

    def compare_noted(session: Any, eager: Any, *rest: Any, **named: Any) -> Any:
        gradients.append(compare(session, eager, *rest, **named))
        with pytest.raises(RuntimeError, match="a second time"):  # what a backward needs takes memory, too
            eager.outputs[0].sum().backward()
        compared.append(eager.inputs[0].numel())
        return gradients[-1]

    def reads_noted(call: Any, *rest: Any) -> Any:
        counts.append(call.tensors[0].numel())
        return saved_writes(call, *rest)

    monkeypatch.setattr(acceptance, "compare_session", compare_noted)
    monkeypatch.setattr(acceptance, "saved_writes", reads_noted)
    torch.manual_seed(0)
    model = rekindle.Module(nn.Sequential(nn.BatchNorm2d(3), nn.Conv2d(3, 2, 3)), rekindle.Options(log="off"))
    model(torch.randn(4, 3, 40, 20))
    assert len(gradients) == 3
    assert {value.device.type for found in gradients for value in found.values if value is not None} == {"meta"}
    assert counts == [min(compared[1:])] and compared[1] != compared[2]
