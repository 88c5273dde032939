"""What a case of the op table is, and how its inputs are drawn. The tables are op_cases_*.py."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

Draw = Callable[[torch.dtype, torch.Generator], Any]


@dataclasses.dataclass(frozen=True)
class Case:
    """One module and the inputs it is called with.

    expect: "graph", or the reason code with which the call runs in eager. random: draws random numbers, so
    that another dtype draws others. train: the mode of the module.
    """

    name: str
    make: Callable[[], nn.Module]
    inputs: tuple[Draw, ...]
    expect: str = "graph"
    random: bool = False
    train: bool = True
    dtypes: tuple[torch.dtype, ...] = (torch.float64, torch.float32)


class Calls(nn.Module):
    """A function of tensors as a module."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: Any) -> Any:
        return self.function(*tensors)


def op(name: str, function: Callable[..., Any], *inputs: Draw, **more: Any) -> Case:
    return Case(name, lambda: Calls(function), inputs, **more)


def model(name: str, make: Callable[[], nn.Module], *inputs: Draw, **more: Any) -> Case:
    return Case(name, make, inputs, **more)


def real(*sizes: int, low: float | None = None, grad: bool = True, view: Callable[[Any], Any] | None = None) -> Draw:
    """Normal numbers, none of them below `low` where it is given. `view`: a layout that is not row-major."""

    def draw(dtype: torch.dtype, generator: torch.Generator) -> torch.Tensor:
        # Drawn in float32, so that each dtype computes with the same numbers.
        x = torch.randn(sizes, generator=generator)
        x = x if low is None else x.abs() + low
        x = x.to(dtype)
        return (x if view is None else view(x)).detach().requires_grad_(grad)

    return draw


def whole(*sizes: int, low: int = 0, high: int = 5, dtype: torch.dtype = torch.int64) -> Draw:
    return lambda _, generator: torch.randint(low, high, sizes, generator=generator).to(dtype)


def flags(*sizes: int) -> Draw:
    return lambda _, generator: torch.rand(sizes, generator=generator) > 0.4


def given(value: Any, dtype: torch.dtype | None = None, grad: bool = False) -> Draw:
    """These numbers, in the case's dtype unless another is given."""
    return lambda default, _: torch.tensor(value, dtype=dtype or default).requires_grad_(grad)


def plain(value: Any) -> Draw:
    """A Python argument."""
    return lambda *_: value
