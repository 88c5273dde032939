"""Every kind of argument runs from a graph or in eager with a reason; none is an error of Rekindle's."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from module_support import Twins, assert_same, rows
from torch import nn


class Subclass(torch.Tensor):
    """Not the plain class."""


class BadHash(str):
    """Cannot be put into a table."""

    def __hash__(self) -> int:
        raise ArithmeticError("no hash")


class Unhashable(int):
    """Neither can this."""

    __hash__ = None  # type: ignore[assignment]


def in_itself() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


PLAIN: dict[str, Callable[[], Any]] = {
    "no rows": lambda: rows(count=0),
    "a row": lambda: rows(count=1),
    "conjugated": lambda: torch.complex(rows(), rows(1)).conj(),
    "negated": lambda: torch.complex(rows(), rows(1)).conj().imag,
    "a view that requires a gradient": lambda: rows().requires_grad_()[:3],
    "expanded": lambda: rows(count=1).expand(3, 4),
    "overlapping": lambda: torch.arange(10.0).as_strided((3, 4), (1, 1)),
    "a parameter": lambda: nn.Parameter(rows()),
    "half": lambda: rows().half(),
    "a number": lambda: torch.tensor(2.0),
}
OTHER: dict[str, Callable[[], Any]] = {
    "nested": lambda: torch.nested.nested_tensor([rows(), rows(1, 3)]),
    "jagged": lambda: torch.nested.nested_tensor([rows(), rows(1, 3)], layout=torch.jagged),
    "coordinates": lambda: torch.eye(4).to_sparse(),
    "compressed": lambda: torch.eye(4).to_sparse_csr(),
    "blocks": lambda: torch.eye(4).to_sparse_bsr((2, 2)),
    "quantized": lambda: torch.quantize_per_tensor(rows(), 0.1, 0, torch.qint8),
    "quantized by row": lambda: torch.quantize_per_channel(rows(), torch.ones(5), torch.zeros(5), 0, torch.qint8),
    "mkldnn": lambda: rows().to_mkldnn(),
    "zeros without memory": lambda: torch._efficientzerotensor(5, 4),
    "named": lambda: rows().refine_names("a", "b"),
    "a subclass": lambda: rows().as_subclass(Subclass),
    "meta": lambda: rows().to("meta"),
    "inference": lambda: torch.inference_mode()(rows)(),
    "an object": object,
    "a set": lambda: {1, 2},
    "a range": lambda: range(3),
    "a text without a hash": lambda: BadHash("a"),
    "an integer without a hash": lambda: Unhashable(3),
    "a list in itself": in_itself,
    "a deep list": lambda: functools.reduce(lambda inner, _: [inner], range(3000), rows()),
}


class Twice(nn.Module):
    """Takes what can be multiplied; anything else is left alone."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def forward(self, x: Any) -> Any:
        if not isinstance(x, torch.Tensor):
            return self.weight * 2
        return (x.dequantize() if x.is_quantized else x) * 2


def compare(twins: Twins, make: Callable[[], Any]) -> None:
    for _ in range(2):
        theirs, ours = (model(make()) for model in (twins.eager, twins.wrapped))
        assert type(ours) is type(theirs)
        assert (ours.layout, ours.dtype, ours.device, ours.is_nested) == (
            theirs.layout, theirs.dtype, theirs.device, theirs.is_nested,
        )  # fmt: skip
        if theirs.layout is torch.strided and theirs.is_cpu and not theirs.is_nested:
            assert ours.names == theirs.names
            plain = [
                tensor.rename(None).dequantize() if tensor.is_quantized else tensor.rename(None) for tensor in (ours, theirs)
            ]
            assert_same(*(tensor.resolve_conj().resolve_neg() for tensor in plain))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", PLAIN)
def test_plain_tensors_run_from_a_graph(name: str) -> None:
    twins = Twins(Twice(), fallback="error")
    compare(twins, PLAIN[name])
    assert twins.status.source == "export"


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", OTHER)
def test_others_run_in_eager_with_a_reason(name: str) -> None:
    twins = Twins(Twice())
    compare(twins, OTHER[name])
    assert twins.status.source == "eager"
    [reason] = twins.reasons()
    assert reason in ("unsupported_input", "unsupported_device", "inference_mode"), twins.status.bypass
    twins.call(rows())
    assert twins.status.source == "export", "other calls are served as before"


def test_transforms_of_calls_run_in_eager() -> None:
    twins = Twins(nn.Sequential(nn.Linear(4, 4), nn.Tanh()))
    twins.call(rows())
    for transformed in (
        lambda model: torch.vmap(model)(rows()),
        lambda model: torch.func.grad(lambda x: model(x).sum())(rows()),
        lambda model: torch.func.jvp(model, (rows(),), (rows(1),)),
        lambda model: torch.func.hessian(lambda x: model(x).sum())(rows()[0]),
    ):
        assert_same(*reversed(twins.both(transformed)))
    assert twins.status.source == "eager"
    assert set(twins.reasons()) == {"mode_stack"}
