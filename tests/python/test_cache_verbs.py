"""rekindle.cache has the verbs of the command line, and the exported model opens elsewhere."""

from __future__ import annotations

import json
import pathlib
import subprocess

import onnx
import pytest
import rekindle
import torch
from rekindle import _native
from torch import nn


@pytest.fixture
def filled(tmp_path):
    """(directory, id) of a cache with one entry of a trained module."""
    model = rekindle.Module(nn.Sequential(nn.Linear(4, 3), nn.ReLU()), rekindle.Options(cache_dir=str(tmp_path)))
    model(torch.randn(2, 4)).sum().backward()
    assert rekindle.status(model).source == "export"
    return tmp_path, rekindle.cache.ls(tmp_path)[0]["id"]


def command(*words):
    program = pathlib.Path(_native.__file__).resolve().parents[1] / "cli" / "rekindle"
    return subprocess.run([program, *map(str, words)], capture_output=True, text=True, check=True).stdout


def test_ls_and_stats_have_the_names_of_the_command(filled):
    directory, id = filled
    listed = json.loads(command("cache", "ls", "--json", "--dir", directory))["entries"][0]
    assert listed["id"] == id
    assert set(listed) == set(rekindle.cache.ls(directory)[0])
    stats = json.loads(command("cache", "stats", "--json", "--dir", directory))
    assert set(stats) - {"dir"} == set(rekindle.cache.stats(directory))


def test_a_pinned_entry_is_spared(filled):
    directory, id = filled
    rekindle.cache.pin(id[:6], cache_dir=directory)
    report = rekindle.cache.prune(directory, max_size=0)
    assert report["removed"] == [] and report["spared"][0]["why"] == "pinned"
    rekindle.cache.unpin(id, cache_dir=directory)
    assert rekindle.cache.prune(directory, max_size="1K", dry_run=True)["spared"][0]["why"] == "in use"
    assert rekindle.cache.prune(directory, not_current_torch=True)["spared"] == []
    with pytest.raises(_native.InvalidArgument, match="policy"):
        rekindle.cache.prune(directory)
    with pytest.raises(_native.NotFound):
        rekindle.cache.pin("ffff", cache_dir=directory)


def test_a_bundle_carries_a_hit(filled, tmp_path_factory):
    directory, id = filled
    bundle = tmp_path_factory.mktemp("bundle") / "all"
    assert rekindle.cache.pack(bundle, cache_dir=directory) == 1
    other = tmp_path_factory.mktemp("other")
    assert rekindle.cache.unpack(bundle, other) == {"added": 1, "known": 0, "unsound": 0}
    assert rekindle.cache.ls(other)[0]["id"] == id
    model = rekindle.Module(nn.Sequential(nn.Linear(4, 3), nn.ReLU()), rekindle.Options(cache_dir=str(other)))
    model(torch.randn(2, 4)).sum().backward()
    assert rekindle.status(model).source == "local"


def test_verify_finds_and_repairs_a_damaged_entry(filled):
    directory, id = filled
    assert rekindle.cache.verify(directory)["problems"] == []
    assert command("cache", "verify", "--deep", "--dir", directory).startswith("1 entries listed, 1 read")
    path = directory / "objects" / id
    path.write_bytes(path.read_bytes()[:-20])
    assert rekindle.cache.verify(directory)["left"] > 0
    assert rekindle.cache.verify(directory, repair=True)["left"] == 0
    assert rekindle.cache.verify(directory)["problems"] == []


def test_inspect_shows_graph_and_contract(filled):
    directory, id = filled
    page = command("cache", "inspect", id[:8], "--graph", "--contract", "--dir", directory)
    assert "rekindle::Linear(" in page and "ReluGradient" in page
    shown = json.loads(command("cache", "inspect", id, "--graph", "--contract", "--json", "--dir", directory))
    assert shown["contract"]["grad"] is True
    assert shown["graph"] in page


@pytest.mark.parametrize("graph", [[], ["--joint"]])
def test_an_extracted_model_passes_the_checker(filled, tmp_path, graph):
    directory, id = filled
    command("cache", "extract", id, *graph, "-o", tmp_path / "model.onnx", "--dir", directory)
    model = onnx.load(str(tmp_path / "model.onnx"))
    onnx.checker.check_model(model, full_check=True)
    assert {node.op_type for node in model.graph.node} >= {"Linear", "Relu"}
