"""Modules whose forward calls custom autograd Functions: arguments, contexts, gradients. See test_python_ops.py."""

from __future__ import annotations

import torch
from function_support import FUNCTIONS, LOG, used_by
from semantics_support import made_of
from torch.autograd import Function
from torch.autograd.function import once_differentiable

SCALE = 3.0


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


@used_by(
    lambda self, x: TakesObjects.apply(self.a(x), self.settings, self.b, self.double),
    lambda self: _with_objects(self),
)
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
        x = Tripled.apply(x) * 0.1 + Plain.apply(
            x, 2, 0.5, "twice", None, True, (1, [2, {"k": 3}]), torch.float32, torch.Size([4])
        )
    return self.a(x)


FUNCTIONS["several times, before the layer"] = made_of(_several_times)
FUNCTIONS["of an input"] = made_of(lambda self, x: self.a(Tripled.apply(x)))
FUNCTIONS["on a parameter"] = made_of(lambda self, x: x @ Tripled.apply(self.a.weight))


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
