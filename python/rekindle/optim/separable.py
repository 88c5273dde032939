"""Finds out whether an optimizer gives the same parameters when it steps one of them at a time.

SGD, Adam and most others compute a parameter's update from its own gradient and state. An optimizer that counts steps per
group, takes a norm over all gradients or draws random numbers does not: `check_separable` names it. One that keeps something
beside the state of each parameter, and changes it in a step, is refused for that: a trial is shorter than a training.
"""

from __future__ import annotations

import collections
import contextlib
import copy
import threading
from collections.abc import Iterator
from typing import Any

import torch
from torch.optim import Optimizer

from rekindle.optim.kept_values import changed, kept_values, leading_to, picture

_STEPS = 3  # the first one makes the state, the second one reads it, the third one reads what the second one wrote
_LONGEST = 3  # of a stand-in's dimensions
_swap = threading.RLock()  # devices have threads of their own in a backward


def groups_kept() -> contextlib.AbstractContextManager[Any]:
    """Lets `only` of other threads wait, so that an optimizer's groups are the user's."""
    return _swap


@contextlib.contextmanager
def only(optimizer: Optimizer, chosen: dict[int, list[torch.Tensor]]) -> Iterator[None]:
    """Lets an optimizer have no other parameters than `chosen` in the body, one thread at a time.

    chosen: the parameters, by the place of their group in `optimizer.param_groups`
    """
    with _swap:
        groups = optimizer.param_groups
        whole = {place: groups[place]["params"] for place in chosen}
        optimizer.param_groups = [groups[place] for place in chosen]
        try:
            for place, parameters in chosen.items():
                groups[place]["params"] = parameters
            yield
        finally:
            for place, parameters in whole.items():
                groups[place]["params"] = parameters
            optimizer.param_groups = groups


def check_separable(optimizer: Optimizer) -> None:
    """Raises TypeError if an optimizer's step for one parameter depends on others, or may.

    Tries a copy of the optimizer on small tensors of the parameters' dtypes, devices and numbers of dimensions. Leaves the
    optimizer, its parameters and the random state as they are.
    """
    name = type(optimizer).__qualname__
    remedy = "it cannot be fused into a backward; call its step() after the backward instead"
    parameters = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    if (where := leading_to(kept_values(optimizer), parameters)) is not None:
        raise TypeError(f"{name} leads to its parameters by {where}, too: {remedy}")
    try:
        together = _tried(optimizer, one_by_one=False)
    except _Keeps as keeps:
        raise TypeError(f"{name} changes {keeps} in a step, which is not the state of one parameter: {remedy}") from None
    except Exception as error:
        raise TypeError(f"{name} failed a trial step without closure ({type(error).__name__}: {error}): {remedy}") from error
    alone = _tried(optimizer, one_by_one=True)
    if not all(torch.allclose(*both, rtol=0, atol=0, equal_nan=True) for both in zip(together, alone, strict=True)):
        raise TypeError(f"{name} gives other values when it steps one parameter at a time: {remedy}")


class _Keeps(Exception):
    """Names what an optimizer keeps that is not of one parameter."""


def _tried(optimizer: Optimizer, one_by_one: bool) -> list[torch.Tensor]:
    """Returns what stand-ins for the parameters are after some steps; the last ones first, if they step one by one.

    Raises _Keeps where a step after the first, which may make what it needs, changes what is kept for all.
    """
    parameters = [parameter for group in optimizer.param_groups for parameter in group["params"]]
    devices = {parameter.device for parameter in parameters if parameter.device.type != "cpu"}
    with contextlib.ExitStack() as forks:
        for kind in {device.type for device in devices} or {"cuda"}:
            forks.enter_context(torch.random.fork_rng([one for one in devices if one.type == kind], device_type=kind))
        torch.manual_seed(0)
        tried = _copy(optimizer)
        stand_ins = [group["params"] for group in tried.param_groups]
        gradients = torch.Generator("cpu").manual_seed(1)
        before: dict[str, Any] = {}
        for step in range(_STEPS):
            for one in (one for group in stand_ins for one in group):
                one.grad = _random(one, gradients)
            _step(tried, stand_ins, one_by_one)
            if step == 0:
                before = picture(kept_values(tried))
        if (what := changed(before, kept_values(tried))) is not None:
            raise _Keeps(what)
    return [one.detach() for group in stand_ins for one in group]


def _step(optimizer: Optimizer, stand_ins: list[list[torch.Tensor]], one_by_one: bool) -> None:
    if not one_by_one:
        optimizer.step()
        return
    for place, group in reversed([*enumerate(stand_ins)]):
        for one in reversed(group):
            with only(optimizer, {place: [one]}):
                optimizer.step()


def _stand_ins(parameters: list[torch.Tensor]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Returns (small tensor, the parameter that it stands for), two for each number of dimensions, dtype and device."""
    kinds = {(parameter.dim(), parameter.dtype, parameter.device): parameter for parameter in parameters}
    generator = torch.Generator("cpu").manual_seed(2)
    made = []
    for parameter in kinds.values():
        shape = [min(size, _LONGEST) for size in parameter.shape]
        for _ in range(2):
            empty = torch.empty(shape, dtype=parameter.dtype, device=parameter.device)
            made.append((_random(empty, generator).requires_grad_(), parameter))
    return made


def _state(kept: dict[str, Any], parameter: torch.Tensor, stand_in: torch.Tensor) -> dict[str, Any]:
    """Returns a stand-in's part of a parameter's state; nothing if the state's shapes follow from the parameter's otherwise."""
    made = {}
    for name, value in kept.items():
        if isinstance(value, torch.Tensor) and value.shape == parameter.shape:
            made[name] = value[tuple(slice(size) for size in stand_in.shape)].clone()
        elif isinstance(value, torch.Tensor) and value.numel() > 1:
            return {}
        else:
            made[name] = value.clone() if isinstance(value, torch.Tensor) else value
    return made


def _random(like: torch.Tensor, generator: torch.Generator) -> torch.Tensor:
    compute = torch.complex64 if like.is_complex() else torch.float32
    return torch.randn(like.shape, dtype=compute, generator=generator).to(like)


def _copy(optimizer: Optimizer) -> Optimizer:
    """Returns a copy for stand-ins, without hooks. What a scheduler has put on the original stays there."""
    made: Any = object.__new__(type(optimizer))
    left = {"state": optimizer.state, "param_groups": optimizer.param_groups, "step": None}
    whole = {name: value for name, value in vars(optimizer).items() if name not in left}
    itself = {id(optimizer): made}
    made.__dict__.update(copy.deepcopy(whole, itself))
    made._optimizer_step_pre_hooks = collections.OrderedDict()
    made._optimizer_step_post_hooks = collections.OrderedDict()
    made.state = collections.defaultdict(dict)
    made.param_groups = []
    for group in optimizer.param_groups:
        stand_ins = _stand_ins(group["params"])
        settings = {name: value for name, value in group.items() if name != "params"}
        made.param_groups.append({**copy.deepcopy(settings, itself), "params": [one for one, _ in stand_ins]})
        for one, parameter in stand_ins:
            if optimizer.state.get(parameter):
                made.state[one] = _state(optimizer.state[parameter], parameter, one)
    return made
