"""Training scripts as people write them, with one line that wraps the model: equal to eager, with a cold and a warm cache."""

from __future__ import annotations

import importlib.util
import json
import os
import pathlib
import random
import socket
import warnings
from typing import Any

import example_scripts as examples
import numpy as np
import pytest
import python_process
import rekindle
import torch
from torch.utils._pytree import tree_leaves

RANKS = 2
# Function: packages that it needs, the relative error that sums in another order grow to, and why a first call runs in eager.
EXAMPLES: dict[str, tuple[tuple[str, ...], float, list[str]]] = {
    "transformers_trainer": (("transformers", "accelerate"), 1e-3, ["state_mutated"]),  # completes its configuration
    "accelerate_loop": (("accelerate",), 2e-2, []),
    "lightning_module": (("lightning",), 1e-3, []),
    "vision_with_amp": (("torchvision",), 5e-2, []),
    "adversaries": ((), 1e-3, []),
    "contrastive_teacher": ((), 1e-3, []),
    "policy_gradient": ((), 1e-3, []),
    "recurrent_lengths": ((), 1e-3, []),
}


def need(packages: tuple[str, ...]) -> None:
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        pytest.skip(f"NOT RUN: {', '.join(missing)} not installed; requirements/dev.txt has it")


def start_anew(packages: tuple[str, ...]) -> None:
    """The state of a new process, as far as an example depends on it."""
    torch.manual_seed(3), random.seed(3), np.random.seed(3)
    if "accelerate" in packages:
        from accelerate.state import AcceleratorState

        AcceleratorState._reset_state(reset_partial_state=True)


def assert_close(ours: Any, theirs: Any, error: float, kind: str) -> None:
    mine, other = tree_leaves(ours), tree_leaves(theirs)
    assert len(mine) == len(other), kind
    for left, right in zip(mine, other, strict=True):
        if isinstance(right, (torch.Tensor, float)):
            torch.testing.assert_close(left, right, rtol=error, atol=error, msg=lambda text: f"{kind}: {text}")
        else:
            assert left == right, kind


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_trains_as_in_eager(name: str, tmp_path: pathlib.Path) -> None:
    packages, error, first_calls = EXAMPLES[name]
    need(packages)
    wrapped: list[rekindle.Module] = []

    def wrap(module: torch.nn.Module) -> torch.nn.Module:
        if kind == "eager":
            return module
        wrapped.append(rekindle.Module(module, rekindle.Options(log="error")))
        return wrapped[-1]

    expected = None
    for kind in ("eager", "cold", "warm"):
        wrapped.clear()
        start_anew(packages)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = getattr(examples, name)(wrap, tmp_path / kind)
        if expected is None:
            expected = found
        assert_close(found, expected, error, kind)
        rekindle.lookup.store.flush()
    for model in wrapped:
        status = rekindle.status(model)
        assert status.source in ("local", "memory")  # the last size may be one that the graph of another serves
        assert (status.exports, [code for code, _ in status.bypass]) == (0, first_calls)
        assert (status.eager_calls, status.hits > 0) == (len(first_calls), True)


_JOB = """
import copy, json, os, sys
import example_scripts as examples
import rekindle, torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
rank = int(os.environ["RANK"])
dist.init_process_group("gloo")
torch.manual_seed(0)
module = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 3))
found = {}
for kind in ("eager", "cold", "warm"):
    own = copy.deepcopy(module)
    model = own if kind == "eager" else rekindle.Module(own, rekindle.Options(log="error"))
    model = DistributedDataParallel(model, bucket_cap_mb=0.0001)
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    losses = []
    for step in range(4):
        seed = 10 * step + rank
        loss = nn.functional.cross_entropy(model(examples.numbers(4, 8, seed=seed)), examples.labels(4, 3, seed=seed))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    rekindle.lookup.store.flush()
    dist.barrier()
    found[kind] = {"losses": losses, "sums": [float(p.double().sum()) for p in own.parameters()]}
    if kind != "eager":
        status = rekindle.status(model.module)
        found[kind].update(source=status.source, bypass=status.bypass, eager_calls=status.eager_calls)
print("FOUND " + json.dumps(found), flush=True)
dist.destroy_process_group()
"""


def test_data_parallel_ranks_train_as_in_eager() -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {**os.environ, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "WORLD_SIZE": str(RANKS)}
    ranks = [
        python_process.Process("-c", _JOB, env={**environment, "RANK": str(rank)}, cwd=pathlib.Path(__file__).parent)
        for rank in range(RANKS)
    ]
    outputs = [rank.communicate(timeout=180)[0] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0] * RANKS
    for output in outputs:
        found = json.loads(output.partition("FOUND ")[2].splitlines()[0])
        for kind, sources in (("cold", ("export", "local", "remote")), ("warm", ("local", "remote"))):
            ours, theirs = found[kind], found["eager"]
            assert ours["losses"] == pytest.approx(theirs["losses"], rel=1e-4), kind
            assert ours["sums"] == pytest.approx(theirs["sums"], rel=1e-3, abs=1e-4), kind
            assert (ours["bypass"], ours["eager_calls"]) == ([], 0)
            assert ours["source"] in sources
