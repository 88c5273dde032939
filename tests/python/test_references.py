"""Live objects are found again by what leads to them, without running code."""

from __future__ import annotations

import functools
import json
from typing import Any

import pytest
import torch
from rekindle.functions.references import follow, path_to, show
from torch import nn

REGISTRY: dict[str, Any] = {"group": object(), "nested": [1, (2, object())]}


class Named(torch.autograd.Function):
    class Inner:
        pass


def made() -> Any:
    class Local(torch.autograd.Function):
        pass

    handle = object()

    def use() -> Any:
        return Local, handle

    return use


class Config:
    def __init__(self) -> None:
        self.handle = object()


class Model(nn.Module):
    shared = object()

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(2, 2), nn.Sequential(nn.Linear(2, 2))])
        self.use = made()
        self.partial = functools.partial(made(), 1)
        self.config = Config()
        self.options = {"a": [None, {"b": object()}]}


MODEL = Model()
LOCAL, HANDLE = MODEL.use()


@pytest.mark.parametrize(
    "target",
    [
        Named, Named.Inner, made, MODEL, MODEL.layers[1][0], LOCAL, HANDLE, MODEL.partial.func()[0], MODEL.config,
        MODEL.config.handle, MODEL.options["a"][1]["b"], Model.shared, REGISTRY["group"], REGISTRY["nested"][1][1],
    ],
    ids=range(14),
)  # fmt: skip
def test_what_the_model_reaches_is_found_again(target: Any) -> None:
    path = path_to(target, MODEL)
    assert path is not None
    assert follow(json.loads(json.dumps(path)), MODEL) is target


def test_paths_read_like_python() -> None:
    assert show(path_to(MODEL.config.handle, MODEL) or []) == "model.config.handle"
    assert show(path_to(MODEL.options["a"][1]["b"], MODEL) or []) == "model.options['a'][1]['b']"
    assert show(path_to(Named.Inner, MODEL) or []) == f"{__name__}.Named.Inner"


def test_what_nothing_reaches_is_not_found() -> None:
    assert path_to(object(), MODEL) is None
    assert path_to(made()()[0], MODEL) is None  # a local class that only this test holds


@pytest.mark.parametrize(
    "path",
    [
        [["module", "no.such.module"]], [["model"], ["attribute", "missing"]], [["model"], ["attribute", "config"], ["item", 0]],
        [["model"], ["attribute", "use"], ["cell", 99]], [["model"], ["attribute", "options"], ["item", "z"]],
        [["model"], ["class", 99]], [["model"], ["function"]],
    ],
)  # fmt: skip
def test_a_path_that_leads_nowhere_says_where_it_ends(path: Any) -> None:
    with pytest.raises(LookupError, match="leads nowhere"):
        follow(path, MODEL)


def test_following_runs_no_code_of_the_user() -> None:
    class Trap:
        def __getattr__(self, name: str) -> Any:
            raise AssertionError("must not run")

        @property
        def inner(self) -> Any:
            raise AssertionError("must not run")

    model = Model()
    model.trap = Trap()
    with pytest.raises(LookupError):
        follow([["model"], ["attribute", "trap"], ["attribute", "inner"]], model)
    assert path_to(object(), model) is None


def test_what_has_imported_the_module_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    class Loader:
        def __init__(self) -> None:
            self.session = {"items": [object() for _ in range(60_000)]}

    monkeypatch.setitem(globals(), "__loader__", Loader())
    monkeypatch.setitem(globals(), "ZZZ_REGISTRY", {"nested": [1, (2, deep := object())]})
    path = path_to(deep, MODEL)
    assert path is not None
    assert show(path).endswith("ZZZ_REGISTRY['nested'][1][1]")
