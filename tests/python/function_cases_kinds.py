"""Kinds of Functions as libraries have them: fused, in mixed precision, declared in part. See test_python_ops.py."""

from __future__ import annotations

import math
from typing import Any

import torch
from function_cases import Plain, Tripled
from function_cases_memory import Handed, Same
from function_support import FUNCTIONS, used_by
from semantics_support import made_of
from torch import nn
from torch.autograd import Function


@used_by(lambda self, x: Fused.apply(x, self.a.weight, self.a.bias))
class Fused(Function):
    """Gets parameters, which stay what they are; a gradient goes where the parameter says."""

    @staticmethod
    def forward(ctx, x, weight, bias):
        assert isinstance(weight, nn.Parameter)
        ctx.save_for_backward(x, weight)
        return nn.functional.linear(x, weight, bias)

    @staticmethod
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        assert isinstance(weight, nn.Parameter)
        weight.main_grad.add_(gradient.t() @ x)
        return gradient @ weight, None, gradient.sum(0)


FUNCTIONS["Fused"] = made_of(
    lambda self, x: Fused.apply(x, self.a.weight, self.a.bias) * self.b(x),
    lambda self: setattr(self.a.weight, "main_grad", torch.zeros(4, 4)),
)


class _Base(Function):
    @classmethod
    def factor(cls):
        return 2.0

    @staticmethod
    def forward(ctx, x):
        ctx.factor = 4.0
        return x * 4.0

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.factor


@used_by(lambda self, x: Inherits.apply(self.a(x)))
class Inherits(_Base):
    @staticmethod
    def backward(ctx, gradient):
        return _Base.backward(ctx, gradient) * _Base.factor()


@used_by(lambda self, x: OverridesApply.apply(self.a(x), factor=3.0))
class OverridesApply(Function):
    @classmethod
    def apply(cls, x, *, factor):
        return super().apply(x * 2, factor) + 1

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.factor, None


_bound_apply = Tripled.apply
FUNCTIONS["apply kept in a global"] = made_of(lambda self, x: _bound_apply(self.a(x)))


@used_by(lambda self, x: Defaults.apply(self.a(x)))
class Defaults(Function):
    @staticmethod
    def forward(x, factor=2.5):
        return x * factor

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.factor = inputs[1]
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.factor, None


@used_by(lambda self, x: NewStyleDirty.apply(self.a(x)) * self.b(x))
class NewStyleDirty(Function):
    @staticmethod
    def forward(x):
        return x.exp_()

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.mark_dirty(inputs[0])
        ctx.save_for_backward(output)

    @staticmethod
    def backward(ctx, gradient):
        return gradient * ctx.saved_tensors[0]


@used_by(lambda self, x: KeepsOnContext.apply(self.a(x)))
class KeepsOnContext(Function):
    """Not with save_for_backward."""

    @staticmethod
    def forward(ctx, x):
        ctx.x, ctx.more = x, {"sine": x.sin()}
        return x.cos()

    @staticmethod
    def backward(ctx, gradient):
        assert torch.equal(ctx.more["sine"], ctx.x.sin())
        return -gradient * ctx.more["sine"]


@used_by(lambda self, x: StraightThrough.apply(self.a(x)).mul(self.b(x)))
class StraightThrough(Function):
    @staticmethod
    def forward(ctx, x):
        return x.sign()

    @staticmethod
    def backward(ctx, gradient):
        return gradient.clamp(-1, 1)


@used_by(lambda self, x: WithAutocast.apply(self.a(x), self.b.weight))
class WithAutocast(Function):
    @staticmethod
    @torch.amp.custom_fwd(device_type="cpu", cast_inputs=torch.float32)
    def forward(ctx, x, weight):
        ctx.save_for_backward(x, weight)
        return x @ weight

    @staticmethod
    @torch.amp.custom_bwd(device_type="cpu")
    def backward(ctx, gradient):
        x, weight = ctx.saved_tensors
        return gradient @ weight.t(), x.t() @ gradient


@used_by(lambda self, x: ScaledMaskedSoftmax.apply(self.a(x) @ self.b(x).t(), torch.ones(len(x), len(x)).triu(1).bool(), 0.5))
class ScaledMaskedSoftmax(Function):
    @staticmethod
    def forward(ctx, x, mask, scale):
        result = (x * scale).masked_fill(mask, -10000.0).softmax(-1)
        ctx.scale = scale
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, gradient):
        (result,) = ctx.saved_tensors
        return (gradient - (gradient * result).sum(-1, keepdim=True)) * result * ctx.scale, None, None


@used_by(lambda self, x: Blocks.apply(self.a(x).contiguous(), 2))
class Blocks(Function):
    """A kernel for a grid of blocks, each writing its part of the result, as the CPU twin of a Triton kernel."""

    @staticmethod
    def forward(ctx, x, block):
        result = torch.empty_like(x)
        flat, out = x.view(-1), result.view(-1)
        for i in range(math.ceil(flat.numel() / block)):
            part = slice(i * block, (i + 1) * block)
            out[part] = flat[part] * torch.sigmoid(flat[part])
        ctx.save_for_backward(x)
        return result

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        sigmoid = torch.sigmoid(x)
        return gradient * sigmoid * (1 + x * (1 - sigmoid)), None


def _without_gradient(self, x):
    with torch.no_grad():
        target = Tripled.apply(self.b(x))
    return self.a(x) * target


FUNCTIONS["in a no_grad region"] = made_of(_without_gradient)
FUNCTIONS["of a detached tensor"] = made_of(lambda self, x: Tripled.apply(self.b(x).detach()) * self.a(x))
FUNCTIONS["after another"] = made_of(lambda self, x: Tripled.apply(Handed.apply(Same.apply(self.a(x)), x)))
FUNCTIONS["a result read twice"] = made_of(lambda self, x: (lambda y: y * y + y.sum())(Tripled.apply(self.a(x))))


class Traced(Function):
    """Inlined: autograd gives the same gradient."""

    inline = True

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return (x * factor).tanh()

    @staticmethod
    def backward(ctx, gradient):
        raise NotImplementedError


def _in_eager(x: torch.Tensor, factor: float) -> torch.Tensor:
    return (x * factor).tanh()


class Exported(Function):
    """What the graph gets is what `export` computes."""

    @staticmethod
    def forward(ctx, x, factor):
        result = _in_eager(x, factor)
        ctx.factor = factor
        ctx.save_for_backward(result)
        return result

    @staticmethod
    def backward(ctx, gradient):
        (result,) = ctx.saved_tensors
        return gradient * (1 - result * result) * ctx.factor, None


def _export(x: Any, factor: float) -> Any:
    return _in_eager(x, factor)


FUNCTIONS["Exported"] = made_of(lambda self, x: Exported.apply(self.a(x), 0.5))
FUNCTIONS["constants that differ"] = made_of(
    lambda self, x: sum(
        Plain.apply(self.a(x), i, 0.5, "twice", None, True, (1, [2, {"k": 3}]), torch.float32, torch.Size([4])) for i in (1, 2, 3)
    )
)
