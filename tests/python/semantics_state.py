"""Lists cases of what a module holds and a run changes: attributes, buffers, statistics, modes, hooks, random numbers.

Each case runs in eager, with a cold and with a warm cache.
"""

from __future__ import annotations

import os
import struct
import threading
from typing import Any

import rekindle
import torch
from semantics_support import Perceptron, backward, case, made_of, rows
from torch import nn


@case(made_of(lambda self, x: self.a(x) * self.k, lambda self: setattr(self, "k", 1.0)))
def attr(model: nn.Module) -> Any:
    results = []
    for k in (1.0, 5.0, 1.0):
        model.k = k
        results.append(backward(model(rows())))
    return results


@case(made_of(lambda self, x: self.drop(self.a(x))))
def train_nograd(model: nn.Module) -> Any:
    with torch.no_grad():
        a = model(rows())
    return [a, backward(model(rows()))]


@case(Perceptron)
def autocast(model: nn.Module) -> Any:
    results = [backward(model(rows()))]
    with torch.autocast("cpu", torch.bfloat16):
        y = model(rows())
    results.append(y.dtype)
    backward(y)
    results.append(backward(model(rows())))
    return results


@case(lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU()))
def bn(model: nn.Module) -> Any:
    results = [backward(model(rows(i))) for i in range(4)]
    model.eval()
    results.append(model(rows(9)).detach())
    model.train()
    results.append(backward(model(rows(5))))
    return results


def _forward_buffer(self, x):
    self.n += 1
    self.ema.mul_(0.9).add_(x.detach().mean(0), alpha=0.1)
    return self.a(x) - self.ema


@case(
    made_of(
        _forward_buffer,
        lambda self: (
            self.register_buffer("n", torch.zeros(())),
            self.register_buffer("ema", torch.zeros(4)),
        ),
    )
)
def buffer(model: nn.Module) -> Any:
    return [backward(model(rows(i))) for i in range(4)]


def _forward_input_mut(self, x):
    x.mul_(2)
    return self.a(x)


@case(made_of(_forward_input_mut))
def input_mut(model: nn.Module) -> Any:
    x = rows()
    y = backward(model(x))
    x2 = rows(1)
    backward(model(x2))
    return [x, y, x2]


@case(Perceptron)
def sub_hooks(model: nn.Module) -> Any:
    log = []
    h = model.a.register_forward_hook(lambda mod, i, results: log.append("f") or results * 2)
    h2 = model.a.register_full_backward_hook(lambda mod, gi, go: log.append("b"))
    results = [backward(model(rows(i))) for i in range(3)]
    h.remove()
    h2.remove()
    results.append(backward(model(rows())))
    return [*results, log]


@case(made_of(lambda self, x: self.drop(self.a(x))))
def rng(model: nn.Module) -> Any:
    torch.manual_seed(3)
    a = backward(model(rows()))
    st = torch.get_rng_state()
    b = backward(model(rows()))
    torch.set_rng_state(st)
    c = backward(model(rows()))
    return [a, b, c, torch.rand(2)]


@case(Perceptron)
def zero(model: nn.Module) -> Any:
    return [backward(model(rows())), backward(model(torch.zeros(0, 4))), backward(model(rows()))]


@case(Perceptron)
def rank(model: nn.Module) -> Any:
    results = [backward(model(rows())), backward(model(rows(1, 2, 5, 4))), backward(model(rows(2, 4)))]
    model.double()
    model.zero_grad()
    results.append(backward(model(rows().double())))
    model.float()
    model.zero_grad()
    return [*results, backward(model(rows()))]


def _forward_counter(self, x):
    self.calls = self.calls + 1
    return self.a(x) * self.calls


@case(made_of(_forward_counter, lambda self: setattr(self, "calls", 0)))
def counter(model: nn.Module) -> Any:
    return [backward(model(rows())) for _ in range(3)] + [model.calls]


def _forward_last(self, x):
    y = self.a(x)
    self.last = y.detach()
    return y


@case(made_of(_forward_last))
def last(model: nn.Module) -> Any:
    backward(model(rows()))
    backward(model(rows(1)))
    return model.last


def _forward_cache(self, x):
    if x.shape[0] not in self.cache:
        self.cache[x.shape[0]] = torch.arange(x.shape[0]).float()[:, None]
    return self.a(x) + self.cache[x.shape[0]]


@case(made_of(_forward_cache, lambda self: setattr(self, "cache", {})))
def cache(model: nn.Module) -> Any:
    return [backward(model(rows(i, n, 4))) for i, n in enumerate((5, 3, 5, 2))] + [sorted(model.cache)]


@case(
    lambda: nn.Sequential(
        nn.Linear(4, 4),
        nn.BatchNorm1d(4, momentum=None),
        nn.BatchNorm1d(4, track_running_stats=False),
        nn.BatchNorm1d(4, affine=False),
    )
)
def bn_variants(model: nn.Module) -> Any:
    return [backward(model(rows(i))) for i in range(3)]


@case(lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)))
def bn_frozen(model: nn.Module) -> Any:
    model[1].eval()
    results = [backward(model(rows(i))) for i in range(3)]
    model[1].train()
    return [*results, backward(model(rows()))]


@case(Perceptron)
def inference(model: nn.Module) -> Any:
    with torch.inference_mode():
        y = model(rows())
    return [y.is_inference(), y.clone()]


@case(Perceptron)
def module_hooks_top(model: nn.Module) -> Any:
    log = []
    h = model.register_forward_pre_hook(lambda mod, a: log.append("pre") or (a[0] * 2,))
    h2 = model.register_forward_hook(lambda mod, a, results: log.append("post") or results + 1)
    h3 = model.register_full_backward_hook(lambda mod, gi, go: log.append("bw"))
    results = [backward(model(rows().requires_grad_())) for _ in range(2)]
    h.remove()
    h2.remove()
    h3.remove()
    return [*results, log, backward(model(rows()))]


@case(Perceptron)
def global_hooks(model: nn.Module) -> Any:
    log = []
    h = torch.nn.modules.module.register_module_forward_hook(lambda mod, i, results: log.append(type(mod).__name__))
    try:
        results = backward(model(rows()))
    finally:
        h.remove()
    return [results, [name for name in log if name != "Module"]]


@case(Perceptron)
def threads(model: nn.Module) -> Any:
    res = [None] * 4

    def go(i):
        res[i] = model(rows(i)).detach()

    ts = [threading.Thread(target=go, args=(i,)) for i in range(4)]
    [t.start() for t in ts]
    [t.join() for t in ts]
    return res


@case(made_of(lambda self, x: self.a(x)))
def method_attr(model: nn.Module) -> Any:
    model.extra = "v"
    return [model.extra, hasattr(model, "a"), model.a.in_features, [n for n, _ in model.named_children()]]


def _forward_completing_its_configuration(self, x):
    if self.config["kind"] is None:
        self.config["kind"] = "regression"
    return self.a(x) * (2.0 if self.config["kind"] == "regression" else 3.0)


@case(made_of(_forward_completing_its_configuration, lambda self: setattr(self, "config", {"kind": None})))
def completed_configuration(model: nn.Module) -> Any:
    results = [backward(model(rows(i))) for i in range(3)]
    if isinstance(model, rekindle.Module):
        assert rekindle.status(model).eager_calls == 1  # the one that completed it
    return [results, dict(model.config)]


@case(Perceptron)
def forked(model: nn.Module) -> Any:
    backward(model(rows()))
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            total = float(model(rows(1)).sum()) + float(model(rows(2)[:2]).sum())
            os.write(writing, struct.pack("d", total))
        finally:
            os._exit(0)
    os.close(writing)
    found = os.read(reading, 8)
    os.close(reading)
    os.waitpid(child, 0)
    return [round(struct.unpack("d", found)[0], 3), backward(model(rows(1)))]
