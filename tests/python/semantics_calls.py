"""Lists cases of what goes into a call and comes out: signatures, plain values, dtypes, shapes, views, errors.

Each case runs in eager, with a cold and with a warm cache.
"""

from __future__ import annotations

from typing import Any

import torch
from semantics_support import Perceptron, backward, case, made_of, rows
from torch import nn


def _forward_flag(self, x, flag=False):
    return self.a(x) * 2 if flag else self.a(x)


@case(made_of(_forward_flag))
def flag(model: nn.Module) -> Any:
    return [backward(model(rows(i), flag=i % 2 == 1)) for i in range(4)]


def _forward_none(self, x, mask=None):
    y = self.a(x)
    return y if mask is None else y * mask


@case(made_of(_forward_none))
def none(model: nn.Module) -> Any:
    return [backward(model(rows(i), None if i % 2 == 0 else rows(9))) for i in range(4)]


@case(made_of(_forward_none))
def tensor_none(model: nn.Module) -> Any:
    return [backward(model(rows(i), mask=None if i % 2 == 1 else rows(9))) for i in range(4)]


@case(made_of(lambda self, x, y: self.a(x) - self.b(y)))
def kw(model: nn.Module) -> Any:
    return [
        backward(model(rows(), rows(1))),
        backward(model(x=rows(), y=rows(1))),
        backward(model(y=rows(1), x=rows())),
        backward(model(rows(), y=rows(1))),
    ]


@case(made_of(lambda self, x, k=1: self.a(x) * k))
def int(model: nn.Module) -> Any:
    return [backward(model(rows(), k=k)) for k in (1, 2, 3, 1)]


@case(made_of(lambda self, x, k=1.0: self.a(x) * k))
def float(model: nn.Module) -> Any:
    return [backward(model(rows(), k)) for k in (1.0, 0.5, 1.0, True, 2)]


@case(made_of(lambda self, x: self.a(x) if x.shape[0] > 3 else self.b(x)))
def shape_branch(model: nn.Module) -> Any:
    return [backward(model(rows(i, n, 4))) for i, n in enumerate((5, 2, 5, 3, 4))]


@case(made_of(lambda self, *xs, scale=1.0, **kw: self.a(sum(xs)) * scale + kw["e"]))
def varargs(model: nn.Module) -> Any:
    return [backward(model(rows(), rows(1), scale=2.0, e=rows(2))), backward(model(rows(), e=rows(2)))]


@case(made_of(lambda self, x, *, mode="a": self.a(x) if mode == "a" else self.b(x)))
def kwonly(model: nn.Module) -> Any:
    return [backward(model(rows(), mode=k)) for k in "aba"]


@case(made_of(lambda self, x, unused, k=None: self.a(x)))
def unused(model: nn.Module) -> Any:
    u = rows(1).requires_grad_()
    r = backward(model(rows(), u, k={"z": rows(2)}))
    return [r, u.grad]


@case(Perceptron)
def noncontig(model: nn.Module) -> Any:
    return [
        backward(model(rows(0, 4, 5).t())),
        backward(model(rows(0, 5, 8)[:, ::2])),
        backward(model(rows(0, 1, 4).expand(5, 4))),
    ]


@case(made_of(lambda self, x, y: self.a(x) * self.b(y)))
def same_twice(model: nn.Module) -> Any:
    x = rows().requires_grad_()
    return [backward(model(x, x)), x.grad, backward(model(rows(), rows(1)))]


@case(made_of(lambda self, x: (x, self.a(x), x)))
def input_returned(model: nn.Module) -> Any:
    x = rows().requires_grad_()
    r = model(x)
    r[1].sum().backward()
    return [r[0] is x, r[2] is x, r[1], x.grad]


@case(made_of(lambda self, x: (x[:2], self.a(x))))
def view_of_input(model: nn.Module) -> Any:
    x = rows()
    v, y = model(x)
    backward(y)
    v.mul_(2)
    return [x, v, v._base is not None or v._is_view()]


def _forward_views_of_output(self, x):
    y = self.a(x)
    return (y, y[:2], y.t())


@case(made_of(_forward_views_of_output))
def views_of_output(model: nn.Module) -> Any:
    y, v, t = model(rows())
    w = y.detach()
    w.mul_(3)
    (y.sum() + v.sum() + t.sum()).backward()
    return [v.detach(), t.detach(), v.data_ptr() == y.data_ptr()]


@case(made_of(lambda self, x: (self.a(x).argmax(-1), self.a(x) > 0, x.shape, self.a(x))))
def int_out(model: nn.Module) -> Any:
    return backward(model(rows()))


@case(made_of(lambda self, x: None))
def none_again(model: nn.Module) -> Any:
    return [model(rows()), model(rows())]


@case(made_of(lambda self, x: 3.5))
def plain(model: nn.Module) -> Any:
    return model(rows())


@case(made_of(lambda self, x: self.a(x.float())))
def dtypes(model: nn.Module) -> Any:
    return [backward(model(rows().to(d))) for d in (torch.float32, torch.float64, torch.int64, torch.float16, torch.bool)]


@case(made_of(lambda self, x, i: self.a(x)[i]))
def index(model: nn.Module) -> Any:
    return [
        backward(model(rows(), torch.tensor([0, 2]))),
        backward(model(rows(), 1)),
        backward(model(rows(), slice(0, 2))),
        backward(model(rows(), torch.tensor([True, False, True, False, True]))),
    ]


@case(made_of(lambda self, x: self.a(x)))
def numpy_error(model: nn.Module) -> Any:
    try:
        model(rows().numpy())
        return "ok"
    except Exception as e:
        return type(e).__name__


@case(Perceptron)
def error_shape(model: nn.Module) -> Any:
    try:
        model(rows(0, 5, 7))
        return "ok"
    except Exception as e:
        return (type(e).__name__, str(e)[:60])


class OwnError(Exception):
    pass


def _forward_error_user(self, x):
    if x.shape[0] == 2:
        raise OwnError("boom")
    return self.a(x)


@case(made_of(_forward_error_user))
def error_user(model: nn.Module) -> Any:
    results = [backward(model(rows()))]
    try:
        model(rows(0, 2, 4))
    except OwnError as e:
        results.append(str(e))
    return [*results, backward(model(rows()))]


@case(Perceptron)
def error_missing_arg(model: nn.Module) -> Any:
    try:
        model()
        return "ok"
    except TypeError:
        return "TypeError"


@case(Perceptron)
def error_extra_kw(model: nn.Module) -> Any:
    try:
        model(rows(), zzz=1)
        return "ok"
    except TypeError:
        return "TypeError"
