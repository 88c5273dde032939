"""Results that share memory, and writes to shared memory, at other sizes than the export's: one serves all, cold and warm."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import torch
from rekindle.results.view_steps import NotAStep, decoded, encoded, repeated
from seeded import seeded
from torch import nn

_COUNTS = (4, 7, 3, 12)


class Model(nn.Module):
    """A linear layer, a table of numbers, and a forward that is given."""

    def __init__(self, forward: Callable[..., Any]) -> None:
        super().__init__()
        self.a = nn.Linear(6, 8)
        self.register_buffer("table", torch.randn(4, 3))
        self.does = forward

    def forward(self, x: torch.Tensor) -> Any:
        return self.does(self, x)


def hidden(self: Model, x: torch.Tensor) -> Any:
    y = self.a(x)
    return y[:2], y[2:]


def places_that_depend_on_sizes(self: Model, x: torch.Tensor) -> Any:
    y, n = self.a(x), x.size(0)
    heads = y.view(n, 2, 4).transpose(1, 2)[: n - 1]
    return y, heads, y[:, None].expand(n, 3, 8), y.flatten()[n // 2 : x.numel() // 2], y.unflatten(1, (2, -1))[..., None, 1]


def like_others(self: Model, x: torch.Tensor) -> Any:
    y = self.a(x)
    return y, y.view_as(y), y[:1].expand_as(y), torch.transpose(y, 0, 1).T


def turned(self: Model, x: torch.Tensor) -> Any:
    y = self.a(x)
    y.t_()
    return y, y[1:]


def written_parts(self: Model, x: torch.Tensor) -> Any:
    y = self.a(x)
    y[1:].mul_(2)
    columns = y.t()
    columns[:, 0] = 0
    return y * 1, columns.sum(0)


def written_where_sizes_say(self: Model, x: torch.Tensor) -> Any:
    y, n = self.a(x), x.size(0)
    y[: n // 2].mul_(2)
    y.view(n, 2, 4)[:, 1].add_(1)
    return y, y[n // 2 :]


def of_written_rows(self: Model, x: torch.Tensor) -> Any:
    kept = x.detach().clone()
    kept[1:, 0].zero_()
    return self.a(kept), kept, kept[:, 0]


def folded(self: Model, x: torch.Tensor) -> torch.Tensor:
    """Returns a product that PyTorch computes with two dimensions, and then views as one of three."""
    return self.a(torch.stack([x, x * 2], 1))


def written_after_folding(self: Model, x: torch.Tensor) -> Any:
    y = folded(self, x)
    y[..., :4].mul_(2)
    return y.chunk(2, -1)


# forward -> exports for all counts
CASES: dict[str, tuple[Callable[..., Any], int]] = {
    "transposed": (lambda self, x: (lambda y: (y, y.t()))(self.a(x)), 1),
    "detached": (lambda self, x: (lambda y: (y, y.detach()[1:], y.data[0]))(self.a(x)), 1),
    "parts": (lambda self, x: self.a(x).chunk(2, 1), 1),
    "of an input": (lambda self, x: (self.a(x), x[1:], x.t(), x.reshape(-1)), 1),
    "of state": (lambda self, x: (self.a(x), self.table[1:], self.a.weight.t()), 1),
    "of one another": (lambda self, x: (lambda y: (y.t(), y.t()[1:]))(self.a(x)), 1),
    "of a hidden one": (hidden, 1),
    "without elements at some sizes": (lambda self, x: (lambda y: (y, y[3:], x[4:]))(self.a(x)), 2),
    "places that depend on sizes": (places_that_depend_on_sizes, 1),
    "like others": (like_others, 1),
    "of one that was turned": (turned, 1),
    "written parts": (written_parts, 1),
    "written where sizes say": (written_where_sizes_say, 1),
    "of written rows": (of_written_rows, 1),
    "parts of a folded product": (lambda self, x: folded(self, x).chunk(2, -1), 1),
    "of a folded product of four dimensions": (
        lambda self, x: self.a(torch.stack([x, x * 2])[None]).view(1, 2, x.size(0), 2, 4).unbind(3),
        1,
    ),
    "written after folding": (written_after_folding, 4),
}


def observed(model: nn.Module, module: Model, count: int) -> tuple[list[torch.Tensor], list[Any]]:
    """(results and gradients, what else there is to say of the results) of one step."""
    module.zero_grad()
    x = torch.randn(count, 6, generator=seeded(count)).requires_grad_()
    results = model(x)
    bases = [*results, x, module.table, *module.parameters()]
    about = [
        (r.shape, r.stride(), r.storage_offset(), r.requires_grad, r._is_view(), [r._base is base for base in bases],
         [r.untyped_storage().data_ptr() == base.untyped_storage().data_ptr() for base in bases])
        for r in results
    ]  # fmt: skip
    sum((r * (i + 1)).square().sum() for i, r in enumerate(results) if r.requires_grad).backward()
    numbers = [*(r.detach().clone() for r in results), x.grad, module.a.weight.grad]
    return numbers, about


@pytest.mark.parametrize("name", CASES)
def test_shared_memory_is_eagers_at_all_sizes(name: str) -> None:
    forward, exports = CASES[name]
    torch.manual_seed(0)
    module = Model(forward)
    for expected in (exports, 0):
        own = copy.deepcopy(module)
        model = rekindle.Module(own, rekindle.Options(fallback="error", log="error"))
        for count in _COUNTS:
            theirs, ours = observed(module, module, count), observed(model, own, count)
            torch.testing.assert_close(ours[0], theirs[0])
            assert ours[1] == theirs[1]
        assert rekindle.status(model).exports == expected
        rekindle.lookup.store.flush()


@pytest.mark.parametrize(
    ("forward", "reasons"),
    [
        (lambda self, x: (lambda y: (self.a(y), y, y[1:]))(x[x[:, 0] > 0]), []),
        (lambda self, x: (lambda y: (self.a(y), y, y[: y.size(0) // 2]))(x[x[:, 0] > 0]), ["unsupported_output"]),
    ],
)
def test_views_of_what_is_sized_by_data(forward: Callable[..., Any], reasons: list[str]) -> None:
    module = Model(forward)
    model = rekindle.Module(copy.deepcopy(module), rekindle.Options(log="error"))
    for positive in (3, 5, 2):
        x = -torch.ones(6, 6)
        x[:positive] = 1
        theirs, ours = module(x), model(x)
        torch.testing.assert_close(ours, theirs)
        assert ours[2].stride() == theirs[2].stride()
    assert [code for code, _ in rekindle.status(model).bypass] == reasons


def test_a_differentiable_backward_at_other_sizes() -> None:
    module = Model(lambda self, x: (lambda y: (y, y.t()[1:]))(self.a(x).tanh()))
    model = rekindle.Module(copy.deepcopy(module), rekindle.Options(fallback="error", log="error"))
    for count in _COUNTS:
        found = []
        for each in (module, model):
            x = torch.ones(count, 6, requires_grad=True)
            (gradient,) = torch.autograd.grad(sum(r.square().sum() for r in each(x)), x, create_graph=True)
            found.append(torch.autograd.grad(gradient.square().sum(), x)[0])
        torch.testing.assert_close(*found)
    assert rekindle.status(model).exports == 1


def test_places_are_worked_out_once_for_each_size(monkeypatch: pytest.MonkeyPatch) -> None:
    module = Model(hidden)
    model = rekindle.Module(copy.deepcopy(module), rekindle.Options(fallback="error", log="error"))
    model(torch.randn(5, 6))
    steps: list[int] = []

    def counted(of: Any, base: torch.Tensor, argument: Any) -> torch.Tensor:
        steps.append(base.size(0))
        return repeated(of, base, argument)

    monkeypatch.setattr(rekindle.results.views, "repeated", counted)
    for count in (9, 9, 31, 9, 31):
        x = torch.randn(count, 6)
        torch.testing.assert_close(model(x), module(x))
    assert steps == [9, 9, 31, 31]  # of y[:2] and y[2:]


def test_an_entry_can_name_steps_only_that_are_views() -> None:
    with pytest.raises(NotAStep):
        repeated([["fill_", [0], {}, None]], torch.ones(3), decoded([]))
    with pytest.raises(NotAStep):
        encoded([["view", [torch.int32], {}, None]], lambda value: None)


def test_steps_that_are_no_methods_of_tensors() -> None:
    x = torch.randn(3, 2)
    numbers = repeated([["view_as_complex", [], {}, None], ["unsqueeze", [0], {}, None]], x, lambda value: value)
    parts = repeated([["view_as_real", [], {}, None]], numbers, lambda value: value)
    torch.testing.assert_close(parts, x[None])
    assert parts.data_ptr() == x.data_ptr()


def test_a_result_that_is_all_of_a_hidden_tensor_has_the_others_for_views() -> None:
    def forward(self: Model, x: torch.Tensor) -> Any:
        y = folded(self, x)
        return y, y[:, 0], y[1:].transpose(0, 1)

    wrapped = rekindle.Module(copy.deepcopy(module := Model(forward)), rekindle.Options(fallback="error"))
    for count in _COUNTS:
        gradients = []
        for model in (module, wrapped):
            whole, *parts = results = model(torch.randn(count, 6, generator=seeded(count)))
            whole.register_hook(gradients.append)
            assert all(part._is_view() and part.untyped_storage().data_ptr() == whole.data_ptr() for part in parts)
            sum((one * (i + 1)).square().sum() for i, one in enumerate(results)).backward()
        torch.testing.assert_close(gradients[0], gradients[1])
    assert rekindle.status(wrapped).exports == 1
