"""Functions that call others and modules, and what they are given; checkpoints. See test_python_ops.py."""

from __future__ import annotations

import functools

import rekindle
import torch
from function_cases import Tripled
from function_support import FUNCTIONS, LOG, used_by
from semantics_support import made_of
from torch import nn
from torch.autograd import Function
from torch.utils.checkpoint import checkpoint, checkpoint_sequential


@used_by(lambda self, x: Nested.apply(self.a(x)))
class Nested(Function):
    @staticmethod
    def forward(ctx, x):
        with torch.enable_grad():
            inner = x.detach().requires_grad_()
            result = Tripled.apply(inner)
        ctx.save_for_backward(inner, result)
        return result.detach()

    @staticmethod
    def backward(ctx, gradient):
        inner, result = ctx.saved_tensors
        return torch.autograd.grad(result, inner, gradient, retain_graph=True)[0]


@used_by(lambda self, x: NestedBothWays.apply(self.a(x), 3).sin())
class NestedBothWays(Function):
    """Its forward and its backward apply other Functions, which nest in turn."""

    @staticmethod
    def forward(ctx, x, depth):
        ctx.depth = depth
        ctx.save_for_backward(x)
        return Tripled.apply(x) if depth == 0 else NestedBothWays.apply(x, depth - 1)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return Tripled.apply(gradient) * 0.1 + x, None


FUNCTIONS["nothing reads it"] = made_of(lambda self, x: (Tripled.apply(self.a(x)), self.b(x))[1])
FUNCTIONS["nothing reads what is made of it"] = made_of(lambda self, x: (Tripled.apply(self.a(x)).exp(), self.b(x))[1])


@used_by(lambda self, x: (Tells.apply(self.a(x), "here"), self.b(x))[1])
class Tells(Function):
    """Called for its effect: it returns nothing."""

    @staticmethod
    def forward(ctx, x, what):
        LOG.info("%s", what)

    @staticmethod
    def backward(ctx, *_):
        raise AssertionError("nothing to differentiate")


@used_by(lambda self, x: NoGradient.apply(self.a(x)) + self.b(x))
class NoGradient(Function):
    """The parameters before it get no gradient at all."""

    @staticmethod
    def forward(ctx, x):
        return x.round()

    @staticmethod
    def backward(ctx, gradient):
        return None


@used_by(lambda self, x: SometimesNoGradient.apply(self.b(self.a(x).tanh()).relu() * 2))
class SometimesNoGradient(Function):
    """Depends on the number of rows: in one step there is a gradient, in the next there is none."""

    @staticmethod
    def forward(ctx, x):
        ctx.any = len(x) != 3
        return x * 2

    @staticmethod
    def backward(ctx, gradient):
        return gradient if ctx.any else None


@used_by(lambda self, x: OneOfTwo.apply(self.a(x), self.b(x)) + self.a(x) + x)
class OneOfTwo(Function):
    @staticmethod
    def forward(ctx, x, y):
        return x * y

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 5, None


# A gradient that is not there is added to one that is, in memory that one of the two is given.
FUNCTIONS["OneOfTwo beside its parameters"] = made_of(
    lambda self, x: OneOfTwo.apply(self.a(x), (self.b(x) * 3 - 1).exp()) * 3 + (self.b.bias * 2).tanh() + self.b.weight[0]
)


@used_by(lambda self, x: Silent.apply(self.a(x))[1])
class Silent(Function):
    """Gradients are not materialized, and passed on so."""

    @staticmethod
    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x.detach().round()

    @staticmethod
    def backward(ctx, first, second):
        return None if first is None else first * 2


FUNCTIONS["Silent in a sum"] = made_of(lambda self, x: Silent.apply(self.a(x))[1] + self.b(x))


@used_by(lambda self, x: CountsRows.apply(self.a(x))[0] * CountsRows.apply(self.a(x))[2])
class CountsRows(Function):
    """Returns what is no tensor."""

    @staticmethod
    def forward(ctx, x):
        return x * 2, "rows", len(x), (1.5, [None, True]), x.shape

    @staticmethod
    def backward(ctx, gradient, *_):
        return gradient * 2


@used_by(lambda self, x: Inside.apply(self.a(x), [self.b.weight, {"k": x}], 2))
class Inside(Function):
    """Tensors inside of containers: no gradient comes from here."""

    @staticmethod
    def forward(ctx, x, nested, times):
        weight, others = nested
        return x @ weight * times + others["k"].detach()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 3, None, None


@used_by(lambda self, x: Calls.apply(functools.partial(torch.add, self.b(x), alpha=2), self.a(x)))
class Calls(Function):
    """Its first argument is made at each call."""

    @staticmethod
    def forward(ctx, function, *tensors):
        return function(*(tensor * 2 for tensor in tensors))

    @staticmethod
    def backward(ctx, gradient):
        return None, gradient * 2


def _with_closure(self, x):
    scale = x.abs().max()

    def scaled(y, by=2.0):
        return self.b(y) * scale * by

    return Calls.apply(scaled, self.a(x))


FUNCTIONS["of a closure"] = made_of(_with_closure)
FUNCTIONS["of a bound method"] = made_of(lambda self, x: Calls.apply(self.b.forward, self.a(x)))
FUNCTIONS["of a module"] = made_of(lambda self, x: Calls.apply(self.b, self.a(x)))


@used_by(lambda self, x: Trains.apply(self.b, self.a(x)))
class Trains(Function):
    """Calls a module, and accumulates the gradients of its parameters itself."""

    @staticmethod
    def forward(ctx, module, x):
        ctx.module = module
        ctx.save_for_backward(x)
        return module(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        inner = x.detach().requires_grad_()
        with torch.enable_grad():
            ctx.module(inner).backward(gradient)
        return None, inner.grad


def _wrap_b(self):
    self.b = rekindle.Module(self.b, rekindle.Options(log="error"))


FUNCTIONS["of a wrapped module"] = made_of(lambda self, x: Trains.apply(self.b, self.a(x)), _wrap_b)


def _block(self, x):
    return self.b(torch.relu(self.a(x))).tanh()


def _checkpointed(reentrant, block=_block):
    return lambda self, x: checkpoint(functools.partial(block, self), self.a(x), use_reentrant=reentrant).sin()


def _with_dropout(self, x):
    return nn.functional.dropout(self.b(x), 0.5)


def _nested_checkpoint(reentrant):
    def block(self, x):
        return checkpoint(lambda y: self.b(y).relu(), self.a(x), use_reentrant=reentrant) * 2

    return block


for _reentrant in (True, False):
    _kind = "re-entrant" if _reentrant else "not re-entrant"
    FUNCTIONS[f"checkpoint, {_kind}"] = made_of(_checkpointed(_reentrant))
    FUNCTIONS[f"checkpoint of dropout, {_kind}"] = made_of(_checkpointed(_reentrant, _with_dropout))
    FUNCTIONS[f"checkpoint in a checkpoint, {_kind}"] = made_of(_checkpointed(_reentrant, _nested_checkpoint(_reentrant)))
    FUNCTIONS[f"checkpoint of a Function, {_kind}"] = made_of(_checkpointed(_reentrant, lambda self, x: Tripled.apply(self.b(x))))
    FUNCTIONS[f"checkpoint of a sequence, {_kind}"] = made_of(
        lambda self, x, r=_reentrant: checkpoint_sequential(nn.Sequential(self.a, nn.ReLU(), self.b), 2, x, use_reentrant=r)
    )
FUNCTIONS["checkpoint of what needs no gradient"] = made_of(
    lambda self, x: checkpoint(self.b, x.detach(), use_reentrant=True) + self.a(x)
)
