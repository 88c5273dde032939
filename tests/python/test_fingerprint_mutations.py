"""Every change of an input of the export is noticed."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from fingerprint_support import HELPER, HELPER_EDITS, SUBJECT, SUBJECT_EDITS, World, changes, edited, load
from rekindle.recording.observations import verify
from torch import nn


def test_the_forward_of_the_subject_is_recorded_and_verifies() -> None:
    world = World()
    observed = world.record()
    kinds = {kind for kind, *_ in observed}
    assert {"global", "code", "library", "env", "import"} <= kinds
    assert ["env", "", "SUBJECT_BRANCH", None] in observed
    assert ["import", "subject_missing", "", None] in observed
    assert verify(observed, world.describe().places) is None
    assert changes(world.describe(), observed, World()) is None


@pytest.mark.parametrize("name", SUBJECT_EDITS)
def test_an_edit_of_the_model_is_noticed(name: str) -> None:
    _expect_noticed(World(), lambda: World(subject=edited(SUBJECT, *SUBJECT_EDITS[name])))


@pytest.mark.parametrize("name", HELPER_EDITS)
def test_an_edit_of_an_imported_module_is_noticed(name: str) -> None:
    _expect_noticed(World(), lambda: World(helper=edited(HELPER, *HELPER_EDITS[name])))


def _expect_noticed(world: World, change: Callable[[], World]) -> None:
    before, observed = world.describe(), world.record()
    text = changes(before, observed, change())
    assert text is not None and "->" in text


def _set(path: str, value: Any) -> Callable[[World], None]:
    def change(world: World) -> None:
        *parents, name = path.split(".")
        target: Any = world
        for parent in parents:
            target = getattr(target, parent)
        setattr(target, name, value)

    return change


def _call(path: str, *args: Any, **kwargs: Any) -> Callable[[World], None]:
    def change(world: World) -> None:
        target: Any = world
        for name in path.split("."):
            target = getattr(target, name)
        target(*args, **kwargs)

    return change


def _tie(world: World) -> None:
    world.model.second.linear.weight = world.model.first.linear.weight


def _share_storage(world: World) -> None:
    world.model.second.linear.weight.data = world.model.first.linear.weight.data


def _override_forward(world: World) -> None:
    block = world.model.first
    block.forward = lambda x: nn.Module.__getattr__(block, "linear")(x)


def _strided(world: World) -> None:
    world.model.head.weight.data = world.model.head.weight.data.t()


def _own_config(world: World) -> None:
    world.model.second.config = world.subject.Config()


def _reorder(world: World) -> None:
    world.model._modules["first"] = world.model._modules.pop("first")


def _hook(*_: Any) -> None:
    return None


LIVE = {
    "forward hook": lambda w: w.model.first.register_forward_hook(_hook),
    "forward pre-hook": lambda w: w.model.head.register_forward_pre_hook(_hook),
    "eval": _call("model.eval"),
    "one submodule in eval": _call("model.first.drop.eval"),
    "instance attribute": _set("model.first.scale", 2.0),
    "instance attribute 1.0 to 1": _set("model.first.scale", 1),
    "instance attribute 1.0 to True": _set("model.first.scale", True),
    "instance attribute None to 0.0": _set("model.second.maybe", 0.0),
    "instance attribute added": _set("model.first.new", 0),
    "config field": _set("model.config.act", "tanh"),
    "config list item": lambda world: world.model.config.sizes.append(8),
    "config dict item": lambda world: world.model.config.extra.update(key=1),
    "config no longer shared": _own_config,
    "attribute of a helper object": _set("model.first.tool.step", 2.0),
    "list attribute": _set("model.first.sizes", [1, 3]),
    "list to tuple": _set("model.first.sizes", (1, 2)),
    "plain tensor written in place": lambda world: world.model.first.mask.zero_(),
    "forward overridden on the instance": _override_forward,
    "class patched": lambda world: setattr(world.subject.Block, "fixed", staticmethod(lambda x: x)),
    "code of a method swapped": lambda world: setattr(world.subject.Net.helper, "__code__", (lambda self, x: x).__code__),
    "defaults of a method swapped": lambda world: setattr(world.subject.Net.forward, "__defaults__", (3.0,)),
    "layer class patched": lambda world: setattr(world.model.first.norm, "eps", 1.0),
    "layer replaced": _set("model.first.drop", nn.Identity()),
    "child order": _reorder,
    "weights tied": _tie,
    "weights sharing storage": _share_storage,
    "parameter frozen": _call("model.first.linear.weight.requires_grad_", False),
    "parameter dtype": _call("model.head.double"),
    "parameter shape": _set("model.head", nn.Linear(4, 5, bias=False)),
    "parameter removed": _set("model.first.linear.bias", None),
    "parameter strides": _strided,
    "parameter on meta": _call("model.head.to", "meta"),
    "parameter attribute": _set("model.head.weight.tag", "sharded"),
    "buffer dtype": _set("model.first.table", torch.ones(4, dtype=torch.float64)),
    "buffer to None": _set("model.first.table", None),
    "parametrization": lambda world: nn.utils.parametrize.register_parametrization(world.model.head, "weight", nn.Identity()),
    "input dtype": _set("args", (torch.zeros(2, 4, dtype=torch.float64),)),
    "input sizes": _set("args", (torch.zeros(3, 4),)),
    "input strides": _set("args", (torch.zeros(4, 2).t(),)),
    "input requires grad": _set("args", (torch.zeros(2, 4, requires_grad=True),)),
    "input device": _set("args", (torch.zeros(2, 4, device="meta"),)),
    "input in a list": _set("args", ([torch.zeros(2, 4)],)),
    "scalar input": _set("kwargs", {"factor": 2.0}),
    "scalar input type": _set("kwargs", {"factor": 1}),
    "option": _set("options", {"opset": 21}),
    "option type": _set("options", {"opset": "20"}),
}


@pytest.mark.parametrize("name", LIVE)
def test_a_live_change_of_the_call_is_in_the_fields(name: str) -> None:
    before = World().describe()
    world = World()
    LIVE[name](world)
    assert before.difference(world.describe()) is not None
    assert before.digest() != world.describe().digest()


@contextlib.contextmanager
def _default_dtype() -> Iterator[None]:
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@contextlib.contextmanager
def _default_device() -> Iterator[None]:
    torch.set_default_device("meta")
    yield
    torch.set_default_device(None)


@contextlib.contextmanager
def _setting(setter: Callable[[Any], Any], value: Any, old: Any) -> Iterator[None]:
    setter(value)
    yield
    setter(old)


AMBIENT = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "anomaly mode": lambda: torch.autograd.set_detect_anomaly(True),
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "autocast dtype while off": lambda: torch.autocast("cpu", torch.float16, enabled=False),
    "autocast of another device": lambda: _setting(
        lambda value: torch.set_autocast_dtype("cuda", value), torch.bfloat16, torch.float16
    ),
    "autocast cache": lambda: _setting(torch.set_autocast_cache_enabled, False, True),
    "default dtype": _default_dtype,
    "default device": _default_device,
    "deterministic": lambda: _setting(torch.use_deterministic_algorithms, True, False),
    "matmul precision": lambda: _setting(torch.set_float32_matmul_precision, "high", "highest"),
    "math attention off": lambda: torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION),
    "mkldnn off": lambda: torch.backends.mkldnn.flags(enabled=False),
    "cudnn benchmark": lambda: torch.backends.cudnn.flags(benchmark=True),
}


@pytest.mark.parametrize("name", AMBIENT)
def test_an_ambient_change_is_in_the_fields(name: str) -> None:
    torch.set_float32_matmul_precision("highest")  # torch tells a default from the same value set by hand
    world = World()
    before = world.describe()
    with AMBIENT[name]():
        assert before.difference(world.describe()) is not None
    assert before.difference(world.describe()) is None


def test_an_environment_variable_is_noticed_when_set_changed_and_unset(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("SUBJECT_BRANCH", raising=False)
    unset = World().record()
    monkeypatch.setenv("SUBJECT_BRANCH", "0")
    text = verify(unset)
    assert text == "environment variable SUBJECT_BRANCH changed: absent -> '0'"
    zero = World().record()
    monkeypatch.setenv("SUBJECT_BRANCH", "1")
    assert verify(zero) == "environment variable SUBJECT_BRANCH changed: '0' -> '1'"
    monkeypatch.delenv("SUBJECT_BRANCH")
    assert verify(zero) == "environment variable SUBJECT_BRANCH changed: '0' -> absent"
    monkeypatch.setenv("SUBJECT_OTHER", "")
    assert "SUBJECT_OTHER" in (verify(unset) or "")


def test_a_patched_function_of_torch_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    before, observed = world.describe(), world.record()
    monkeypatch.setattr(torch.nn.functional, "silu", lambda x: x)
    assert "silu" in (verify(observed) or "")
    assert "silu" in (before.difference(world.describe()) or "")


def test_a_function_patched_where_only_torch_calls_it_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = World().describe()
    monkeypatch.setattr(torch.nn.functional, "linear", lambda x, weight, bias=None: x)
    assert "patched.torch.nn.functional.linear" in (before.difference(World().describe()) or "")


def test_a_patched_method_of_a_layer_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = World().describe()
    monkeypatch.setattr(nn.LayerNorm, "forward", lambda self, x: x)
    assert "norm.class" in (before.difference(World().describe()) or "")


def test_a_patched_tensor_method_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    before = World().describe()
    monkeypatch.setattr(torch.Tensor, "clamp", lambda self, low, high: self)
    assert "clamp" in (before.difference(World().describe()) or "")


def test_a_patched_builtin_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    observed = World().record()
    monkeypatch.setattr("builtins.sum", lambda items: 0)
    assert "sum" in (verify(observed) or "")


def test_a_module_that_appears_after_a_failed_import_is_noticed(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    observed = World().record()
    (tmp_path / "subject_missing.py").write_text("def run(x): return x\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    assert verify(observed) == "module subject_missing changed: absent -> present"


def test_a_function_bound_to_another_name_is_noticed() -> None:
    world = World()
    observed = world.record()
    world.subject.scaled = world.subject.clamp
    assert "subject.scaled" in (verify(observed) or "")


def test_two_calls_with_equal_reprs_but_different_code_differ() -> None:
    text = "from torch import nn\nclass Net(nn.Module):\n    def forward(self, x): return x {} 1\n"
    plus = load("subject", text.format("+"))
    first = World()
    first.model = plus.Net()
    second = World()
    second.model = load("subject", text.format("-")).Net()
    assert repr(first.model) == repr(second.model)
    assert first.describe().digest() != second.describe().digest()
