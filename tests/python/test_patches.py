"""Tests that the key notices each way of patching torch, and forgets it when it is undone, however often it has looked before."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from rekindle.key.patches import add_patches
from rekindle.key.values.walker import Walker


def leaves() -> list[Any]:
    """Returns the leaves of what is patched now."""
    walker = Walker()
    add_patches(walker)
    return walker.leaves


def _same(x: torch.Tensor, *_: Any, **__: Any) -> torch.Tensor:
    return x


PATCHES: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "a function of C": lambda patch: patch.setattr(torch, "relu", _same),
    "one function of C for another": lambda patch: patch.setattr(torch, "relu", torch.selu),
    "a function of Python": lambda patch: patch.setattr(torch.nn.functional, "softmax", _same),
    "the code of a function": lambda patch: patch.setattr(torch.nn.functional.softmax, "__code__", _same.__code__),
    "a number": lambda patch: patch.setattr(torch, "pi", 3.0),
    "a lambda": lambda patch: patch.setattr(torch, "sigmoid", lambda x: x),
    "a static method": lambda patch: patch.setattr(torch.autograd.Function, "forward", staticmethod(_same)),
    "a class method": lambda patch: patch.setattr(torch.autograd.Function, "apply", classmethod(_same)),
    "something new": lambda patch: patch.setattr(torch.Tensor, "doubled", _same, raising=False),
    "an operator of arithmetic": lambda patch: patch.setattr(torch.Tensor, "__add__", _same),
}


@pytest.mark.parametrize("name", PATCHES)
def test_a_patch_gives_a_leaf_until_it_is_undone(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = leaves()
    assert leaves() == before  # what it has settled gives none either
    for _ in range(2):
        with monkeypatch.context() as patch:
            PATCHES[name](patch)
            assert leaves() != before
        assert leaves() == before
