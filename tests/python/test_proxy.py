"""A wrapped module does what its unwrapped twin does: every action on every kind of module, results and errors compared."""

from __future__ import annotations

import collections
import collections.abc
import copy
import dataclasses
import gc
import inspect
import pickle
import re
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import rekindle
import torch
from proxy_support import (
    Abstract,
    Attributes,
    Data,
    Mapping,
    Named,
    Net,
    Overriding,
    Patched,
    Registered,
    Slotted,
    Special,
    Told,
    WithMetaclass,
)
from torch import nn
from torch.nn.utils import parametrizations, parametrize, prune

KINDS: dict[str, Callable[[], nn.Module]] = {
    kind.__name__: kind for kind in (Net, Special, Overriding, Attributes, Slotted, Mapping, Named, Data, Patched)
} | {
    "Sequential": lambda: nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)),
    "ModuleList": lambda: nn.ModuleList([nn.Linear(4, 4), nn.ReLU()]),
    "ModuleDict": lambda: nn.ModuleDict({"a": nn.Linear(4, 2), "b": nn.ReLU()}),
    "ParameterList": lambda: nn.ParameterList([torch.ones(2), torch.ones(3)]),
    "LSTM": lambda: nn.LSTM(4, 3, batch_first=True),
    "Linear": lambda: nn.Linear(4, 2),
    "LazyLinear": lambda: nn.LazyLinear(2),
    "BatchNorm1d": lambda: nn.BatchNorm1d(4),
}

NAMES = {
    "collections": collections, "copy": copy, "dataclasses": dataclasses, "inspect": inspect, "pickle": pickle, "torch": torch,
    "nn": nn, "Net": Net, "parametrize": parametrize, "parametrizations": parametrizations, "prune": prune, "x": torch.ones(2, 4),
}  # fmt: skip

ACTIONS: list[str] = """
list(m.parameters())
list(m.named_parameters("p"))
list(m.named_buffers("p.", False)), list(m.buffers())
[name for name, _ in m.named_modules(prefix="p")]
list(m.modules()), list(m.named_children())
m.state_dict()
m.state_dict(destination=collections.OrderedDict(), prefix="w.", keep_vars=True)
m.state_dict()._metadata
m.load_state_dict(m.state_dict())
m.load_state_dict(m.state_dict(), assign=True), list(m.parameters())
m.load_state_dict({"none": 1}, strict=False)
m.load_state_dict({})
m.eval(), m.training, [part.training for part in m.modules()]
m.train(), m.train(False), m.training
m.train(1, 2), m.seen
m.apply(len, 2)
m.to(torch.float64), list(m.parameters())
m.to("meta"), m.to_empty(device="cpu").training
m.half(), m.float(), m.double(), m.bfloat16(), m.cpu(), m.type(torch.float64), list(m.buffers())
m.cuda()
m.share_memory(), [tensor.is_shared() for tensor in m.parameters()]
m.requires_grad_(False), [tensor.requires_grad for tensor in nn.Module.parameters(m)]
m.zero_grad()
m._apply(lambda tensor: tensor * 2), list(m.parameters())
m.get_submodule("a"), m.get_submodule(""), m.get_parameter("a.weight"), m.get_buffer("scale")
m.get_submodule("zz")
m.get_extra_state()
m.set_extra_state(4), m.extra
m.set_submodule("a", nn.ReLU()), m.a
m.register_buffer("more", torch.ones(2)), m.more, list(m.buffers())
m.register_parameter("more", nn.Parameter(torch.ones(2))), m.more, list(m.named_parameters())
m.add_module("more", nn.ReLU()), m.more, list(m.children())
m.register_buffer("a", torch.ones(1))
setattr(m, "more", nn.Parameter(torch.ones(1))), list(m.named_parameters())
setattr(m, "a", None), list(m.named_children())
setattr(m, "a", 3)
setattr(m, "scale", None), m.scale, list(m.named_buffers())
setattr(m, "training", False), m.training
setattr(m, "_parameters", {}), list(m.parameters(False))
delattr(m, "a"), hasattr(m, "a")
delattr(m, "nothing")
m.nothing
sorted(vars(m)), sorted(set(dir(m)) - {"module"})
sorted(vars(type(m))), setattr(type(m), "extra", 3), vars(type(m))["extra"], delattr(type(m), "extra"), "extra" in vars(type(m))
m.__class__, type(m).__name__, type(m).__doc__, m.__doc__, type(m).__module__
isinstance(m, nn.Module), isinstance(m, Net)
[isinstance(m, getattr(collections.abc, kind)) for kind in ("Sized", "Iterable", "Container", "Hashable", "Callable")]
hasattr(m, "__len__"), bool(m)
len(m), list(m), 3 in m, m["a"]
m[0], m[:2], m.append(nn.ReLU()), list(m.children())
m.pop(-1), m.insert(0, nn.ReLU()), list(m.children())
list(m.keys()), list(m.values()), list(m.items())
m.update({"c": nn.Tanh()}), list(m.items())
m.__setitem__(0, nn.Tanh()), m.__delitem__(1), list(m.children())
m + 1, 1 + m, m @ 2, float(m), m < 3, [1, 2, 3][m]
m == m, m == 3, {m: 1}[m]
m.__enter__(), m.inside
m.magic_a, setattr(m, "raised", 1), m.raised
delattr(m, "kept")
m.slot, m.put(4), m.slot, setattr(m, "slot", 9), m.slot
m.broken
m.width, setattr(m, "width", 4), m.asked
m.cached is m.cached, "cached" in vars(m)
m.of_class(), m.of_nothing(1), m.limit
m.counts(), m.kinds(), m.private(), m._Attributes__x, m.itself()
m.others()
m.again(), list(m.parameters())
m.new_attributes(), m.fresh, list(m.parameters()), m(x)
m.module, m._runtime, m._options, m.of_module(x)
setattr(m, "module", nn.Tanh()), m.module, list(m.named_children())
setattr(m, "module", 3), m.module
inspect.signature(m.forward), inspect.signature(type(m).forward), inspect.signature(m.__class__)
inspect.signature(m.__init__), inspect.signature(type(m))
dataclasses.is_dataclass(m), dataclasses.replace(m, width=2).width
copy.copy(m).state_dict(), copy.copy(m)._parameters is m._parameters, vars(copy.copy(m)) is vars(m)
copy.deepcopy(m).state_dict(), copy.deepcopy(m)._parameters is m._parameters
pickle.loads(pickle.dumps(m)).state_dict()
m.__getstate__().keys(), m.__setstate__(vars(m)), list(m.parameters())
m.in_features, setattr(m, "in_features", 7), m.extra_repr()
m.flatten_parameters(), m.input_size
m.has_uninitialized_params(), m(x), m.has_uninitialized_params(), m(x), m.__class__
m.reset_parameters(), list(m.parameters())
parametrize.register_parametrization(m, "weight", nn.Tanh()), m.weight, m(x), m.__class__.__name__
parametrizations.weight_norm(m), m(x), parametrize.remove_parametrizations(m, "weight"), list(m.named_parameters()), m(x)
prune.l1_unstructured(m, "weight", 0.5), m(x), prune.remove(m, "weight"), list(m.named_parameters()), m(x)
nn.utils.weight_norm(m), m(x), nn.utils.remove_weight_norm(m), list(m.named_parameters())
torch.func.functional_call(m, {name: value * 2 for name, value in m.named_parameters()}, (x,))
torch.func.stack_module_state([m, m])
m(x), m.forward(x)
m(x, none=1)
""".strip().splitlines()


def seen(value: Any, model: Any) -> Any:
    """What can be compared of a result: the model itself is told apart from other modules, which are told by class."""
    if value is model:
        return "the model"
    if isinstance(value, (nn.parameter.UninitializedTensorMixin, nn.Module)):
        return value.__class__.__name__
    if isinstance(value, torch.Tensor):
        numbers = None if value.is_meta else [round(number, 4) for number in value.detach().double().flatten().tolist()]
        return type(value).__name__, tuple(value.shape), value.dtype, value.requires_grad, numbers
    if isinstance(value, dict):
        return [(seen(key, model), seen(item, model)) for key, item in value.items()]
    if isinstance(value, (list, tuple, Iterator)):
        return [seen(item, model) for item in value]
    if inspect.ismethod(value):
        return value.__func__.__name__, seen(value.__self__, model)
    return value


def outcome(make: Callable[[], nn.Module], action: Callable[[Any], Any], wrap: bool) -> Any:
    """What an action on a module, wrapped or not, results in; or its error."""
    torch.manual_seed(0)
    model = make()
    if wrap:
        model = rekindle.Module(model, rekindle.Options(log="error"))
    torch.manual_seed(1)
    try:
        return seen(action(model), model)
    except Exception as error:
        return type(error), re.sub(r"rekindle\.Module\((\w+)\)", r"\1", str(error))


@pytest.mark.parametrize("kind", KINDS)
def test_every_action_is_that_of_the_twin(kind: str) -> None:
    for text in ACTIONS:
        code = compile(text, "action", "eval")
        theirs, ours = (outcome(KINDS[kind], lambda m, code=code: eval(code, NAMES, {"m": m}), wrap) for wrap in (False, True))
        mine = {"module", "_runtime"} & set(text.replace(",", " ").replace(".", " ").split())
        if mine and isinstance(theirs, tuple) and theirs[0] is AttributeError:
            continue  # the wrapped module's own, where it has no such attributes itself
        assert ours == theirs, text


def test_statements_reach_the_module() -> None:
    for wrap in (False, True):
        model = Special()
        if wrap:
            model = rekindle.Module(model)
        with model as inside:
            assert inside is model
            assert model.inside
        same = model
        model += 5
        assert same is model
        assert model.added == 5
        layers = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 2))
        if wrap:
            layers = rekindle.Module(layers)
        del layers[0]
        assert [name for name, _ in layers.named_parameters()] == ["0.weight", "0.bias"]
        assert len(layers) == 1
        assert layers[0].out_features == 2


def test_the_wrapped_class_is_told_of_no_subclass() -> None:
    made = [*Told.made]
    for kind in (WithMetaclass, Registered, Abstract, Abstract[int]):
        model = rekindle.Module(kind())
        assert isinstance(model, Net)
        assert model(torch.ones(2, 4)).shape == (2, 2)
        assert isinstance(model, rekindle.Module)
    assert Told.made == made


def test_a_class_is_made_once_and_dies_with_its_objects() -> None:
    class Local(Net):
        pass

    first, second = rekindle.Module(Local()), rekindle.Module(Local())
    assert type(first) is type(second)
    dead = weakref.ref(type(first)), weakref.ref(Local)
    del first, second, Local
    gc.collect()
    assert [one() for one in dead] == [None, None]


def test_a_finalizer_runs_once() -> None:
    ended: list[int] = []

    class Ends(Net):
        def __del__(self) -> None:
            ended.append(1)

    model = rekindle.Module(Ends())
    del model
    gc.collect()
    assert ended == [1]


def test_the_wrapped_module_goes_with_its_wrapper() -> None:
    model = rekindle.Module(Net())
    dead = weakref.ref(rekindle.unwrap(model)), weakref.ref(model)
    gc.disable()
    del model
    gc.enable()
    assert [one() for one in dead] == [None, None]


def test_a_class_of_ones_own_may_make_what_it_wraps() -> None:
    class Mine(rekindle.Module):
        def __init__(self, width: int) -> None:
            super().__init__(nn.Linear(4, width))
            self.also = 3

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * self.also

    model = Mine(5)
    torch.testing.assert_close(model(torch.ones(2, 4)), model.module(torch.ones(2, 4)) * 3)
    assert rekindle.status(model).source == "export"
    assert model.module.also == 3


def test_a_class_changed_on_the_module_is_the_wrappers() -> None:
    class Doubled(Net):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * 2

        def __len__(self) -> int:
            return 7

    module = Net()
    model = rekindle.Module(module)
    before = model(torch.ones(2, 4))
    module.__class__ = Doubled
    torch.testing.assert_close(model(torch.ones(2, 4)), before * 2)
    assert len(model) == 7
    model.__class__ = Net
    assert type(module) is Net
    torch.testing.assert_close(model(torch.ones(2, 4)), before)
    assert not hasattr(model, "__len__")
