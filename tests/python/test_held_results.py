"""Results that a caller could tell from a graph's, or write to, are eager's: plain tensors of the module, lazy conjugates."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import torch
from torch import nn

TABLE = torch.arange(3.0)


class Net(nn.Module):
    OWN = torch.arange(3.0)

    def __init__(self, second: Callable[[Any, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.linear, self.second = nn.Linear(3, 3), second
        self.plain, self.listed = torch.arange(3.0), [torch.arange(3.0)]
        self.register_buffer("buffer", torch.arange(3.0))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return self.linear(x), self.second(self, x)


HELD: dict[str, Callable[[Any, torch.Tensor], torch.Tensor]] = {
    "attribute": lambda net, x: net.plain,
    "in a list": lambda net, x: net.listed[0],
    "global": lambda net, x: TABLE,
    "of the class": lambda net, x: net.OWN,
    "a view": lambda net, x: net.plain[1:],
    "a view of a global": lambda net, x: TABLE.reshape(3, 1),
    "detached": lambda net, x: TABLE.detach(),
}
LAZY: dict[str, Callable[[Any, torch.Tensor], torch.Tensor]] = {
    "conjugate": lambda net, x: torch.complex(x, x).conj(),
    "negative": lambda net, x: torch.complex(x, x).conj().imag,
}
COMPUTED: dict[str, Callable[[Any, torch.Tensor], torch.Tensor]] = {
    "sum": lambda net, x: net.plain + TABLE,
    "clone": lambda net, x: TABLE.clone(),
    "buffer": lambda net, x: net.buffer[1:],
    "resolved": lambda net, x: torch.complex(x, x).conj().resolve_conj(),
}


def wrapped(net: nn.Module, cache_dir: Any) -> nn.Module:
    return rekindle.Module(net, options=rekindle.Options(start="wait", cache_dir=cache_dir))


@pytest.mark.parametrize("name", HELD)
def test_a_write_to_a_result_reaches_the_tensor_that_it_is(tmp_path: Any, name: str) -> None:
    net, x = Net(HELD[name]), torch.randn(2, 3)
    graphed = wrapped(net, tmp_path)
    for _ in range(2):
        assert graphed(x)[1].untyped_storage().data_ptr() == net(x)[1].untyped_storage().data_ptr()
    assert rekindle.status(graphed).bypass[0][0] == "unsupported_output"


@pytest.mark.parametrize("name", LAZY)
def test_a_lazy_conjugate_stays_one(tmp_path: Any, name: str) -> None:
    net, x = Net(LAZY[name]), torch.randn(2, 3)
    graphed, (_, expected) = wrapped(net, tmp_path), net(x)
    actual = graphed(x)[1]
    assert (actual.is_conj(), actual.is_neg()) == (expected.is_conj(), expected.is_neg()) != (False, False)
    assert rekindle.status(graphed).bypass[0][0] == "unsupported_output"


@pytest.mark.parametrize("name", COMPUTED)
def test_what_is_computed_is_a_result(tmp_path: Any, name: str) -> None:
    net, x = Net(COMPUTED[name]), torch.randn(2, 3)
    graphed = wrapped(net, tmp_path)
    torch.testing.assert_close(graphed(x)[1], net(x)[1])
    assert rekindle.status(graphed).source == "export"
