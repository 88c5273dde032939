"""What Functions return: no tensors, other types and layouts, indices, numbers drawn. See test_python_ops.py."""

from __future__ import annotations

import torch
from function_support import FUNCTIONS, used_by
from semantics_support import made_of
from torch import nn
from torch.autograd import Function


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


@used_by(lambda self, x: (StridedGradient.apply(self.a(x)) * self.b(x)).sum(0))
class StridedGradient(Function):
    @staticmethod
    def forward(ctx, x):
        return x.t().contiguous().t()

    @staticmethod
    def backward(ctx, gradient):
        return gradient.t().contiguous().t().expand_as(gradient)


@used_by(lambda self, x: Wide.apply(self.a(x))[3] + Wide.apply(self.b(x))[1])
class Wide(Function):
    """Several results, of which most are not read."""

    @staticmethod
    def forward(ctx, x):
        return tuple(x * i for i in range(5))

    @staticmethod
    def backward(ctx, *gradients):
        return sum(i * gradient for i, gradient in enumerate(gradients))


@used_by(lambda self, x: OfIndices.apply(self.a(x), torch.arange(len(x)).flip(0)))
class OfIndices(Function):
    @staticmethod
    def forward(ctx, x, index):
        ctx.save_for_backward(index)
        return x[index]

    @staticmethod
    def backward(ctx, gradient):
        (index,) = ctx.saved_tensors
        return torch.zeros_like(gradient).index_add(0, index, gradient), None


@used_by(lambda self, x: ToScalar.apply(self.a(x)) * self.b(x))
class ToScalar(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x.norm()

    @staticmethod
    def backward(ctx, gradient):
        return gradient.expand(ctx.shape)


@used_by(lambda self, x: EmptyResult.apply(self.a(x)).sum() + self.b(x))
class EmptyResult(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.shape = x.shape
        return x[:0]

    @staticmethod
    def backward(ctx, gradient):
        return torch.ones(ctx.shape)


@used_by(lambda self, x: DrawsInBackward.apply(self.a(x)))
class DrawsInBackward(Function):
    @staticmethod
    def forward(ctx, x):
        return x + torch.randn_like(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * torch.rand_like(gradient)


FUNCTIONS["between random operators"] = made_of(
    lambda self, x: nn.functional.dropout(DrawsInBackward.apply(nn.functional.dropout(self.a(x), 0.5)), 0.5)
)
