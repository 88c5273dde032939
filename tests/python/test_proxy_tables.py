"""The wrapped module and its wrapper have one set of tables: what is changed through either is changed for both."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import torch
from module_support import Mlp, Twins, mlp, rows
from proxy_support import Overriding
from torch import nn
from torch.nn.utils import parametrize


class Table(dict):
    """A dict with an attribute, as sharding libraries put in the place of a table of parameters."""

    def __init__(self, items: dict[str, Any]) -> None:
        super().__init__(items)
        self._in_forward = False
        self.read = 0

    def __getitem__(self, key: str) -> Any:
        self.read += 1
        return super().__getitem__(key)


def replaced_tables(model: nn.Module) -> None:
    for part in model.modules():
        part._parameters = Table(part._parameters)
    for part in model.modules():
        part._parameters._in_forward = True


@pytest.mark.parametrize("through", ["wrapper", "module"])
@pytest.mark.parametrize("called", [False, True])
def test_replaced_tables_are_used(through: str, called: bool) -> None:
    twins = Twins(mlp())
    if called:
        twins.call(rows())
    replaced_tables(twins.eager)
    replaced_tables(twins.wrapped if through == "wrapper" else twins.module)
    for step in range(2):
        twins.call(rows(step))
    assert twins.wrapped._parameters is twins.module._parameters
    assert twins.wrapped._parameters._in_forward
    for model in (twins.eager, twins.module):
        model._modules = {"first": nn.Linear(4, 8), "second": nn.Linear(8, 3)}
    twins.module.load_state_dict(twins.eager.state_dict())
    assert all(a is b for a, b in zip(twins.wrapped.parameters(), twins.module.parameters(), strict=True))
    twins.call(rows())


def test_an_optimizer_gets_the_parameters_of_a_replaced_table() -> None:
    twins = Twins(mlp(), fallback="error")
    twins.call(rows())
    for model in (twins.eager, twins.module):
        model.second._parameters = {name: nn.Parameter(value.detach() * 2) for name, value in model.second._parameters.items()}
        model.zero_grad()
    optimizers = [torch.optim.SGD(model.parameters(), 0.1) for model in (twins.eager, twins.wrapped)]
    for step in range(2):
        twins.call(rows(step))
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
    twins.compare()
    assert twins.status.eager_calls == 0


def test_a_frozen_backbone_stays_as_it_is() -> None:
    torch.manual_seed(0)
    model = rekindle.Module(Overriding(), rekindle.Options(fallback="error"))
    backbone = model.a.weight.detach().clone()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    model(rows()).square().sum().backward()
    optimizer.step()
    assert torch.equal(model.a.weight, backbone)
    assert model.b.weight.grad is not None
    assert rekindle.status(model).source == "export"


class Hides(Mlp):
    """Shows other tensors and modules than it has."""

    def named_parameters(self, *_: Any, **__: Any) -> Any:
        return iter([("weight", self.second.weight)])

    def named_buffers(self, *_: Any, **__: Any) -> Any:
        return iter([])

    def named_modules(self, memo: Any = None, prefix: str = "", remove_duplicate: bool = True) -> Any:
        yield prefix, self

    def get_submodule(self, target: str) -> Any:
        raise KeyError(target)


def test_what_a_class_shows_does_not_decide_what_is_in_a_graph() -> None:
    torch.manual_seed(0)
    ours, theirs = rekindle.Module(Hides(), rekindle.Options(fallback="error")), Mlp()
    theirs.load_state_dict(nn.Module.state_dict(ours))
    for model in (ours, theirs):
        model(rows()).square().sum().backward()
    for name in ("first", "second"):
        torch.testing.assert_close(getattr(ours, name).weight.grad, getattr(theirs, name).weight.grad)


REGISTER: dict[str, Callable[[Any, list[Any]], Any]] = {
    "before saving": lambda model, log: model.register_state_dict_pre_hook(lambda module, *_: log.append(module is model)),
    "after saving": lambda model, log: model.register_state_dict_post_hook(
        lambda module, state, *_: log.append((module is model, state.pop("first.bias").shape)) or None
    ),
    "private, after saving": lambda model, log: model._register_state_dict_hook(
        lambda module, state, *_: dict(list(state.items())[1:])
    ),
    "before loading": lambda model, log: model.register_load_state_dict_pre_hook(
        lambda module, state, *_: (log.append(module is model), state.pop("first.bias"))
    ),
    "private, before loading": lambda model, log: model._register_load_state_dict_pre_hook(
        lambda state, *_: state.pop("first.bias")
    ),
    "after loading": lambda model, log: model.register_load_state_dict_post_hook(
        lambda module, keys: log.append((module is model, [*keys.missing_keys]))
    ),
}


@pytest.mark.parametrize("name", REGISTER)
def test_hooks_of_state_dicts_run(name: str) -> None:
    found = []
    for wrap in (False, True):
        model: Any = rekindle.Module(mlp()) if wrap else mlp()
        log: list[Any] = []
        handle = REGISTER[name](model, log)
        saved = [*model.state_dict()]
        loaded = model.load_state_dict({key: value.clone() for key, value in Mlp().state_dict().items()}, strict=False)
        if handle is not None and hasattr(handle, "remove"):
            handle.remove()
        found.append((saved, loaded, log, [*model.state_dict()]))
    assert found[0] == found[1]


def test_modes_set_on_the_module_are_the_wrappers() -> None:
    module = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 2))
    model = rekindle.Module(module)
    module.eval()
    assert not model.training
    torch.testing.assert_close(model(rows()), module(rows()))
    module.append(nn.ReLU())
    del module[1]
    assert [*model.state_dict()] == [*module.state_dict()]
    assert [type(part) for part in model] == [nn.Linear, nn.Linear, nn.ReLU]
    model.custom = 3
    assert module.custom == 3


def test_models_that_hold_themselves_are_copied() -> None:
    for duplicate in (copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))):
        model = rekindle.Module(mlp())
        model.trainer = [model]
        other = duplicate(model)
        assert other.trainer[0] is other
        assert isinstance(other, rekindle.Module)
        inner = duplicate(rekindle.unwrap(model))
        assert rekindle.unwrap(inner.trainer[0]) is inner


def test_a_shallow_copy_has_attributes_of_its_own() -> None:
    model = rekindle.Module(mlp())
    other = copy.copy(model)
    other.custom = 3
    assert not hasattr(model, "custom")
    assert other.first is model.first
    torch.testing.assert_close(other(rows()), model(rows()))


def test_saved_models_are_loaded_weights_only() -> None:
    model, file = rekindle.Module(mlp()), io.BytesIO()
    torch.save(model, file)
    for weights_only in (False, True):
        file.seek(0)
        with torch.serialization.safe_globals([Mlp, nn.Linear, set]):
            loaded = torch.load(file, weights_only=weights_only)
        assert isinstance(loaded, rekindle.Module)
        assert rekindle.status(loaded).source == "none"
        torch.testing.assert_close(loaded(rows()), model(rows()))


def test_parametrizations_of_the_wrapped_module_itself_are_in_the_graph() -> None:
    torch.manual_seed(0)
    twins = Twins(nn.Linear(4, 3), fallback="error")
    for model in (twins.eager, twins.wrapped):
        parametrize.register_parametrization(model, "weight", nn.Tanh())
    twins.call(rows())
    assert [*twins.wrapped.state_dict()] == [*twins.eager.state_dict()]
    for model in (twins.eager, twins.wrapped):
        parametrize.remove_parametrizations(model, "weight")
    twins.call(rows())


def test_a_forward_of_the_instance_runs_from_a_graph_until_it_is_deleted() -> None:
    torch.manual_seed(0)
    module = mlp()
    module.forward = lambda x, times=3.0: module.first(x) * times
    model = rekindle.Module(module, rekindle.Options(fallback="error"))
    torch.testing.assert_close(model(rows(), times=2.0), module.first(rows()) * 2.0)
    assert rekindle.status(model).source == "export"
    del model.forward
    torch.testing.assert_close(model(rows()), mlp()(rows()))


def test_a_lazy_module_is_in_a_graph_once_it_was_called() -> None:
    torch.manual_seed(0)
    twins = Twins(nn.LazyLinear(3))
    for model in (twins.eager, twins.wrapped):
        torch.manual_seed(0)
        model(rows())
    twins.call(rows())
    assert twins.status.source == "export"
    assert isinstance(twins.wrapped, nn.Linear)
    unset = Twins(nn.Module())
    for model in (unset.eager, unset.wrapped):
        model.w = nn.UninitializedParameter()
        with pytest.raises(NotImplementedError):
            model(rows())
