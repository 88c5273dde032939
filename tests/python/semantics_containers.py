"""Lists cases of what holds the tensors of a call and of its results: lists, dicts, named tuples, dataclasses.

Each case runs in eager, with a cold and with a warm cache.
"""

from __future__ import annotations

import collections
import dataclasses
from typing import Any, NamedTuple

import torch
from semantics_support import backward, case, made_of, rows
from torch import nn
from transformers.modeling_outputs import BaseModelOutput


@dataclasses.dataclass
class Pair:
    p: torch.Tensor
    q: Any = None


class Both(NamedTuple):
    u: torch.Tensor
    v: torch.Tensor


@case(made_of(lambda self, x: Pair(self.a(x), "name")))
def dataclass_out(model: nn.Module) -> Any:
    r = model(rows())
    r.p.sum().backward()
    return [type(r).__name__, r.p, r.q]


@case(made_of(lambda self, d: self.a(d.p)))
def dataclass_in(model: nn.Module) -> Any:
    return backward(model(Pair(rows())))


@case(made_of(lambda self, d: Both(self.a(d.u), self.b(d.v))))
def namedtuple(model: nn.Module) -> Any:
    r = model(Both(rows(), rows(1)))
    return [backward(r), type(r).__name__]


@case(
    made_of(
        lambda self, d: {
            0: self.a(d[0]),
            "k": [self.b(d["k"][0]), (d["n"], None, "text", 3, 2.5, True)],
            7.5: once(d),
        }
    )
)
def dict(model: nn.Module) -> Any:
    return backward(model({0: rows(), "k": [rows(1)], "n": None}))


def once(d):
    return d[0] * 1


@case(made_of(lambda self, x: [self.a(x), [self.b(x)], ()]))
def nested_list(model: nn.Module) -> Any:
    return backward(model(rows()))


@case(made_of(lambda self, x: collections.OrderedDict(a=self.a(x), b=self.b(x))))
def od(model: nn.Module) -> Any:
    r = model(rows())
    return [type(r).__name__, backward(r)]


@case(made_of(lambda self, x: collections.defaultdict(list, a=self.a(x))))
def dd(model: nn.Module) -> Any:
    r = model(rows())
    return [type(r).__name__, backward({**r})]


def _forward_mutated_dict(self, d):
    y = self.a(d["x"])
    d["out"] = y.detach()
    return y


@case(made_of(_forward_mutated_dict))
def mutated_dict(model: nn.Module) -> Any:
    d = {"x": rows()}
    backward(model(d))
    d2 = {"x": rows(1)}
    backward(model(d2))
    return [d, d2]


def _forward_mutated_list(self, inputs):
    y = self.a(inputs.pop())
    return y


@case(made_of(_forward_mutated_list))
def mutated_list(model: nn.Module) -> Any:
    d = [rows(), rows(1)]
    backward(model(d))
    e = [rows(), rows(1)]
    backward(model(e))
    return [d, e]


@case(made_of(lambda self, d: self.a(d.p) * d.q))
def dataclass_in2(model: nn.Module) -> Any:
    return [backward(model(Pair(rows(), q))) for q in (1, 2, 1)]


@dataclasses.dataclass(frozen=True)
class FrozenPair:
    p: torch.Tensor
    q: Any = None


def _forward_dataclass_mut(self, d):
    d.q = self.b(d.p)
    return self.a(d.p)


@case(made_of(_forward_dataclass_mut))
def dataclass_mut(model: nn.Module) -> Any:
    d = Pair(rows())
    backward(model(d))
    e = Pair(rows(1))
    backward(model(e))
    return [d.q, e.q]


@case(made_of(lambda self, d: FrozenPair(self.a(d.p), [d.q, {1: self.b(d.p)}])))
def dataclass_both(model: nn.Module) -> Any:
    r = model(FrozenPair(rows(), "x"))
    return [backward([r.p, r.q]), type(r).__name__]


@case(made_of(lambda self, d: self.a(d[1, 2]) + d["z"]))
def tuple_keys(model: nn.Module) -> Any:
    return [backward(model({(1, 2): rows(), "z": 1.0})), backward(model({(1, 2): rows(), "z": 2.0}))]


@case(
    made_of(
        lambda self, results: BaseModelOutput(
            last_hidden_state=self.a(results.last_hidden_state), attentions=(self.b(results[0]),)
        )
    )
)
def modeloutput(model: nn.Module) -> Any:
    r = model(BaseModelOutput(last_hidden_state=rows()))
    return [type(r).__name__, backward([r[0], r.attentions]), list(r.keys())]
