"""More modules whose forward calls custom autograd Functions: objects, aliases, gradients that are not there, nesting."""

from __future__ import annotations

import functools
import math
from typing import Any

import rekindle
import torch
from function_cases import FUNCTIONS, LOG, Plain, Tripled, used_by
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


@used_by(lambda self, x: Wide.apply(self.a(x))[3] + Wide.apply(self.b(x))[1])
class Wide(Function):
    """Several results, of which most are not read."""

    @staticmethod
    def forward(ctx, x):
        return tuple(x * i for i in range(5))

    @staticmethod
    def backward(ctx, *gradients):
        return sum(i * gradient for i, gradient in enumerate(gradients))


def _without_gradient(self, x):
    with torch.no_grad():
        target = Tripled.apply(self.b(x))
    return self.a(x) * target


FUNCTIONS["in a no_grad region"] = made_of(_without_gradient)
FUNCTIONS["of a detached tensor"] = made_of(lambda self, x: Tripled.apply(self.b(x).detach()) * self.a(x))
FUNCTIONS["after another"] = made_of(lambda self, x: Tripled.apply(Handed.apply(Same.apply(self.a(x)), x)))
FUNCTIONS["a result read twice"] = made_of(lambda self, x: (lambda y: y * y + y.sum())(Tripled.apply(self.a(x))))


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


rekindle.register_python_op(Exported, export=_export)
FUNCTIONS["Exported"] = made_of(lambda self, x: Exported.apply(self.a(x), 0.5))
FUNCTIONS["constants that differ"] = made_of(lambda self, x: sum(Plain.apply(self.a(x), i, 0.5, "twice", None, True, (1, [2, {"k": 3}]), torch.float32, torch.Size([4])) for i in (1, 2, 3)))
