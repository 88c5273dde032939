"""The rules of autograd around a forward and a backward. Each case runs in eager, with a cold and with a warm cache."""

from __future__ import annotations

import copy
from typing import Any

import torch
from semantics_support import Perceptron, backward, case, made_of, rows
from torch import nn


@case(made_of(lambda self, x: self.drop(self.a(x))))
def eval_grad(model: nn.Module) -> Any:
    model.eval()
    return [backward(model(rows())), backward(model(rows()))]


@case(Perceptron)
def input_grad_later(model: nn.Module) -> Any:
    x = rows()
    results = [backward(model(x))]
    x = rows().requires_grad_()
    results.append(backward(model(x)))
    results.append(x.grad)
    return results


@case(made_of(lambda self, x: (torch.exp(self.a(x)), self.b(x))))
def in_place_output(model: nn.Module) -> Any:
    a, b = model(rows())
    a.add_(1)
    try:
        (a.sum() + b.sum()).backward()
        return "no error"
    except RuntimeError as error:
        model.zero_grad()  # what was delivered before the error depends on the order of the backward
        return "inplace" in str(error)


@case(Perceptron)
def retain(model: nn.Module) -> Any:
    loss = model(rows()).square().sum()
    loss.backward(retain_graph=True)
    loss.backward()
    try:
        loss.backward()
        return "no"
    except RuntimeError:
        return "err"


@case(made_of(lambda self, x: torch.tanh(self.a(x)).sum()))
def create_graph(model: nn.Module) -> Any:
    g = torch.autograd.grad(model(rows()), model.a.weight, create_graph=True)[0]
    g.square().sum().backward()
    return g.detach()


@case(made_of(lambda self, x: self.a(x) + (self.b(x).round() - self.b(x)).detach()))
def ste(model: nn.Module) -> Any:
    return backward(model(rows()))


def _forward_nograd(self, x):
    with torch.no_grad():
        t = self.b(x)
    return ((self.a(x) - t) ** 2).mean()


@case(made_of(_forward_nograd))
def nograd(model: nn.Module) -> Any:
    return backward(model(rows()))


@case(made_of(lambda self, x: (self.a(x), self.b(x))))
def unused_branch(model: nn.Module) -> Any:
    a, _ = model(rows())
    a.sum().backward()
    return [p.grad is None for p in model.parameters()]


@case(lambda: nn.Sequential(*[nn.Linear(4, 4) for _ in range(4)]))
def hook_order(model: nn.Module) -> Any:
    log = []
    for n, p in model.named_parameters():
        p.register_post_accumulate_grad_hook(lambda p, n=n: log.append(n.split(".")[0]))
    backward(model(rows()))
    return [k for i, k in enumerate(log) if i == 0 or log[i - 1] != k]


@case(Perceptron)
def accum(model: nn.Module) -> Any:
    return [backward(model(rows(i))) for i in range(3)]


@case(Perceptron)
def zero_grad_false(model: nn.Module) -> Any:
    backward(model(rows()))
    model.zero_grad(set_to_none=False)
    backward(model(rows(1)))
    return None


@case(Perceptron)
def interleave(model: nn.Module) -> Any:
    a = model(rows())
    b = model(rows(1))
    b.sum().backward()
    c = model(rows(2))
    a.square().sum().backward()
    (c * c).sum().backward()
    return [a, b, c]


@case(Perceptron)
def partial_grad(model: nn.Module) -> Any:
    y = model(rows())
    return torch.autograd.grad(y.sum(), [model.b.bias, model.a.weight])


@case(Perceptron)
def two_calls_one_backward(model: nn.Module) -> Any:
    (model(rows()).sum() * model(rows(1)).sum()).backward()
    return None


@case(Perceptron)
def param_version(model: nn.Module) -> Any:
    y = model(rows()).square().sum()
    with torch.no_grad():
        model.b.weight.add_(1)
    try:
        y.backward()
        return "ok"
    except RuntimeError:
        return "err"


@case(made_of(lambda self, x: (self.a(x), self.b(x).sum())))
def none_cot(model: nn.Module) -> Any:
    _, b = model(rows())
    b.backward()
    a2, _ = model(rows(1))
    a2.sum().backward()
    a3, b3 = model(rows(2))
    (a3.sum() + b3).backward()
    return None


@case(Perceptron)
def backward_hooks_tensor(model: nn.Module) -> Any:
    log = []
    y = model(rows())
    y.register_hook(lambda g: g * 2)
    model.a.weight.register_hook(lambda g: log.append(float(g.sum().round())) or g * 0.5)
    y.sum().backward()
    return len(log)


@case(Perceptron)
def multi_grad_hook(model: nn.Module) -> Any:
    log = []
    torch.autograd.graph.register_multi_grad_hook(
        list(model.parameters()), lambda gs: log.append(len([g for g in gs if g is not None]))
    )
    backward(model(rows()))
    return log


@case(Perceptron)
def saved_hooks(model: nn.Module) -> Any:
    log = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: log.append(1) or t, lambda t: t):
        y = model(rows())
    backward(y)
    return len(log) > 0


@case(Perceptron)
def anomaly(model: nn.Module) -> Any:
    with torch.autograd.detect_anomaly(check_nan=False):
        return backward(model(rows()))


@case(
    made_of(
        lambda self, x: torch.utils.checkpoint.checkpoint(self.f, x, use_reentrant=False) + self.b(x),
        lambda self: setattr(self, "f", nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.2), nn.ReLU())),
    )
)
def checkpoint_nonre(model: nn.Module) -> Any:
    return [backward(model(rows(i).requires_grad_())) for i in range(2)]


@case(
    made_of(
        lambda self, x: torch.utils.checkpoint.checkpoint(self.f, x, use_reentrant=True) + self.b(x),
        lambda self: setattr(self, "f", nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.2), nn.ReLU())),
    )
)
def checkpoint_re(model: nn.Module) -> Any:
    return [backward(model(rows(i).requires_grad_())) for i in range(2)]


@case(Perceptron)
def checkpoint_around(model: nn.Module) -> Any:
    x = rows().requires_grad_()
    y = torch.utils.checkpoint.checkpoint(model, x, use_reentrant=False)
    backward(y)
    z = torch.utils.checkpoint.checkpoint(model, x, use_reentrant=True)
    backward(z)
    return [y, z, x.grad]


@case(Perceptron)
def functional_functional(model: nn.Module) -> Any:
    return torch.func.functional_call(model, {k: v * 2 for k, v in model.named_parameters()}, (rows(),)).detach()


@case(Perceptron)
def functional_vmap(model: nn.Module) -> Any:
    return torch.func.vmap(model)(rows(0, 3, 5, 4)).detach()


@case(Perceptron)
def functional_jac(model: nn.Module) -> Any:
    return torch.autograd.functional.jacobian(lambda x: model(x).sum(0), rows())


@case(Perceptron)
def functional_func_grad(model: nn.Module) -> Any:
    p = dict(model.named_parameters())
    return torch.func.grad(lambda p: torch.func.functional_call(model, p, (rows(),)).sum())(p)


class Tripled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, g):
        (x,) = ctx.saved_tensors
        return 3 * g * x


@case(made_of(lambda self, x: Tripled.apply(self.a(x))))
def function_custom(model: nn.Module) -> Any:
    return [backward(model(rows(i))) for i in range(2)]


@case(Perceptron)
def ema(model: nn.Module) -> Any:
    t = copy.deepcopy(model.module if hasattr(model, "module") else model)
    results = []
    for i in range(2):
        loss = (model(rows(i)) - t(rows(i)).detach()).square().mean()
        loss.backward()
        results.append(loss.detach())
        with torch.no_grad():
            for p, q in zip(t.parameters(), model.parameters()):
                p.lerp_(q, 0.1)
    return results
