"""`rekindle.optim.fuse` with `max_norm`: gradients are measured, then clipped as `clip_grad_norm_` clips them."""

from __future__ import annotations

import copy
import math
from pathlib import Path

import pytest
import rekindle
import torch
from test_fused_optimizer import OPTIMIZERS, assert_same, loss_of, mlp, values_of, wrapped
from torch import nn
from torch.nn.utils import clip_grad_norm_


def clipped_step(
    model: nn.Module, optimizer: torch.optim.Optimizer, x: torch.Tensor, max_norm: float, norm_type: float = 2.0
) -> torch.Tensor:
    """Trains a step of the model without fusing, and returns the norm of the gradients of the optimizer's parameters."""
    model.zero_grad()
    loss_of(model, x).backward()
    norm = clip_grad_norm_([one for group in optimizer.param_groups for one in group["params"]], max_norm, norm_type)
    optimizer.step()
    return norm


@pytest.mark.parametrize("norm_type", [2.0, 1.0, math.inf])
@pytest.mark.parametrize("max_norm", [1e-3, 1e3])
def test_clipping_takes_two_passes_and_gives_the_same(tmp_path: Path, max_norm: float, norm_type: float) -> None:
    model, x = mlp(), torch.randn(4, 8)
    plain, module = wrapped(copy.deepcopy(model), tmp_path), wrapped(copy.deepcopy(model), tmp_path)
    optimizer = OPTIMIZERS["momentum"](plain.parameters())
    fused = rekindle.optim.fuse(module, OPTIMIZERS["momentum"](module.parameters()), max_norm=max_norm, norm_type=norm_type)
    for _ in range(5):
        norm = clipped_step(plain, optimizer, x, max_norm, norm_type)
        fused.backward(loss_of(module, x))
        fused.step()
        assert fused.total_norm is not None
        assert torch.equal(fused.total_norm, norm)
    assert_same(values_of(module), values_of(plain))


def test_clipping_takes_in_what_comes_or_thaws_later() -> None:
    model, x = mlp(2), torch.randn(4, 8)
    model[0].bias.requires_grad_(False)
    models = [model, copy.deepcopy(model)]
    plain, optimizer = (OPTIMIZERS["momentum"](each[0].parameters()) for each in models)
    fused = rekindle.optim.fuse(models[1], optimizer, max_norm=1e-2)
    for step in range(3):
        for each, its in zip(models, (plain, optimizer), strict=True) if step == 1 else ():
            each[0].bias.requires_grad_(True)
            its.add_param_group({"params": list(each[2].parameters())})
        norm = clipped_step(models[0], plain, x, max_norm=1e-2)
        fused.backward(loss_of(models[1], x))
        fused.step()
        models[1].zero_grad()
        assert_same([fused.total_norm, *values_of(models[1])], [norm, *values_of(models[0])])


def test_bad_use_of_clipping_is_an_error() -> None:
    model, x = mlp(1), torch.randn(4, 8)
    fused = rekindle.optim.fuse(model, OPTIMIZERS["SGD"](model.parameters()), max_norm=1.0)
    before = values_of(model)
    with pytest.raises(RuntimeError, match=r"call backward\(loss\) of the fused optimizer"):
        loss_of(model, x).backward()
    with pytest.raises(RuntimeError, match=r"has a gradient from before"):
        fused.backward(loss_of(model, x))
    with pytest.raises(RuntimeError, match=r"no backward\(\) of the fused optimizer has made"):
        fused.step()
    with pytest.raises(RuntimeError, match="fuse without max_norm"), fused.accumulate():
        pass
    assert_same(values_of(model), before)
    fused.zero_grad()
    fused.backward(loss_of(model, x))
    fused.step()
    assert not torch.equal(values_of(model)[0], before[0])


@pytest.mark.parametrize("max_norm", [0.0, -1.0, math.nan])
def test_a_norm_that_clips_to_nothing_is_an_error(max_norm: float) -> None:
    model = mlp(1)
    with pytest.raises(ValueError, match=f"max_norm is {max_norm}"):
        rekindle.optim.fuse(model, OPTIMIZERS["SGD"](model.parameters()), max_norm=max_norm)
