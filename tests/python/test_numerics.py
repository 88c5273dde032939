"""numerics="eager": results, gradients and trained parameters are those of eager to the last bit."""

from __future__ import annotations

import copy
import pathlib
from typing import Any

import pytest
import rekindle
import torch
from comparison import leaves_of, seed_all
from model_zoo import MODELS
from test_ops import CASES, Trial, draw, step
from torch.utils._pytree import tree_leaves

# What the default rounds, or might round, in another way than eager, in results or gradients.
_OPERATORS = """
    add alpha|addcmul|rsqrt|square|matmul (2, 3) (5, 3, 4)|matmul (5, 2, 3) (1, 3, 4)|matmul (1, 2, 3) (5, 3, 4)
    matmul (3,) (5, 3, 4)|repeat into more dimensions|cross_entropy mean|cross_entropy sum|cross_entropy none
    cross_entropy ignoring|cross_entropy ignoring class 1|cross_entropy smoothed|cross_entropy smoothed, ignoring
    cross_entropy of sequences|cross_entropy of images|cross_entropy weighted|cross_entropy weighted, smoothed
    cross_entropy, not contiguous|cross_entropy and its scores|mse_loss|LayerNorm|LayerNorm of two dimensions
    LayerNorm without bias|LayerNorm far from zero|layer_norm of inputs|layer_norm, frozen weight|layer_norm of strided
    RMS norm by hand|RMS norm in float32|attention of rows that are not dense|Tied|Result|TransformerEncoderLayer
    TransformerEncoderLayer with dropout
"""
_CASES = {case.name: case for case in CASES}
_TRAINED = ("gpt2", "bert", "t5", "llama", "vit", "unet")
_STEPS = 4


def _names() -> list[str]:
    return [name.strip() for line in _OPERATORS.strip().splitlines() for name in line.split("|")]


def _eagers(tmp_path: pathlib.Path) -> rekindle.Options:
    return rekindle.Options(cache_dir=tmp_path, numerics="eager", fallback="error", log="off")


def _assert_same_bits(ours: list[Any], theirs: list[Any]) -> None:
    assert len(ours) == len(theirs)
    for mine, its in zip(ours, theirs, strict=True):
        assert isinstance(mine, torch.Tensor) == isinstance(its, torch.Tensor)
        if isinstance(its, torch.Tensor):
            torch.testing.assert_close(mine, its, rtol=0, atol=0, equal_nan=True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", _names())
def test_an_operator_is_eagers_to_the_last_bit(name: str, tmp_path: pathlib.Path) -> None:
    case = _CASES[name]
    for dtype in case.dtypes:
        trial = Trial(case, dtype, tmp_path)
        wrapped = rekindle.Module(trial.module, _eagers(tmp_path))
        for seed in (1, 2):
            ours, theirs = (step(model, draw(case, dtype, seed), seed) for model in (wrapped, trial.eager))
            _assert_same_bits(ours.outputs, theirs.outputs)
            _assert_same_bits([*ours.gradients.values()], [*theirs.gradients.values()])


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", _TRAINED)
def test_a_model_is_trained_to_the_same_bits(name: str, tmp_path: pathlib.Path) -> None:
    (model,) = (model for model in MODELS if model.name == name)
    pytest.importorskip(model.package)
    eager = model.make(0.1).train()
    wrapped = rekindle.Module(copy.deepcopy(eager), _eagers(tmp_path))
    losses = []
    for trained in (wrapped, eager):
        optimizer = torch.optim.SGD(trained.parameters(), lr=1e-2, momentum=0.9)
        losses.append([])
        for i in range(_STEPS):
            seed_all(i)
            inputs = model.inputs(*model.sizes[i % 2])
            results = [leaf for leaf in leaves_of(trained(**inputs)) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
            loss = sum(result.square().mean() for result in results)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            losses[-1].append(loss.detach())
    _assert_same_bits(*losses)
    _assert_same_bits(tree_leaves(wrapped.state_dict()), tree_leaves(eager.state_dict()))
    assert rekindle.status(wrapped).eager_calls == 0
