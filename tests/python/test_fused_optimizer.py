"""`rekindle.optim.fuse`: the parameters are those of a step after the backward, and gradients leave one by one."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import rekindle
import torch
from test_gradient_order import MODELS
from torch import nn
from torch.optim import Optimizer

OPTIMIZERS: dict[str, Callable[[Any], Optimizer]] = {
    "SGD": lambda p: torch.optim.SGD(p, lr=0.01),
    "momentum": lambda p: torch.optim.SGD(p, lr=0.01, momentum=0.9, nesterov=True, weight_decay=0.1),
    "Adam": lambda p: torch.optim.Adam(p, lr=0.01, amsgrad=True),
    "AdamW": lambda p: torch.optim.AdamW(p, lr=0.01),
    "fused AdamW": lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
    "foreach AdamW": lambda p: torch.optim.AdamW(p, lr=0.01, foreach=True),
    "NAdam": lambda p: torch.optim.NAdam(p, lr=0.01),
    "RAdam": lambda p: torch.optim.RAdam(p, lr=0.01),
    "Adamax": lambda p: torch.optim.Adamax(p, lr=0.01),
    "Adagrad": lambda p: torch.optim.Adagrad(p, lr=0.01),
    "Adadelta": lambda p: torch.optim.Adadelta(p),
    "Adafactor": lambda p: torch.optim.Adafactor(p),
    "ASGD": lambda p: torch.optim.ASGD(p),
    "RMSprop": lambda p: torch.optim.RMSprop(p, momentum=0.5, centered=True),
    "Rprop": lambda p: torch.optim.Rprop(p),
}


def mlp(layers: int = 4, width: int = 8) -> nn.Module:
    return nn.Sequential(*[m for _ in range(layers) for m in (nn.Linear(width, width), nn.Tanh())])


def wrapped(model: nn.Module, tmp_path: Path) -> nn.Module:
    return rekindle.Module(model, rekindle.Options(cache_dir=tmp_path, fallback="error", log="off"))


def loss_of(called: nn.Module, x: torch.Tensor) -> torch.Tensor:
    result = called(x)
    return (result[0] if isinstance(result, tuple) else result).square().mean()


def values_of(model: nn.Module) -> list[torch.Tensor]:
    return [parameter.detach().clone() for parameter in model.parameters()]


def train(called: nn.Module, optimizer: Optimizer, x: torch.Tensor, steps: int, fused: bool) -> list[torch.Tensor]:
    """The parameters after some steps; random numbers are those of a seed."""
    torch.manual_seed(3)
    stepping = rekindle.optim.fuse(called, optimizer) if fused else optimizer
    for _ in range(steps):
        loss_of(called, x).backward()
        stepping.step()
        stepping.zero_grad()
    return values_of(called)


def assert_same(found: list[torch.Tensor], expected: list[torch.Tensor]) -> None:
    assert len(found) == len(expected)
    assert all(map(torch.equal, found, expected))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_fifty_steps_give_the_same_parameters(name: str) -> None:
    torch.manual_seed(0)
    plain, x = mlp(), torch.randn(4, 8)
    fused, make = copy.deepcopy(plain), OPTIMIZERS[name]
    expected = train(plain, make(plain.parameters()), x, 50, fused=False)
    assert_same(train(fused, make(fused.parameters()), x, 50, fused=True), expected)


@pytest.mark.parametrize("name", MODELS)
def test_graphs_give_the_same_parameters_as_without(tmp_path: Path, name: str) -> None:
    make, inputs = MODELS[name]
    torch.manual_seed(0)
    model, x = make(), inputs()
    trained = []
    for fused in (False, False, True, True):  # an export, and hits
        module = wrapped(copy.deepcopy(model), tmp_path)
        trained.append(train(module, OPTIMIZERS["AdamW"](module.parameters()), x, 5, fused))
        assert rekindle.status(module).eager_calls == 0
    _, expected, *found = trained  # eager's random numbers lie elsewhere after an export
    for parameters in found:
        assert_same(parameters, expected)


PEAK = """
import sys, torch, rekindle
torch.manual_seed(0)
model = torch.nn.Sequential(*[torch.nn.Linear(1024, 1024, bias=False) for _ in range(32)])
called = rekindle.Module(model, rekindle.Options(cache_dir=sys.argv[1], fallback="error", log="off"))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
stepping = rekindle.optim.fuse(called, optimizer) if sys.argv[2] == "fused" else optimizer
for _ in range(3):
    called(torch.randn(4, 1024)).sum().backward()
    stepping.step()
    stepping.zero_grad()
print(next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def test_the_peak_of_a_process_is_lower_by_the_gradients_but_one_layers(tmp_path: Path) -> None:
    peaks = []
    # glibc gives back what is freed at once: its own threshold moves, and what it keeps would count.
    environment = os.environ | {"MALLOC_MMAP_THRESHOLD_": "65536"}
    for how in ("after", "after", "fused"):  # the first run exports
        command = [sys.executable, "-c", PEAK, tmp_path, how]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        peaks.append(int(run.stdout))  # KiB
    assert peaks[1] - peaks[2] > 0.95 * 31 * 4096


@pytest.mark.parametrize("graph", [False, True])
def test_gradients_of_one_layer_exist_at_a_time(tmp_path: Path, graph: bool) -> None:
    model = mlp(layers=6)
    called = wrapped(model, tmp_path) if graph else model
    alive: list[int] = []
    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda _: alive.append(sum(p.grad is not None for p in model.parameters())))
    train(called, OPTIMIZERS["Adam"](model.parameters()), torch.randn(4, 8), 3, fused=True)
    assert len(alive) == 3 * 12
    assert max(alive) <= 2


def test_groups_have_their_own_settings_and_schedulers_see_steps(tmp_path: Path) -> None:
    model, x = mlp(), torch.randn(4, 8)
    results = []
    for fused in (False, True):
        module = wrapped(copy.deepcopy(model), tmp_path)
        first, *others = module.parameters()
        optimizer = torch.optim.AdamW([{"params": [first], "lr": 0.1}, {"params": others, "weight_decay": 0.0}], lr=0.01)
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
        stepping = rekindle.optim.fuse(module, optimizer) if fused else optimizer
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for _ in range(6):
                loss_of(module, x).backward()
                stepping.step()
                stepping.zero_grad()
                scheduler.step()
        results.append(values_of(module))
        assert [group["lr"] for group in optimizer.param_groups] == [0.0125, 0.00125]
        assert [len(group["params"]) for group in optimizer.param_groups] == [1, 7]
    assert_same(results[1], results[0])


def test_gradients_are_accumulated_before_the_last_backward_steps(tmp_path: Path) -> None:
    model, parts = mlp(), torch.randn(3, 4, 8)
    plain, module = wrapped(copy.deepcopy(model), tmp_path), wrapped(copy.deepcopy(model), tmp_path)
    optimizer = OPTIMIZERS["AdamW"](plain.parameters())
    fused = rekindle.optim.fuse(module, OPTIMIZERS["AdamW"](module.parameters()))
    for _ in range(4):
        for part in parts:
            loss_of(plain, part).backward()
        optimizer.step()
        optimizer.zero_grad()
        with fused.accumulate():
            for part in parts[:-1]:
                loss_of(module, part).backward()
        loss_of(module, parts[-1]).backward()
        fused.step()
        assert all(parameter.grad is None for parameter in module.parameters())
    assert_same(values_of(module), values_of(plain))


def test_what_no_backward_has_stepped_is_stepped_at_the_end() -> None:
    model = mlp(1)
    added = nn.Parameter(torch.ones(3))
    optimizer = OPTIMIZERS["SGD"](model.parameters())
    fused = rekindle.optim.fuse(model, optimizer)
    optimizer.add_param_group({"params": [added]})
    (loss_of(model, torch.randn(4, 8)) + added.sum()).backward()
    assert added.grad is not None
    fused.step()
    assert added.grad is None
    assert torch.allclose(added, torch.full((3,), 0.99))


def test_a_checkpoint_goes_on_as_without() -> None:
    model, x = mlp(), torch.randn(4, 8)
    other = copy.deepcopy(model)
    expected = train(other, OPTIMIZERS["Adam"](other.parameters()), x, 6, fused=False)
    optimizer = OPTIMIZERS["Adam"](model.parameters())
    train(model, optimizer, x, 3, fused=True)
    again = copy.deepcopy(model)
    resumed = OPTIMIZERS["Adam"](again.parameters())
    resumed.load_state_dict(optimizer.state_dict())
    assert_same(train(again, resumed, x, 3, fused=True), expected)


def test_removed_steps_are_no_more() -> None:
    model = mlp(1)
    rekindle.optim.fuse(model, OPTIMIZERS["SGD"](model.parameters())).remove()
    before = values_of(model)
    loss_of(model, torch.randn(4, 8)).backward()
    assert_same(values_of(model), before)
    assert all(parameter.grad is not None for parameter in model.parameters())


def test_a_second_gradient_in_one_step_is_an_error_that_names_the_parameter() -> None:
    model, x = mlp(1), torch.randn(4, 8)
    rekindle.optim.fuse(model, OPTIMIZERS["SGD"](model.parameters()))
    loss_of(model, x).backward()
    with pytest.raises(RuntimeError, match=r"0\.(weight|bias) gets a second gradient in one step.*accumulate\(\)"):
        loss_of(model, x).backward()


def test_parameters_that_are_nan_are_no_fault_of_the_optimizer() -> None:
    model = mlp(1)
    nn.init.constant_(model[0].weight, float("nan"))
    optimizer = OPTIMIZERS["Adagrad"](model.parameters())
    loss_of(model, torch.randn(4, 8)).backward()
    optimizer.step()
    optimizer.zero_grad()
    fused = rekindle.optim.fuse(model, optimizer)
    loss_of(model, torch.randn(4, 8)).backward()
    fused.step()
    assert model[0].weight.isnan().all()


def test_an_optimizer_of_another_model_or_with_hooks_is_an_error() -> None:
    model = mlp(1)
    with pytest.raises(ValueError, match="SGD has no parameter of the Sequential"):
        rekindle.optim.fuse(model, OPTIMIZERS["SGD"](mlp(1).parameters()))
    optimizer = OPTIMIZERS["SGD"](model.parameters())
    optimizer.register_step_post_hook(lambda *_: None)
    with pytest.raises(ValueError, match="hooks around its steps"):
        rekindle.optim.fuse(model, optimizer)


def test_several_ranks_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    model = mlp(1)
    fused = rekindle.optim.fuse(model, OPTIMIZERS["SGD"](model.parameters()))
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    monkeypatch.setattr(torch.distributed, "get_world_size", lambda: 4)
    with pytest.raises(RuntimeError, match="4 ranks train"):
        loss_of(model, torch.randn(4, 8)).backward()
    fused.remove()
    with pytest.raises(RuntimeError, match="4 ranks train"):
        rekindle.optim.fuse(model, OPTIMIZERS["SGD"](model.parameters()))


class ReadAsConstant(nn.Module):
    """Has a parameter whose gradient is there before the backward of what has read the parameter without a gradient."""

    def __init__(self, operator: Callable[[torch.Tensor, torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.first, self.last, self.operator = nn.Linear(4, 4), nn.Parameter(torch.randn(4, 4)), operator

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.operator(self.first(x), self.last.detach())) @ self.last


@pytest.mark.parametrize(
    "operator",
    [
        lambda h, w: nn.functional.rms_norm(h, (4,), w[0]),
        lambda h, w: nn.functional.batch_norm(h, None, None, w[0], w[1], training=True),
        lambda h, w: nn.functional.group_norm(h, 2, w[0], w[1]),
        lambda h, w: h * w.diagonal(),
    ],
    ids=["rms_norm", "batch_norm", "group_norm", "diagonal"],
)
def test_a_step_waits_for_operators_that_keep_the_parameter(operator: Any, tmp_path: Path) -> None:
    torch.manual_seed(0)
    model, x = ReadAsConstant(operator), torch.randn(6, 4)
    found = []
    for fused in (False, True):
        called = wrapped(copy.deepcopy(model), tmp_path)
        found.append(train(called, torch.optim.SGD(called.parameters(), lr=0.5), x, 3, fused))
    torch.testing.assert_close(*found, rtol=0, atol=0)
