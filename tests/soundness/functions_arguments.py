"""Lists what autograd Functions are given besides a matrix, and what they do with it.

`h` is what the Net has computed so far, `first` what it began with. The first entry of a table is the plainest.
"""

from __future__ import annotations

from dataclasses import dataclass

INPUTS = {
    "so far": "h",
    "scaled": "h * 1.0",
    "the first": "first",
    "input of the model": "x",
    "detached": "h.detach()",
    "other strides": "h.t().contiguous().t()",
    "reversed": "h.flip(0)",
    "view": "h.view_as(h)",
    "expanded": "h.mean(0).expand(h.shape)",
}


@dataclass(frozen=True)
class Second:
    """Describes a second tensor, `b` in the Function.

    argument: the tensor; forward: a further statement about `t`; gradient: what the backward returns for it
    """

    argument: str
    forward: str = "t = t * b"
    gradient: str = "g * 0.5"


SECONDS: dict[str, Second] = {
    "nothing": Second("", "", ""),
    "the first": Second("first"),
    "the same": Second("h", "t = t + b"),
    "input of the model": Second("x"),
    "detached": Second("h.detach()"),
    "vector": Second("self.vector", gradient="g.sum(0)"),
    "vector, gradient of all rows": Second("self.vector", gradient="g"),
    "vector without gradient": Second("self.vector", gradient="None"),
    "vector, gradient where it is flat": Second("self.vector", gradient="None if steep(g) else g.sum(0)"),
    "made vector": Second("self.vector * 2", "t = t + b", "g.mean(0)"),
    "frozen vector": Second("self.frozen", gradient="g.sum(0)"),
    "buffer": Second("self.buffer", gradient="None"),
    "bias": Second("self.linear.bias", "t = t + b", "g.sum(0)"),
    "means": Second("h.mean(0)", gradient="g.sum(0)"),
    "expanded": Second("self.vector.expand(h.shape)"),
    "weight": Second("self.weight", "t = t @ b", "g.t() @ g"),
    "transposed weight": Second("self.weight.t()", "t = t @ b", "g.t() @ g"),
    "weight of a layer": Second("self.linear.weight", "t = t @ b.t()", "(g.t() @ g) * 0.1"),
    "made weight": Second("self.weight + 0.1", "t = t @ b", "g.t() @ g"),
    "rows": Second("self.weight[:1]", "t = t + b", "g[:1]"),
    "None": Second("None", "t = t if b is None else t * b", "None"),
}


@dataclass(frozen=True)
class Extra:
    """Describes a further value, `e` in the Function.

    argument: the value; factor: an expression of it, by which `t` is multiplied; forward, backward: statements about it
    """

    argument: str
    factor: str = "e"
    forward: str = ""
    backward: str = ""


_PLAIN: dict[str, Extra] = {
    "nothing": Extra("", ""),
    "number": Extra("1.5"),
    "boolean": Extra("True", "2.0 if e is True else 1.0"),
    "text": Extra("'twice'", "2.0 if e == 'twice' else 1.0"),
    "None": Extra("None", "1.0 if e is None else 3.0"),
    "negative zero": Extra("-0.0", "1.0 + math.copysign(0.5, e)"),
    "integer of many bits": Extra("2 ** 65", "e * 2.0 ** -65"),
    "infinity": Extra("math.inf", "1.0 if e == math.inf else 2.0"),
    "dtype": Extra("h.dtype", "torch.ones((), dtype=e)"),
    "device": Extra("h.device", "torch.ones((), device=e)"),
    "enumeration": Extra("Mode.DOUBLE", "e.value"),
    "class": Extra("Settings", "e.scale"),
    "size": Extra("h.shape[0]", "0.1 * e"),
    "sizes": Extra("h.shape", "0.1 * e[0]"),
    "list of sizes": Extra("list(h.shape)", "0.1 * e[0]"),
    "numel": Extra("h.numel()", "0.02 * e"),
    "fraction of a size": Extra("1.0 / h.size(0)"),
    "as many numbers as rows": Extra("[i for i in range(len(h))]", "0.1 * len(e)"),
    "attribute": Extra("self.k"),
    "computed from an attribute": Extra("self.k / h.shape[-1] ** 0.5"),
}
_CONTAINERS: dict[str, Extra] = {
    "tuple": Extra("(1, (0.5, 'z'))", "e[1][0]"),
    "list": Extra("[0.5, [1.5]]", "e[1][0]"),
    "dict": Extra("{'a': 0.5, 1: [2.0]}", "e[1][0]"),
    "nested with an attribute": Extra("{'p': (self.k, [None, 'x', True])}", "e['p'][0]"),
    "list of the module": Extra("self.numbers", "e[0]"),
    "dict of the module": Extra("self.names", "e['q']"),
    "list with a tensor": Extra("[h * 1.0, x]", "e[0].sin()"),
    "tuple with a tensor": Extra("(h * 1.0, 0.5)", "e[0].cos() * e[1]"),
    "dict with what it is given": Extra("{'h': h}", "(1.0 if e['h'] is None or not large(a) else e['h'].detach().sin())"),
    "dict with a buffer": Extra("{'h': h * 1.0, 'b': self.buffer}", "e['h'] * e['b']"),
    "list with a parameter": Extra("[self.vector]", "e[0].detach()"),
    "list with a global tensor": Extra("[TABLE]", "e[0]"),
    "list that is emptied by the backward": Extra("[2.0, 3.0]", "e[0]", backward="note('left', len(ctx.e), ctx.e.pop())"),
    "dict that the backward changes": Extra("{'k': 1.5}", "e['k']", backward="ctx.e['k'] *= 2; g = g * ctx.e['k']"),
    "list of the module that grows": Extra("self.notes", "1.0", backward="if steep(g): ctx.e.append('steep')"),
    "list of the module that the forward grows": Extra("self.notes", "1.0", "if large(a): e.append('large')"),
    "list of the forward that grows": Extra("flags", "1.0 + 0.1 * len(e)", "if large(a): e.append('large')"),
}
_OBJECTS: dict[str, Extra] = {
    "object of the module": Extra("self.settings", "e.k * e.scale"),
    "global object": Extra("SETTINGS", "e.k"),
    "the module": Extra("self", "e.k"),
    "attribute that the forward sets": Extra("self", "e.auxiliary.sin()"),
    "layer": Extra("self.linear", "e.bias.detach()"),
    "called layer": Extra("self.second", "e(a.detach()).detach().sigmoid()"),
    "method": Extra("self.method", "e(1.0)"),
    "function of the module": Extra("self.function", "e(torch.ones(()))"),
    "global function": Extra("by_factor", "e(torch.ones(()))"),
    "partial": Extra("functools.partial(number, k=self.k)", "e(None)"),
    "partial with a tensor": Extra("functools.partial(torch.mul, h * 1.0)", "e(0.5)"),
    "lambda": Extra("(lambda t: t * k)", "e(1.5)"),
    "lambda with a tensor": Extra("(lambda t, other=h * 1.0: t * other)", "e(1.5)"),
    "function of the forward": Extra("local", "e(1.0)"),
    "torch's function": Extra("torch.sin", "e(a.detach())"),
    "buffer, written where numbers are large": Extra("self.buffer", "e.detach().clone()", "if large(a): e.add_(1)"),
    "the module, whose buffer is written": Extra("self", "1.0", "if large(a): e.buffer.add_(1)"),
    "buffer, written by the backward": Extra("self.buffer", "1.0", backward="if steep(g): ctx.e.add_(1)"),
}
EXTRAS = _PLAIN | _CONTAINERS | _OBJECTS
