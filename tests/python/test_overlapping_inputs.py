"""Inputs several of whose elements have one place in memory, and results that are views of them: gradients are eager's."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import rekindle
import torch
from torch import nn

LAYOUTS: dict[str, Callable[[int], torch.Tensor]] = {
    "dense": lambda rows: torch.ones(rows, 4),
    "one row expanded": lambda rows: torch.ones(1, 4).expand(rows, 4),
    "one column expanded": lambda rows: torch.ones(rows, 1).expand(rows, 4),
    "windows": lambda rows: torch.arange(rows + 3.0).unfold(0, 4, 1),
    "every second row": lambda rows: torch.ones(2 * rows, 4)[::2],
}
OVERLAPPING = [name for name in LAYOUTS if name not in ("dense", "every second row")]
VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "transposed": lambda x: x.t(),
    "columns": lambda x: x[:, :2],
    "rows": lambda x: x[1:],
    "windows": lambda x: x.unfold(1, 2, 1),
}


class Viewing(nn.Module):
    """Returns a product and a view of its input."""

    def __init__(self, view: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.view = view
        self.weight = nn.Parameter(torch.linspace(1, 2, 4))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x * self.weight, self.view(x)


def gradient(model: nn.Module, x: torch.Tensor) -> torch.Tensor:
    x.requires_grad_()
    product, view = model(x)
    (product.sum() + (view * torch.arange(1.0, view.numel() + 1).reshape(view.shape)).sum()).backward()
    assert x.grad is not None
    return x.grad


@pytest.mark.parametrize("order", [[*LAYOUTS], [*reversed(LAYOUTS)]], ids=["dense first", "dense last"])
@pytest.mark.parametrize("name", VIEWS)
def test_the_gradient_of_an_input_and_a_view_of_it(name: str, order: list[str]) -> None:
    model, plain = rekindle.Module(Viewing(VIEWS[name])), Viewing(VIEWS[name])
    for rows in (3, 5, 3):
        for layout in order:
            ours, theirs = (gradient(each, LAYOUTS[layout](rows)) for each in (model, plain))
            torch.testing.assert_close(ours, theirs, msg=lambda text, layout=layout: f"{layout}: {text}")
    reasons = {code for code, message in rekindle.status(model).bypass if "several elements in one place" in message}
    assert reasons == {"unsupported_output"}


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


@pytest.mark.parametrize("layout", OVERLAPPING)
def test_such_an_input_has_its_graph_where_nothing_is_a_view_of_it(layout: str) -> None:
    model, plain = rekindle.Module(Viewing(doubled), rekindle.Options(fallback="error")), Viewing(doubled)
    torch.testing.assert_close(gradient(model, LAYOUTS[layout](3)), gradient(plain, LAYOUTS[layout](3)))
