"""Functions that hand on, view or write what they are given, declared or not. See test_python_ops.py."""

from __future__ import annotations

import torch
from function_support import FUNCTIONS, used_by
from semantics_support import made_of
from torch import nn
from torch.autograd import Function


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


class _Doubled(Function):
    """Writes in place; subclasses say so or not."""

    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


@used_by(lambda self, x: DirtyDeclared.apply(self.a(x)).sin())
class DirtyDeclared(_Doubled):
    inplace_map = {0: 0}


@used_by(lambda self, x: DirtyDeclared2.apply(self.a(x).view(-1, 2, 2)).sin())
class DirtyDeclared2(_Doubled):
    """Of a view."""

    inplace_map = {0: 0}


def _read_again(self, x):
    y = self.a(x)
    other = y + 1
    return DirtyDeclared.apply(y) * other + y


FUNCTIONS["DirtyDeclared, read before and after"] = made_of(_read_again)


@used_by(lambda self, x: sum(DirtyOneOfTwo.apply(self.a(x), self.b(x))))
class DirtyOneOfTwo(Function):
    inplace_map = {1: 0}

    @staticmethod
    def forward(ctx, x, y):
        result = x * y
        ctx.save_for_backward(y)
        x.add_(1)
        ctx.mark_dirty(x)
        return result, x

    @staticmethod
    def backward(ctx, first, second):
        (y,) = ctx.saved_tensors
        return first * y + second, first


@used_by(lambda self, x: GivesItsInputDeclared.apply(self.a(x)) + self.b(x))
class GivesItsInputDeclared(Function):
    inplace_map = {0: 0}

    @staticmethod
    def forward(ctx, x):
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return -gradient


@used_by(lambda self, x: GivesPartDeclared.apply(self.a(x), 2).relu().mul(2))
class GivesPartDeclared(Function):
    inplace_map = {0: 0}

    @staticmethod
    def forward(ctx, x, columns):
        ctx.rest = x.shape[1] - columns
        return x[:, 1 : 1 + columns]

    @staticmethod
    def backward(ctx, gradient):
        return nn.functional.pad(gradient, (1, ctx.rest - 1)), None


@used_by(lambda self, x: Same.apply(self.a(x)).mul(2))
class Same(Function):
    """Returns the tensor that it was given."""

    @staticmethod
    def forward(ctx, x):
        return x

    @staticmethod
    def backward(ctx, gradient):
        return gradient


@used_by(lambda self, x: MaybeContiguous.apply(self.a(x).t() if len(x) == 3 else self.a(x)).cos().sum())
class MaybeContiguous(Function):
    """Whether it returns its input's memory depends on the input."""

    @staticmethod
    def forward(ctx, x):
        return x.contiguous()

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 0.5


@used_by(lambda self, x: torch.stack(InputAndMore.apply(self.a(x), self.b(x))))
class InputAndMore(Function):
    """Two results in the memory of the inputs, crosswise, one of its own."""

    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return y.view_as(y), x.view_as(x), x * y

    @staticmethod
    def backward(ctx, first, second, third):
        x, y = ctx.saved_tensors
        return second + third * y, first * 2 + third * x


@used_by(lambda self, x: Handed.apply(self.a(x), self.b(x)))
class Handed(Function):
    """Both gradients are the tensor that the backward was given."""

    @staticmethod
    def forward(ctx, x, y):
        return x + y

    @staticmethod
    def backward(ctx, gradient):
        return gradient, gradient


@used_by(lambda self, x: HandedView.apply(self.a.weight, x.sum()))
class HandedView(Function):
    @staticmethod
    def forward(ctx, weight, x):
        return weight.reshape(-1) * x

    @staticmethod
    def backward(ctx, gradient):
        return gradient.view(4, 4), gradient.sum()
