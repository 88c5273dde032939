"""Parameters and submodules: replaced, tied, frozen, shared, copied, parametrized and trained.

Each case runs in eager, with a cold and with a warm cache.
"""

from __future__ import annotations

import copy
from typing import Any

import rekindle
import torch
from semantics_support import Perceptron, backward, case, made_of, rows
from torch import nn


@case(Perceptron)
def param_replaced(model: nn.Module) -> Any:
    results = [backward(model(rows()))]
    model.a.weight = nn.Parameter(torch.ones(8, 4))
    model.zero_grad()
    results.append(backward(model(rows())))
    model.a.weight.data = torch.full((8, 4), 0.5)
    results.append(backward(model(rows())))
    return results


@case(lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 4)))
def weight_norm(model: nn.Module) -> Any:
    return [backward(model(rows(i))) for i in range(2)]


@case(lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4)))
def spectral(model: nn.Module) -> Any:
    return [backward(model(rows(i))) for i in range(3)]


def _tied() -> nn.Module:
    model = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))
    model[2].weight = model[0].weight
    return model


@case(_tied)
def tied(model: nn.Module) -> Any:
    results = [backward(model(rows()))]
    model[2].weight = nn.Parameter(torch.eye(4))
    model.zero_grad()
    results.append(backward(model(rows())))
    return results


@case(Perceptron)
def freeze(model: nn.Module) -> Any:
    results = [backward(model(rows()))]
    model.a.weight.requires_grad_(False)
    model.zero_grad()
    results.append(backward(model(rows())))
    results.append(model.a.weight.grad)
    model.a.weight.requires_grad_(True)
    results.append(backward(model(rows())))
    return results


@case(Perceptron)
def all_frozen(model: nn.Module) -> Any:
    model.requires_grad_(False)
    y = model(rows())
    return [y, y.requires_grad]


@case(Perceptron)
def swap(model: nn.Module) -> Any:
    results = [backward(model(rows()))]
    torch.manual_seed(1)
    model.b = nn.Linear(8, 2)
    results.append(backward(model(rows())))
    model.b = nn.Sequential(nn.Tanh(), nn.Linear(8, 2))
    results.append(backward(model(rows())))
    return results


@case(Perceptron)
def add_module(model: nn.Module) -> Any:
    results = [backward(model(rows()))]
    model.add_module("c", nn.Linear(2, 2))
    results.append(backward(model(rows())))
    return [*results, sorted(dict(model.named_parameters()))]


@case(Perceptron)
def opt(model: nn.Module) -> Any:
    opt = torch.optim.AdamW(model.parameters(), lr=0.1)
    results = []
    for i in range(4):
        opt.zero_grad()
        loss = model(rows(i)).square().mean()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        opt.step()
        results.append(loss.detach())
    return results


@case(Perceptron)
def deepcopy(model: nn.Module) -> Any:
    backward(model(rows()))
    copied = copy.deepcopy(model)
    model.zero_grad()
    return backward(copied(rows(1)))


@case(Perceptron)
def pickle(model: nn.Module) -> Any:
    backward(model(rows()))
    sd = copy.deepcopy(model.state_dict())
    model.load_state_dict({k: v * 0.5 for k, v in sd.items()})
    model.zero_grad()
    return backward(model(rows()))


def _forward_moduledict(self, x):
    return {k: v(x) for k, v in self.heads.items()}


@case(
    made_of(
        _forward_moduledict,
        lambda self: setattr(self, "heads", nn.ModuleDict({"p": nn.Linear(4, 2), "q": nn.Linear(4, 3)})),
    )
)
def moduledict(model: nn.Module) -> Any:
    return backward(model(rows()))


@case(
    made_of(
        lambda self, x: sum(w.sum() for w in self.ws) + self.a(x).sum(),
        lambda self: setattr(self, "ws", nn.ParameterList([torch.ones(2), torch.ones(3)])),
    )
)
def paramlist(model: nn.Module) -> Any:
    return backward(model(rows()))


@case(Perceptron)
def shared_memory(model: nn.Module) -> Any:
    results = [backward(model(rows()))]
    model.share_memory()
    results.append(backward(model(rows(1))))
    return [*results, all(parameter.is_shared() for parameter in model.parameters())]


@case(Perceptron)
def shared_parameters(model: nn.Module) -> Any:
    other = Perceptron()
    other.a, other.b.weight = model.a, model.b.weight
    other = rekindle.Module(other, rekindle.Options(log="error")) if isinstance(model, rekindle.Module) else other
    with torch.no_grad():
        other.b.bias.zero_()
    results = []
    for i in range(2):
        loss = model(rows(i)).sum() + other(rows(i + 1)).square().sum()
        loss.backward()
        results.append(loss.detach())
        with torch.no_grad():
            model.a.weight.mul_(0.9)
    return results


@case(lambda: nn.Sequential(nn.Linear(4, 4), nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2))))
def wrapped_submodule(model: nn.Module) -> Any:
    results = [backward(model(rows()))]
    if isinstance(model, rekindle.Module):
        model[1] = rekindle.Module(model[1], rekindle.Options(log="error"))
    results.append(backward(model(rows(1))))
    return [*results, sorted(model.state_dict())]
