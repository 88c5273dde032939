"""Nothing is left of a dropped module, and a step leaves and allocates only its results; scripts/leaks is the long form."""

from __future__ import annotations

import gc
import sys

import pytest
import rekindle
import torch
from leak_checks import MODELS, blocks_of_a_kept_call, growth_of_steps, growth_of_wraps, passing_bytes
from rekindle.process.garbage import collector_paused, no_full_collection
from torch import nn


@pytest.mark.parametrize("name", ["buffers", "parts"])
def test_wraps_leave_nothing(name: str) -> None:
    grown = growth_of_wraps(40, MODELS[name])
    assert (grown["tensors"], grown["modules"], grown["files"]) == (0, 0, 0)
    assert grown["blocks"] <= 40 * 10, (
        "Python's own caches grow by a little, and end; a module that stayed would be hundreds of blocks"
    )


@pytest.mark.parametrize("name", ["buffers", "parts"])
def test_steps_leave_nothing_even_without_a_garbage_collector(name: str) -> None:
    assert growth_of_steps(300, MODELS[name])["blocks"] < 100


def test_a_kept_call_keeps_its_results_only() -> None:
    assert blocks_of_a_kept_call(MODELS["perceptron"]) == pytest.approx(1, abs=0.3), "one tensor"
    # Copies of what the graph wrote over, and what watches the statistics for a write before the backward, are none of Python's.
    assert blocks_of_a_kept_call(MODELS["buffers"]) == pytest.approx(1, abs=0.3), "one tensor"


def test_what_a_step_allocates_in_python_does_not_grow_with_the_model() -> None:
    def layers(count: int) -> nn.Module:
        torch.manual_seed(0)
        return nn.Sequential(*(nn.Linear(4, 4) for _ in range(count)))

    few, many = passing_bytes(lambda: layers(2)), passing_bytes(lambda: layers(12))
    assert few < 2000, "the key of the call and a list of its tensors"
    assert many - few <= 20 * 2 * 8 * 3, "no more than a few lists of pointers to its parameters"


def test_an_export_leaves_no_tensor_to_the_garbage_collector() -> None:
    layers = [layer for _ in range(4) for layer in (nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU())]
    model = rekindle.Module(nn.Sequential(*layers), rekindle.Options(log="off"))
    gc.collect()
    gc.disable()
    try:
        model(torch.randn(8, 64)).sum().backward()
        gc.set_debug(gc.DEBUG_SAVEALL)
        gc.collect()
        assert [tuple(x.shape) for x in gc.garbage if isinstance(x, torch.Tensor)] == []
    finally:
        gc.set_debug(0)
        gc.garbage.clear()
        gc.enable()


@pytest.mark.skipif(sys.version_info >= (3, 14), reason="the collector is incremental: no collection looks at all objects")
def test_young_garbage_is_collected_where_all_objects_are_not_looked_at() -> None:
    generations: list[int] = []

    def note(phase: str, about: dict[str, int]) -> None:
        if phase == "start":
            generations.append(about["generation"])

    before, many = gc.get_threshold(), len(gc.get_objects()) // 2  # a quarter more than there were ask for a full collection
    gc.set_threshold(50, 1, 1)
    gc.callbacks.append(note)
    try:
        with no_full_collection():
            generations.clear()  # a full collection may have been due before
            young = [[i] for i in range(many)]
        assert 1 in generations and 2 not in generations
        old = [[i] for i in range(many)]
        assert old and 2 in generations
        assert gc.get_threshold() == (50, 1, 1)
        with no_full_collection():
            gc.set_threshold(60, 1, 1)
        assert young and gc.get_threshold() == (60, 1, 1)
    finally:
        gc.callbacks.remove(note)
        gc.set_threshold(*before)


def test_a_pause_leaves_the_garbage_collector_as_it_was() -> None:
    with pytest.raises(KeyError), collector_paused():
        assert not gc.isenabled()
        raise KeyError
    assert gc.isenabled()
    gc.disable()
    try:
        with collector_paused():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
