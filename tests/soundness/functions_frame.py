"""Holds what the text of every program with autograd Functions has: helpers of its Functions, and the module around them."""

from __future__ import annotations

HEADER = """import enum
import functools
import logging
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.amp import custom_bwd, custom_fwd
from torch.autograd import Function
from torch.autograd.function import once_differentiable
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

LOG = logging.getLogger(__name__)
LOG.propagate = False
LOG.setLevel(logging.INFO)
FACTOR = 1.25
FLAG = False
TABLE = torch.tensor([0.5, 1.0, -0.5, 2.0])


class Mode(enum.Enum):
    SINGLE = 1.0
    DOUBLE = 2.0


class Settings:
    scale = 0.75

    def __init__(self):
        self.k = 1.5


SETTINGS = Settings()


def half(t):
    return t * 0.5


def by_factor(t):
    return t * FACTOR


def number(t, k=2.0):
    return float(k)


def note(*what):
    LOG.info("%s", what)


def large(t):
    return float(t.detach().abs().max()) > 4


def steep(g):
    return float(g.detach().abs().max()) > 6


def total(*pairs):
    known = [term(g) for g, term in pairs if g is not None]
    return functools.reduce(torch.add, known) if known else None


def gradient_of_square(t):
    with torch.enable_grad():
        t = t.detach().clone().requires_grad_()
        (t.sin() * t).sum().backward()
    return t.grad


class Handed(Function):
    @staticmethod
    def forward(ctx, t):
        return t.clone()

    @staticmethod
    def backward(ctx, g):
        return g * 1.5


class Based(Function):
    K = 2.0


class Applies(nn.Module):
    def forward(self, function, *given):
        return function.apply(*given)


"""
NET = """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.second = nn.Linear(4, 4)
        self.dropout = nn.Dropout(0.3)
        self.applies = Applies()
        self.vector = nn.Parameter(torch.rand(4) + 0.2)
        self.frozen = nn.Parameter(torch.rand(4), requires_grad=False)
        self.weight = nn.Parameter(torch.randn(4, 4) * 0.5)
        self.register_buffer("buffer", torch.rand(4))
        self.k = 1.1
        self.auxiliary = None
        self.settings = Settings()
        self.function = half
        self.numbers = [0.8, 1.2]
        self.names = {"q": 0.7}
        self.notes = []

    def method(self, t):
        return t * self.k + 0.1

    def forward(self, x):
        more, flags = [], []
        k = self.k * 0.5

        def local(t):
            return t * k

"""
