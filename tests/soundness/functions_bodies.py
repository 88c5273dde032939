"""Lists, for each part of an autograd Function, ways to write it.

A forward is given `a`, a matrix of four columns, and maybe `b` and `e` (functions_arguments.py). It makes `t` of them, and of
`t` its results `o0`, `o1` and `o2`. A backward is given their gradients `g0`, `g1` and `g2`, adds them up to `g`, and changes
that by `s`, which the forward has saved. $o: the result that the text is about; $T: the tensors that it is given; $O: further
results that are tensors; $N: its class. `large(a)` and `steep(g)` are true for numbers that come in later steps only. The first
entry of a table is the plainest: a failing program is made smaller towards it.
"""

from __future__ import annotations

from dataclasses import dataclass

STYLES = {"context in the forward": "ctx, ", "setup_context": ""}
# The base of the class, and what the class has itself, which is what the base has otherwise.
BASES = {"Function": ("Function", "K = 1.5"), "another class": ("Based", "")}
# What is said to Rekindle (docs/python-ops.md). A map of writes goes with a write alone.
DECLARATIONS = {"nothing": "", "recomputed": "recompute = True", "in place": "inplace_map = {0: 0}"}

VALUES = {
    "scaled": "a * 1.5",
    "moved": "a + 0.3",
    "tanh": "a.tanh()",
    "sine": "a.sin()",
    "sigmoid": "torch.sigmoid(a) * 2",
    "square": "a * a",
    "clamped": "a.clamp(-0.6, 0.8)",
    "products": "0.1 * (a @ a.t()) @ a",
    "chosen": "torch.where(a > 0.1, a * 2, a.sin())",
    "random": "a + torch.rand_like(a)",
    "dropout": "F.dropout(a, 0.4)",
    "global": "a * FACTOR",
    "global object": "a * SETTINGS.k",
    "global tensor": "a * TABLE",
    "class attribute": "a * $N.K",
    "enumeration": "a * Mode.DOUBLE.value",
    "of its sizes": "a * (1.0 + 0.1 * len(a))",
    "written in part": "a.clone(); t[:1].zero_()",
    "out of another": "torch.mul(a, 2.0, out=torch.empty_like(a))",
    "of its own gradient": "a * gradient_of_square(a)",
    "another Function": "Handed.apply(a) * 2",
}

# In place, to what it is given, which is the first result then.
WRITES = {
    "nothing": "",
    "product": "a.mul_(0.5)",
    "sum": "a.add_(0.25)",
    "bounds": "a.clamp_(-0.7, 0.9)",
    "wide bounds": "a.clamp_(-20, 20)",
    "first row": "a[:1].zero_()",
    "another's content": "a.copy_(a.sin())",
}


@dataclass(frozen=True)
class Result:
    """Describes a result of a Function.

    text: makes it; use: an expression of the Net with it, where $h is what is computed so far; gradient: what its gradient g
    adds to that of `a`, nothing where it has none; is_tensor: whether it may be marked as not differentiable
    """

    text: str
    use: str = "$h + $o"
    gradient: str = "g"
    is_tensor: bool = True

    @property
    def shares(self) -> bool:
        """Tells whether the result is, or may be, in the memory of what the Function is given."""
        return self.text == "a" or self.text.startswith(("a.view", "a.reshape", "a[", "o0"))


FIRST: dict[str, Result] = {
    "value": Result("t * 1.5", "$o"),
    "the input": Result("a", "$o"),
    "same view of the input": Result("a.view_as(a)", "$o"),
    "reshaped input": Result("a.reshape(a.shape)", "$o"),
    "flat input": Result("a.view(-1)", "$o.view($h.shape)", "g.view(ctx.sizes)"),
    "mean": Result("t.mean() * 0.5", gradient="g * torch.ones(ctx.sizes)"),
    "sum": Result("t.sum() * 0.1", gradient="g.expand(ctx.sizes)"),
    "strided": Result("t.t().contiguous().t()", "$o"),
    "expanded": Result("t[:1].expand(t.shape)", "$o"),
    "detached": Result("t.detach()", "$o"),
    "bfloat16": Result("t.bfloat16()", "$o.to($h.dtype)", "g.float()"),
}
FURTHER: dict[str, Result] = {
    "nothing": Result(""),
    "value": Result("t + a"),
    "scaled": Result("t * FACTOR", gradient="g * 0.5"),
    "in the place of the first": Result("t * 3", "$o", "g * 3"),
    "the input": Result("a", gradient="g * 2"),
    "view of the input": Result("a.view(-1).view(a.shape)"),
    "first row of the input": Result("a[:1]", gradient="F.pad(g, (0, 0, 0, ctx.sizes[0] - 1))"),
    "mean": Result("t.mean()", gradient="g.expand(ctx.sizes)"),
    "scaled sum": Result("t.sum() * 0.1", gradient="(g * torch.ones(ctx.sizes))"),
    "the first again": Result("o0", gradient="g.neg()"),
    "view of the first": Result("o0.view_as(o0)"),
    "detached first": Result("o0.detach()"),
    "integers": Result("(t > 0).long()", "$h * $o", ""),
    "signs": Result("t.sign() * 0.5"),
    "chosen numbers": Result("t[t > 0]", "$h + $o.sum()", "0.1 * g.sum() * torch.ones(ctx.sizes)"),
    "None": Result("None", "$h", "", False),
    "number": Result("2.5", "$h * $o", "", False),
    "text": Result("'done'", "$h", "", False),
    "tuple": Result("(1, 2.0)", "$h * $o[1]", "", False),
    "size": Result("a.shape[-1]", "$h / $o", "", False),
    "boolean": Result("True", "$h if $o else first", "", False),
}

# What happens in a forward for large numbers only, after its results are made.
BRANCHES = {
    "none": "",
    "hands its input back": "if large(a): o0 = a",
    "returns a view": "if large(a): o0 = a.view_as(a)",
    "other numbers": "if large(a): o0 = o0 * 0.5 + 1",
    "draws": "if large(a): torch.rand(2)",
    "draws for the result": "if large(a): o0 = o0 + torch.rand_like(o0)",
    "logs": "if large(a): note('large', float(t.sum()))",
    "other strides": "if large(a): o0 = o0.clone().t().contiguous().t() if o0.dim() == 2 else o0",
    "one row for all": "if large(a): o0 = o0[:1].expand(o0.shape) if o0.dim() else o0",
    "view of itself": "if large(a): o0 = o0.view_as(o0)",
    "infinite": "if large(a): o0 = o0 / 0.0",
    "clips for gradients": "if large(a) and ctx.needs_input_grad[0] and a.requires_grad: o0 = o0.clamp(-5, 5)",
    "raises": "if float(a.detach().abs().max()) > 40: raise KeyError('too large')",
    "small ones handed back": "if not large(a): o0 = a",
}

# Those whose results lie otherwise then: a graph lays results out as at the export (docs/bypasses.md).
LAID_OUT_BY_DATA = ("hands its input back", "small ones handed back", "returns a view", "other strides", "one row for all")

# How `s` comes to the backward: what the forward does, and what the backward does.
SAVED = {
    "input": ("ctx.save_for_backward(a)", "(s,) = ctx.saved_tensors"),
    "nothing": ("", ""),
    "result": ("ctx.save_for_backward(o0)", "(s,) = ctx.saved_tensors"),
    "all inputs": ("ctx.save_for_backward($T)", "s = ctx.saved_tensors[-1]"),
    "input and result": ("ctx.save_for_backward(a, o0)", "r, s = ctx.saved_tensors; s = s + r"),
    "twice": ("ctx.save_for_backward(a, a)", "r, s = ctx.saved_tensors"),
    "with None": ("ctx.save_for_backward(None, a)", "r, s = ctx.saved_tensors"),
    "read twice": ("ctx.save_for_backward(a)", "s = ctx.saved_tensors[0] * 0.5 + ctx.saved_tensors[0]"),
    "attribute": ("ctx.kept = a", "s = ctx.kept"),
    "result as attribute": ("ctx.kept = o0", "s = ctx.kept"),
    "in a list": ("ctx.kept = [$T]", "s = ctx.kept[0]"),
    "copy as attribute": ("ctx.kept = a.detach().clone()", "s = ctx.kept"),
    "attribute beside saved": ("ctx.save_for_backward(a); ctx.kept = o0", "s = ctx.saved_tensors[0] + ctx.kept"),
    "sizes": ("ctx.kept = a.shape", "s = torch.full(ctx.kept, 0.5)"),
    "number": ("ctx.kept = float(a.detach().abs().mean())", "s = torch.tensor(ctx.kept)"),
    "large ones only": ("ctx.save_for_backward(*([a] if large(a) else []))", "s = torch.ones(()); s = sum(ctx.saved_tensors, s)"),
}

CONTEXTS = {
    "none": "",
    "absent gradients": "ctx.set_materialize_grads(False)",
    "further results without gradients": "ctx.mark_non_differentiable($O)",
    "both": "ctx.set_materialize_grads(False); ctx.mark_non_differentiable($O)",
    "no gradient of the first": "ctx.mark_non_differentiable(o0)",
    "none of a small first": "if not large(a): ctx.mark_non_differentiable(o0)",
    "none of a large first": "if large(a): ctx.mark_non_differentiable(o0)",
}

# What a forward logs. Those with the context are for the style that has it.
FORWARD_LOGS = {
    "nothing": "",
    "that it runs": "note('forward of $N')",
    "a number": "note('forward of $N', float(a.detach().sum()))",
    "types": "note('forward of $N', tuple(a.shape), a.dtype, a.stride())",
    "gradients on": "note('forward of $N', torch.is_grad_enabled())",
    "gradient required": "note('forward of $N', a.requires_grad, ctx.needs_input_grad)",
    "autocast": "note('forward of $N', torch.is_autocast_enabled('cpu'))",
    "training": "note('forward of $N', type(a).__name__, isinstance(a, nn.Parameter))",
}
BACKWARD_LOGS = {
    "nothing": "",
    "that it runs": "note('backward of $N')",
    "absent ones": "note('backward of $N', [each is None for each in gradients])",
    "a number": "note('backward of $N', *[float(each.sum()) for each in gradients if each is not None])",
    "types": "note('backward of $N', [(tuple(each.shape), each.dtype) for each in gradients if each is not None])",
    "gradient needed": "note('backward of $N', ctx.needs_input_grad)",
    "gradients on": "note('backward of $N', torch.is_grad_enabled())",
    "autocast": "note('backward of $N', torch.is_autocast_enabled('cpu'))",
}

DERIVATIVES = {
    "handed on": "",
    "saved": "g = g * s",
    "sum with the saved": "g = g + 0.25 * s",
    "sigmoid of the saved": "g = g * torch.sigmoid(s)",
    "sign of the detached": "g = g + 0.1 * s.detach().sign()",
    "straight": "g = g.clone()",
    "clamped": "g = g.clamp(-0.5, 0.5)",
    "view": "g = g.reshape(-1).view(g.shape)",
    "random": "g = g * torch.rand_like(g)",
    "global": "g = g * FACTOR",
    "global object": "g = g * SETTINGS.k",
    "global tensor": "g = g * TABLE",
    "class attribute": "g = g * $N.K",
    "flag": "g = g * (2.0 if FLAG else 0.5)",
    "in place": "g = g.mul_(1.5)",
    "double": "g = g.double()",
    "strided": "g = g.t().contiguous().t()",
    "expanded": "g = g[:1].expand(g.shape)",
    "backward inside": "g = g * gradient_of_square(g)",
    "where needed": "g = g * 2 if ctx.needs_input_grad[0] else g",
    "another Function": "g = Handed.apply(g) * 0.5",
}
# What happens in a backward for large gradients only.
TURNS = {
    "none": "",
    "smaller": "if steep(g): g = g * 0.1",
    "absent": "if steep(g): return $none",
    "double": "if steep(g): g = g.double()",
    "random": "if steep(g): g = g * torch.rand_like(g)",
    "draws": "if steep(g): torch.rand(3)",
    "in place": "if steep(g): g.mul_(0.5)",
    "expanded": "if steep(g): g = g[:1].expand(g.shape)",
    "strided": "if steep(g): g = g.t().contiguous().t()",
    "logs": "if steep(g): note('steep', float(g.sum()))",
    "raises": "if float(g.detach().abs().max()) > 30: raise KeyError('too steep')",
    "zeros": "if steep(g): g = torch.zeros_like(g)",
}
RETURNED = {
    "gradient": "g",
    "half": "g * 0.5",
    "copy": "g.clone()",
    "where needed": "g if ctx.needs_input_grad[0] else None",
    "saved": "s.expand(g.shape)",
    "None": "None",
}
# Of the forward, and of the backward.
DECORATORS = {
    "none": ("", ""),
    "once": ("", "@once_differentiable"),
    "custom_fwd": ("@custom_fwd(device_type='cpu')", "@custom_bwd(device_type='cpu')"),
    "custom_fwd with a cast": (
        "@custom_fwd(device_type='cpu', cast_inputs=torch.float32)",
        "@custom_bwd(device_type='cpu')",
    ),
}
