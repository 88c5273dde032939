"""Tensors whose sizes depend on data run inside the graph: cold, warm, with gradients, for any count."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import data_size_models as models
import pytest
import rekindle
import torch
from data_size_models import CASES, batch
from module_support import assert_same
from semantics_support import made_of
from torch import nn

_COUNTS = (3, 2, 5, 1, 0)


def _step(model: nn.Module, module: nn.Module, x: torch.Tensor) -> list[torch.Tensor | None]:
    """A training step's results: output, gradients, random state."""
    torch.manual_seed(7)
    module.zero_grad()
    given = x.detach().clone().requires_grad_()
    result = model(given)
    (result.float() ** 2).sum().backward()
    return [
        result.detach(),
        given.grad,
        *(parameter.grad for parameter in module.parameters()),
        torch.get_rng_state(),
    ]


def _compare(module: nn.Module, model: nn.Module, x: torch.Tensor) -> None:
    assert_same(_step(model, model.module, x), _step(module, module, x))


_STATIC = (
    "masked_rows",
    "assigned_by_mask",
    "sizes_as_numbers",
    "dropped",
    "experts",
    "written_by_a_function",
)


@pytest.mark.parametrize(("name", "dynamic"), [*((name, "auto") for name in CASES), *((name, "static") for name in _STATIC)])
def test_sizes_may_depend_on_data(name: str, dynamic: str) -> None:
    module = CASES[name]()
    for sources in ({"export", "memory"}, {"local", "memory"}):
        model = rekindle.Module(copy.deepcopy(module), rekindle.Options(fallback="error", dynamic=dynamic))
        for count in _COUNTS:
            rows = 6 if dynamic == "static" else 6 + count % 3
            _compare(module, model, batch(rows, count, seed=count))
        with torch.no_grad():
            x = batch(6, 4)
            torch.manual_seed(3)
            theirs = module(x)
            torch.manual_seed(3)
            assert_same(model(x), theirs)
        assert rekindle.status(model).source in sources
        assert rekindle.status(model).eager_calls == 0
        rekindle.lookup.store.flush()


_VIEWS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "with gaps": lambda y: y[:, ::2],
    "one column": lambda y: y[:, -1],
    "transposed with gaps": lambda y: y.t()[::2],
    "expanded": lambda y: y[:, :1].expand(-1, 3),
    "windows side by side": lambda y: y.unfold(1, 2, 2),
}


_OVERLAPPING: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {"windows that overlap": lambda y: y.unfold(1, 3, 1)}


class Viewed(nn.Module):
    """Returns a view of what it computes with a number that depends on how many elements there are."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.linear = nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Adds the sum of the positive elements, of which any number may be."""
        return {**_VIEWS, **_OVERLAPPING}[self.name](self.linear(x) + x[x > 0].sum())


@pytest.mark.parametrize("name", _VIEWS)
def test_views_lie_as_in_eager_beside_sizes_that_depend_on_data(name: str) -> None:
    module = Viewed(name)
    model = rekindle.Module(copy.deepcopy(module), rekindle.Options(fallback="error"))
    for rows, count in ((6, 3), (6, 2), (9, 4)):
        x = batch(rows, count, seed=rows + count)
        assert model(x).stride() == module(x).stride()
        _compare(module, model, x)


def test_windows_that_overlap_lie_as_in_eager_because_they_run_there() -> None:
    module = Viewed("windows that overlap")
    model = rekindle.Module(copy.deepcopy(module), rekindle.Options(log="error"))
    for rows, count in ((6, 3), (6, 2)):
        x = batch(rows, count)
        assert model(x).stride() == module(x).stride()
        _compare(module, model, x)
    assert [code for code, _ in rekindle.status(model).bypass] == ["verification_failed"]


@pytest.mark.parametrize("function", [torch.unique, torch.unique_consecutive, torch.Tensor.unique])
@pytest.mark.parametrize("wished", [(), ("return_inverse",), ("return_counts",), ("return_inverse", "return_counts")], ids=repr)
def test_distinct_numbers_have_a_graph_with_whatever_is_wished_for_beside(function: Any, wished: tuple[str, ...]) -> None:
    class Distinct(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return x * 2, function(x.detach().round(), **dict.fromkeys(wished, True))

    model = rekindle.Module(Distinct(), rekindle.Options(fallback="error"))
    for seed, count in enumerate(_COUNTS[:4]):
        x = batch(6, count, seed=seed)
        assert_same(model(x), Distinct()(x))


def test_functions_may_return_any_number_of_rows() -> None:
    module = made_of(models.after_functions)()
    for source in ("export", "local"):
        model = rekindle.Module(copy.deepcopy(module), rekindle.Options(log="error"))
        for count in _COUNTS:
            _compare(module, model, batch(6, count, seed=count))
        status = rekindle.status(model)
        assert status.source == source
        # Signs stay when an export tries other numbers: that the counts vary is learned from the second call, and the third.
        assert status.eager_calls <= 2
        assert all(code == "python_op" and "depend on data" in message for code, message in status.bypass)
        rekindle.lookup.store.flush()


def test_a_branch_on_a_size_that_depends_on_data_is_eagers_and_named() -> None:
    module = made_of(models.branches)()
    model = rekindle.Module(copy.deepcopy(module), rekindle.Options(log="error"))
    for count in (3, 2, 5, 1, 6, 2):  # 5 and 6 take the other branch
        _compare(module, model, batch(6, count, seed=count))
    status = rekindle.status(model)
    assert status.eager_calls == 2
    ((code, message),) = status.bypass
    assert code == "value_specialized"
    assert "data_size_models.py" in message
    assert "in branches asks for a size that depends on data" in message


def test_a_size_made_an_int_is_named_when_data_changes_it() -> None:
    module = made_of(models.counts_rows)()
    model = rekindle.Module(copy.deepcopy(module), rekindle.Options(log="error"))
    for count in (3, 3, 2, 3):
        _compare(module, model, batch(6, count, seed=count))
    status = rekindle.status(model)
    assert status.eager_calls == 1
    ((code, message),) = status.bypass
    assert code == "value_specialized"
    assert "in counts_rows asks for one (a size == 3)" in message


def test_a_size_that_depends_on_data_is_no_result() -> None:
    def measured(self: nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, int, torch.Size]:
        y = self.a(x)[models.kept(x)]
        return self.b(x), x.shape[0], y.shape

    model = rekindle.Module(made_of(measured)(), rekindle.Options(log="error"))
    for count in (3, 2):
        assert model(batch(6, count))[1:] == (6, (count, 4))
    ((code, message),) = rekindle.status(model).bypass
    assert code == "unsupported_output"
    assert "depends on data" in message


def test_a_view_of_an_input_is_seen_to_be_edited_before_the_backward() -> None:
    def squared(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        rows = models.kept(x).sum()
        part = x.reshape(torch.nonzero(x[:, :1] == x[:, :1]).shape[0], 4)  # of all rows, which only data tells
        return (part * self.a(x)).sum() + rows

    model = rekindle.Module(made_of(squared)(), rekindle.Options(fallback="error"))
    x = batch(5, 3).detach()
    result = model(x)
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        result.backward()


def test_an_error_of_the_forward_stays_eagers() -> None:
    def adds(self: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return self.a(x)[models.kept(x)] + torch.ones(3, 4)

    module = made_of(adds)()
    model = rekindle.Module(module, rekindle.Options(log="error"))
    _compare(copy.deepcopy(module), model, batch(6, 3))
    with pytest.raises(RuntimeError, match="must match the size of tensor b"):
        model(batch(6, 2))
    _compare(copy.deepcopy(module), model, batch(6, 3))


class Counts(nn.Module):
    """Buffers that tell of what was kept, and a batch norm of it."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.norm = nn.Linear(4, 4), nn.BatchNorm1d(4)
        self.register_buffer("seen", torch.zeros(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.a(x)[models.kept(x)])
        self.seen.mul_(0.9).add_(y.detach().sum(0))
        return y.square().sum()


@pytest.mark.parametrize("dynamic", ["static", "auto"])
def test_buffers_are_written(dynamic: str) -> None:
    torch.manual_seed(0)
    module = Counts()
    model = rekindle.Module(copy.deepcopy(module), rekindle.Options(fallback="error", dynamic=dynamic))
    for count in (3, 2, 5, 4):
        _compare(module, model, batch(6, count, seed=count))
        assert_same([*model.module.buffers()], [*module.buffers()])


def test_several_losses_and_a_retained_graph() -> None:
    def two(self: nn.Module, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.a(x)[models.kept(x)]
        return self.b(y), y.exp().sum()

    module = made_of(two)()
    model = rekindle.Module(copy.deepcopy(module), rekindle.Options(fallback="error"))
    for count in (3, 4, 0):
        x = batch(6, count)
        for first, second in ((True, True), (False, True), (True, False)):
            found = []
            for wrapped, own in ((model, model.module), (module, module)):
                own.zero_grad()
                a, b = wrapped(x)
                terms = [a.square().sum()] * first + [b] * second
                sum(terms).backward(retain_graph=True)
                sum(terms).backward()
                found.append([a.detach(), b.detach(), *(parameter.grad for parameter in own.parameters())])
            assert_same(found[0], found[1])


def test_experts_of_transformers_see_what_is_sent_to_them() -> None:
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_attention_heads": 2, "num_key_value_heads": 1}
    config = transformers.MixtralConfig(vocab_size=32, num_hidden_layers=1, num_local_experts=3, use_cache=False, **sizes)
    module = transformers.MixtralForCausalLM(config)
    module.set_experts_implementation("eager")  # a loop over the experts, each with the rows that chose it
    for source in ("export", "local"):
        model = rekindle.Module(copy.deepcopy(module), rekindle.Options(fallback="error", log="error"))
        for step in range(3):
            ids = torch.randint(0, 32, (2, 12), generator=torch.Generator().manual_seed(step))
            found = []
            for wrapped, own in ((model, model.module), (module, module)):
                own.zero_grad()
                loss = wrapped(input_ids=ids, labels=ids).loss
                loss.backward()
                found.append([loss.detach(), *(parameter.grad for parameter in own.parameters())])
            assert_same(found[0], found[1])
        assert rekindle.status(model).source == source
        rekindle.lookup.store.flush()
