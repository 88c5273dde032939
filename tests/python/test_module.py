"""A wrapped module is the nn.Module that it wraps: state, attributes, hooks, copies, and the rules of autograd."""

from __future__ import annotations

import copy
import inspect
import pickle

import pytest
import rekindle
import torch
from module_support import Mlp, Twins, mlp, rows
from torch import nn


def test_state_dicts_have_the_keys_and_values_of_the_wrapped_module() -> None:
    twins = Twins(mlp(), fallback="error")
    assert list(twins.wrapped.state_dict()) == list(twins.eager.state_dict())
    assert [name for name, _ in twins.wrapped.named_parameters()] == [name for name, _ in twins.eager.named_parameters()]
    assert [name for name, _ in twins.wrapped.named_modules()] == [name for name, _ in twins.eager.named_modules()]
    assert all(a is b for a, b in zip(twins.wrapped.parameters(), twins.module.parameters(), strict=True))
    with pytest.raises(RuntimeError, match="Missing key"):
        twins.wrapped.load_state_dict({}, strict=True)
    assert twins.wrapped.load_state_dict({}, strict=False).missing_keys == list(twins.eager.state_dict())


@pytest.mark.parametrize("assign", [False, True])
def test_loaded_state_is_used_by_the_next_call(assign: bool) -> None:
    twins = Twins(mlp(), fallback="error")
    twins.call(rows())
    torch.manual_seed(9)
    state = Mlp().state_dict()
    for model in (twins.eager, twins.wrapped):
        model.load_state_dict({name: value.clone() for name, value in state.items()}, assign=assign)
        model.zero_grad()
    twins.call(rows())
    assert twins.status.exports == 1  # values are inputs of the graph


def test_dtype_changes_there_and_back() -> None:
    twins = Twins(mlp(), fallback="error")
    twins.call(rows())
    for dtype in (torch.float64, torch.float32):
        twins.wrapped.zero_grad()
        twins.eager.zero_grad()
        assert twins.wrapped.to(dtype) is twins.wrapped
        twins.eager.to(dtype)
        assert twins.call(rows().to(dtype)).dtype is dtype
    assert twins.status.exports == 2


def test_frozen_parameters_get_no_gradient() -> None:
    twins = Twins(mlp(), fallback="error")
    twins.call(rows())
    for model in (twins.eager, twins.wrapped):
        model.zero_grad()
        model.first.requires_grad_(False)
    twins.call(rows())
    assert twins.module.first.weight.grad is None
    assert twins.module.second.weight.grad is not None
    for model in (twins.eager, twins.wrapped):
        model.requires_grad_(True)
    twins.call(rows())
    assert twins.status.exports == 2  # the first graph is used again


def test_replaced_parameters_and_submodules_are_used() -> None:
    twins = Twins(mlp(), fallback="error")
    twins.call(rows())
    bias = torch.arange(8.0)
    for model in (twins.eager, twins.wrapped):
        model.zero_grad()
        model.first.bias = nn.Parameter(bias.clone())
    twins.call(rows())
    torch.manual_seed(3)
    narrow = nn.Sequential(nn.Linear(8, 2), nn.Tanh())
    for model in (twins.eager, twins.wrapped):
        model.zero_grad()
        model.second = copy.deepcopy(narrow)
    assert twins.call(rows()).shape == (5, 2)
    assert twins.status.exports == 2


class Scaled(Mlp):
    """Has an attribute and a method that a user may want to reach."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = 2.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) * self.scale

    def describe(self, prefix: str) -> str:
        return f"{prefix}{self.scale}"


def test_attributes_are_one_and_the_same_through_either_name() -> None:
    twins = Twins(Scaled(), fallback="error")
    twins.call(rows())
    twins.eager.scale = twins.wrapped.scale = 3.0
    twins.call(rows())
    twins.eager.scale = twins.wrapped.module.scale = 4.0
    twins.call(rows())
    assert twins.wrapped.scale == twins.module.scale == 4.0
    assert twins.wrapped.describe("scale ") == "scale 4.0"
    assert twins.status.exports == 3
    with pytest.raises(AttributeError, match="no_such_name"):
        twins.wrapped.no_such_name  # noqa: B018


def test_apply_and_zero_grad_reach_every_module() -> None:
    twins = Twins(mlp(), fallback="error")
    twins.call(rows())
    for model in (twins.eager, twins.wrapped):
        model.zero_grad()
        model.apply(lambda module: nn.init.constant_(module.weight, 0.5) if isinstance(module, nn.Linear) else None)
    assert all(parameter.grad is None for parameter in twins.module.parameters())
    twins.call(rows())
    visited: list[type] = []
    twins.wrapped.apply(lambda module: visited.append(type(module)))
    assert visited == [nn.Linear, nn.Linear, Mlp]


def test_containers_keep_their_length_and_items() -> None:
    layers = rekindle.Module(nn.Sequential(nn.Linear(4, 4), nn.ReLU()))
    assert len(layers) == 2
    assert isinstance(layers[1], nn.ReLU)
    assert [type(layer) for layer in layers] == [nn.Linear, nn.ReLU]
    assert bool(rekindle.Module(mlp()))
    layers[1] = nn.Tanh()
    layers.append(nn.Linear(4, 2))
    assert [type(layer) for layer in layers.module] == [nn.Linear, nn.Tanh, nn.Linear]
    torch.testing.assert_close(layers(rows()), layers.module(rows()))
    del layers[2]
    assert layers(rows()).shape == (5, 4)


@pytest.mark.parametrize("after_a_step", [False, True])
@pytest.mark.parametrize("duplicate", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_copies_are_independent_and_run_from_the_cache(duplicate: object, after_a_step: bool) -> None:
    twins = Twins(mlp(), fallback="error")
    if after_a_step:
        twins.call(rows())
        rekindle.cache.stats()
    other = duplicate(twins.wrapped)  # type: ignore[operator]
    with torch.no_grad():
        other.first.weight.zero_()
    torch.testing.assert_close(other(rows()), other.module(rows()))
    assert rekindle.status(other).source == ("local" if after_a_step else "export")
    for model in (twins.eager, twins.wrapped):
        model.zero_grad()
    twins.call(rows())


def test_a_wrapped_module_works_inside_a_module() -> None:
    twins = Twins(mlp(), fallback="error")
    ours, theirs = nn.Sequential(nn.Linear(4, 4), twins.wrapped, nn.Linear(3, 1)), None
    theirs = nn.Sequential(copy.deepcopy(ours[0]), twins.eager, copy.deepcopy(ours[2]))
    assert list(ours.state_dict()) == list(theirs.state_dict())
    for model in (ours, theirs):
        model(rows()).sum().backward()
    twins.compare()
    torch.testing.assert_close(ours[0].weight.grad, theirs[0].weight.grad)
    ours.eval()
    assert not twins.module.training
    assert not twins.wrapped.training


def test_wrapping_what_is_no_module_or_wrapped_already_is_an_error() -> None:
    wrapped = rekindle.Module(mlp())
    with pytest.raises(TypeError, match="wrapped already"):
        rekindle.Module(wrapped)
    with pytest.raises(TypeError, match="not a int"):
        rekindle.Module(3)  # type: ignore[arg-type]


def test_hooks_on_the_wrapper_run_around_the_graph() -> None:
    twins = Twins(mlp(), fallback="error")
    for model in (twins.eager, twins.wrapped):
        model.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
        model.register_forward_hook(lambda module, args, result: result + 1)
    twins.call(rows())
    assert twins.status.source == "export"


@pytest.mark.parametrize(
    ("register", "reason"),
    [
        ("register_forward_hook", "state_mutated"),
        ("register_full_backward_hook", "hooks"),
        ("register_forward_pre_hook", "state_mutated"),
    ],
)
def test_hooks_on_submodules_that_keep_something_run_in_eager_until_they_are_removed(register: str, reason: str) -> None:
    twins = Twins(mlp())
    twins.call(rows())
    calls: list[type] = []
    handles = [
        getattr(model.first, register)(lambda module, *rest: calls.append(type(module))) for model in (twins.eager, twins.wrapped)
    ]
    twins.call(rows())
    assert calls == [nn.Linear, nn.Linear]
    assert {*twins.reasons()} == {reason}
    assert twins.status.source == "eager"
    for handle in handles:
        handle.remove()
    twins.call(rows())
    assert len(calls) == 2
    assert twins.status.eager_calls == 1
    assert twins.status.exports == 1


class Signed(Mlp):
    """A forward with a signature that trainers look at."""

    def forward(self, x: torch.Tensor, labels: torch.Tensor | None = None, *, scale: float = 1.0) -> torch.Tensor:
        return super().forward(x) * scale

    def __deepcopy__(self, memo: dict[int, object]) -> Signed:
        other = memo[id(self)] = Signed()
        other.load_state_dict(self.state_dict())
        return other


def test_signature_and_class_are_those_of_the_wrapped_module() -> None:
    model = rekindle.Module(Signed())
    for forward in (model.forward, model.__class__.forward):
        assert list(inspect.signature(forward).parameters)[-3:] == ["x", "labels", "scale"]
    assert isinstance(model, Signed)
    assert isinstance(model, rekindle.Module)
    assert issubclass(type(model), (rekindle.Module, Signed))
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model)), copy.copy(model)):
        assert type(other) is type(model)
        torch.testing.assert_close(other(rows(), scale=2.0), model.module(rows(), scale=2.0))


def test_a_forward_around_the_forward_is_called_and_goes_along_into_copies() -> None:
    twins = Twins(mlp(), fallback="error")
    for model in (twins.eager, twins.wrapped):
        model.kept_forward = model.forward
        model.forward = lambda x, inner=model.forward: inner(x) * 2
    for step in range(2):
        twins.call(rows(step))
    assert twins.status.source == "export"
    assert "forward" not in vars(twins.module)
    torch.testing.assert_close(copy.deepcopy(twins.wrapped)(rows()), twins.eager(rows()))
    for model in (twins.eager, twins.wrapped):
        del model.forward
        model.zero_grad()
    twins.call(rows())
    assert pickle.loads(pickle.dumps(twins.wrapped))(rows()).shape == (5, 3)


def test_a_wrapped_module_may_hold_wrapped_modules() -> None:
    twins = Twins(mlp(), fallback="error")
    outer = rekindle.Module(nn.Sequential(twins.wrapped, nn.Linear(3, 2)), rekindle.Options(fallback="error"))
    expected = outer.module[1](twins.eager(rows()))
    expected.sum().backward()
    theirs = outer.module[1].weight.grad.clone()
    outer.module[1].zero_grad()
    torch.testing.assert_close(outer(rows()), expected)
    outer(rows()).sum().backward()
    twins.compare()
    torch.testing.assert_close(outer.module[1].weight.grad, theirs)
    assert rekindle.status(outer).eager_calls == 0


def test_an_export_leaves_torchs_own_traces_as_they_are() -> None:
    found = []
    for exported in (False, True):
        if exported:
            rekindle.Module(mlp())(rows())
        nodes = torch.jit.trace(torch.tanh, rows()).graph.nodes()
        found.append([node.sourceRange() for node in nodes if node.kind() == "aten::tanh"])
    assert found[0] == found[1]
    assert "test_module.py" in found[0][0]
