"""Modules whose forward calls custom autograd Functions: one a feature of Function. See test_python_ops.py."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch
from semantics_support import made_of
from torch import nn
from torch.autograd import Function
from torch.autograd.function import once_differentiable

# By name: how to make the module.
FUNCTIONS: dict[str, Callable[[], nn.Module]] = {}
# What Functions did, in order; in a log, because a forward must not change globals that it reads.
LOG = logging.getLogger("functions")
LOG.propagate = False  # whoever keeps a record keeps what it mentions alive
SCALE = 3.0


def used_by(forward: Callable[..., Any], prepare: Callable[[Any], Any] | None = None) -> Callable[[type], type]:
    """Register a Function under its name, called by this forward."""

    def register(function: type) -> type:
        FUNCTIONS[function.__name__] = made_of(forward, prepare)
        return function

    return register


@used_by(lambda self, x: Tripled.apply(self.a(x)))
class Tripled(Function):
    """A gradient that no derivation would find."""

    @staticmethod
    def forward(ctx, x):
        LOG.info("forward")
        ctx.save_for_backward(x)
        return x * x

    @staticmethod
    def backward(ctx, gradient):
        LOG.info("backward")
        (x,) = ctx.saved_tensors
        return 3 * gradient * x


@used_by(lambda self, x: Plain.apply(self.a(x), 2, 0.5, "twice", None, True, (1, [2, {"k": 3}]), torch.float32, torch.Size([4])))
class Plain(Function):
    @staticmethod
    def forward(ctx, x, times, factor, word, nothing, flag, nested, dtype, size):
        assert nothing is None
        assert flag is True
        assert nested == (1, [2, {"k": 3}])
        assert dtype is torch.float32
        assert type(size) is torch.Size
        ctx.factor = factor * times if word == "twice" else 0.0
        return x * ctx.factor

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.factor, None, None, None, None, None, None, None, None


class Settings:
    def __init__(self) -> None:
        self.factor = 1.5


@used_by(lambda self, x: TakesObjects.apply(self.a(x), self.settings, self.b, self.double), lambda self: _with_objects(self))
class TakesObjects(Function):
    @staticmethod
    def forward(ctx, x, settings, layer, function):
        ctx.factor = settings.factor
        return function(x) * settings.factor + layer.bias.detach()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2 * ctx.factor, None, None, None


def double(x):
    return 2 * x


def _with_objects(module):
    module.settings = Settings()
    module.double = double


@used_by(lambda self, x: TwoResults.apply(self.a(x), self.b(x))[0] + TwoResults.apply(self.b(x), self.a(x))[1])
class TwoResults(Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return x * y, x + 2 * y

    @staticmethod
    def backward(ctx, first, second):
        x, y = ctx.saved_tensors
        return first * y + second, first * x + 2 * second


@used_by(lambda self, x: Unmaterialized.apply(self.a(x))[0])
class Unmaterialized(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, first, second):
        assert second is None
        return first * 2


@used_by(lambda self, x: Materialized.apply(self.a(x))[0])
class Materialized(Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2, x * 3

    @staticmethod
    def backward(ctx, first, second):
        assert torch.count_nonzero(second) == 0
        return first * 2 + second


def _values_where_largest(self, x):
    values, index = Largest.apply(self.a(x))
    return values * (index > 1)


@used_by(_values_where_largest)
class Largest(Function):
    @staticmethod
    def forward(ctx, x):
        values, index = x.max(-1)
        ctx.mark_non_differentiable(index)
        ctx.save_for_backward(index)
        ctx.shape = x.shape
        return values, index

    @staticmethod
    def backward(ctx, gradient, _):
        (index,) = ctx.saved_tensors
        return torch.zeros(ctx.shape).scatter(-1, index[:, None], gradient[:, None])


@used_by(lambda self, x: SavesItsResult.apply(self.a(x)).tanh().add(1))
class SavesItsResult(Function):
    @staticmethod
    def forward(ctx, x):
        result = x.exp()
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, gradient):
        (result,) = ctx.saved_tensors
        return gradient * result


@used_by(lambda self, x: AsksWhatIsNeeded.apply(self.a(x), x.detach(), self.b.weight))
class AsksWhatIsNeeded(Function):
    @staticmethod
    def forward(ctx, x, constant, weight):
        ctx.save_for_backward(constant, weight)
        return x * constant @ weight

    @staticmethod
    def backward(ctx, gradient):
        assert ctx.needs_input_grad == (True, False, True)
        constant, weight = ctx.saved_tensors
        return gradient @ weight.T * constant, None, torch.ones_like(weight)


@used_by(lambda self, x: OnceOnly.apply(self.a(x)))
class OnceOnly(Function):
    @staticmethod
    def forward(ctx, x):
        return x.sin()

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        return gradient * 0.25


@used_by(lambda self, x: NewStyle.apply(self.a(x), 4.0)[0])
class NewStyle(Function):
    @staticmethod
    def forward(x, factor):
        return x * factor, x.detach().abs().sum()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.factor = inputs[1]
        ctx.mark_non_differentiable(output[1])

    @staticmethod
    def backward(ctx, gradient, _):
        return gradient * ctx.factor, None


@used_by(lambda self, x: CallsBackward.apply(self.a(x)))
class CallsBackward(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.cos()

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        with torch.enable_grad():
            inner = x.detach().requires_grad_()
            inner.cos().backward(gradient)
        return inner.grad


@used_by(lambda self, x: GivesItsInput.apply(self.a(x)) + self.b(x))
class GivesItsInput(Function):
    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -gradient


@used_by(lambda self, x: GivesPart.apply(self.a(x)).relu().mul(2))
class GivesPart(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.columns = x.shape[1]
        return x[:, :2]

    @staticmethod
    def backward(ctx, gradient):
        return nn.functional.pad(gradient, (0, ctx.columns - 2))


def _dirty(self, x):
    y = self.a(x)
    z = Dirty.apply(y)
    return z + y  # y is what the Function made of it


@used_by(_dirty)
class Dirty(Function):
    @staticmethod
    def forward(ctx, x):
        x.mul_(2)
        ctx.mark_dirty(x)
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


@used_by(lambda self, x: NoneAmongResults.apply(self.a(x), None)[1])
class NoneAmongResults(Function):
    @staticmethod
    def forward(ctx, x, mask):
        return None, x * 2

    @staticmethod
    def backward(ctx, _, gradient):
        return gradient * 2, None


@used_by(lambda self, x: Drops.apply(self.a(x), 0.5))
class Drops(Function):
    @staticmethod
    def forward(ctx, x, rate):
        mask = torch.rand_like(x) > rate
        ctx.save_for_backward(mask)
        return x * mask

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0], None


@used_by(lambda self, x: ChangesType.apply(self.a(x)).double().sum(-1))
class ChangesType(Function):
    @staticmethod
    def forward(ctx, x):
        return x.half()

    @staticmethod
    def backward(ctx, gradient):
        assert gradient.dtype is torch.float16
        return gradient.float()


@used_by(lambda self, x: ReadsGlobal.apply(self.a(x)))
class ReadsGlobal(Function):
    @staticmethod
    def forward(ctx, x):
        return x + SCALE

    @staticmethod
    def backward(ctx, gradient):
        return _scaled(gradient)


def _scaled(gradient):
    return gradient * SCALE


@used_by(lambda self, x: (StridedGradient.apply(self.a(x)) * self.b(x)).sum(0))
class StridedGradient(Function):
    @staticmethod
    def forward(ctx, x):
        return x.t().contiguous().t()

    @staticmethod
    def backward(ctx, gradient):
        return gradient.t().contiguous().t().expand_as(gradient)


def _made(factor):
    class Local(Function):
        @staticmethod
        def forward(ctx, x):
            return x * factor

        @staticmethod
        def backward(ctx, gradient):
            return gradient * factor * 2

    return Local


FUNCTIONS["local class"] = made_of(
    lambda self, x: self.first.apply(self.a(x)) + self.second.apply(self.b(x)),
    lambda self: (setattr(self, "first", _made(2.0)), setattr(self, "second", _made(5.0))),
)


def _several_times(self, x):
    for _ in range(3):
        x = Tripled.apply(x) * 0.1 + Plain.apply(x, 2, 0.5, "twice", None, True, (1, [2, {"k": 3}]), torch.float32, torch.Size([4]))
    return self.a(x)


FUNCTIONS["several times, before the layer"] = made_of(_several_times)
FUNCTIONS["of an input"] = made_of(lambda self, x: self.a(Tripled.apply(x)))
FUNCTIONS["on a parameter"] = made_of(lambda self, x: x @ Tripled.apply(self.a.weight))


class Positive(Function):
    """Not among those above: what it returns has other sizes from step to step."""

    @staticmethod
    def forward(ctx, x):
        rows = x.sum(-1) > 0
        ctx.save_for_backward(rows)
        return x[rows]

    @staticmethod
    def backward(ctx, gradient):
        (rows,) = ctx.saved_tensors
        result = torch.zeros(len(rows), gradient.shape[1])
        result[rows] = gradient
        return result


POSITIVE = made_of(lambda self, x: Positive.apply(self.a(x)).sum(0))


class Token:
    """Dies with the context that holds it."""


@used_by(lambda self, x: Holds.apply(self.a(x)))
class Holds(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.token = Token()
        LOG.info("%s", ctx.token)
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        assert isinstance(ctx.token, Token)
        return gradient * 2
