"""Harmless changes of a model and of what it imports keep the hit."""

from __future__ import annotations

import pytest
import torch
from fingerprint_support import HELPER, SUBJECT, World, changes, edited

HARMLESS = {
    "comment": ("# a comment", "# another comment, longer"),
    "blank lines": ("class Block", "\n\n\nclass Block"),
    "white space": ("y = self.drop(self.linear(x)) * self.mask + self.table",
                    "y = (self.drop(self.linear( x ))\n             * self.mask + self.table)"),
    "docstring edited": ('"""Run."""', '"""Run the model on a batch."""'),
    "module docstring": ('"""The model under test."""', '"""A model."""'),
    "annotation": ("def helper(self, x):", "def helper(self, x: torch.Tensor) -> torch.Tensor:"),
    "order of a set literal": ('{"alpha", "beta", "gamma"}', '{"gamma", "alpha", "beta"}'),
    "function moved": ("apply_gain = make_gain(2.0)\n", "def unused(): ...\napply_gain = make_gain(2.0)\n"),
    "name deleted again": ("    TEMPERATURE = 1.0\n", "    x = 0\n    del x\n    TEMPERATURE = 1.0\n"),
    "unused import": ("import math\n", "import math\nimport json\n"),
}  # fmt: skip


@pytest.mark.parametrize("name", HARMLESS)
def test_a_harmless_edit_keeps_the_hit(name: str) -> None:
    world = World()
    before, observed = world.describe(), world.record()
    assert changes(before, observed, World(subject=edited(SUBJECT, *HARMLESS[name]))) is None


def test_a_moved_file_keeps_the_hit() -> None:
    world = World(path="/here")
    before, observed = world.describe(), world.record()
    assert changes(before, observed, World(path="/somewhere/else")) is None


def test_an_unrelated_global_of_an_imported_module_keeps_the_hit() -> None:
    world = World()
    before, observed = world.describe(), world.record()
    assert changes(before, observed, World(helper=edited(HELPER, "UNUSED = 1", "UNUSED = 2"))) is None


def test_running_the_model_keeps_the_hit() -> None:
    world = World()
    before, observed = world.describe(), world.record()
    for _ in range(2):
        world.model(*world.args).sum().backward()
    assert changes(before, observed, world) is None


def test_values_of_weights_keep_the_hit() -> None:
    world = World()
    before = world.describe()
    with torch.no_grad():
        for tensor in [*world.model.parameters(), *world.model.buffers()]:
            tensor.add_(1.0)
    assert before.difference(world.describe()) is None
