"""A small model in two modules made from text, so that tests can edit the text, reload it and compare
keys."""

from __future__ import annotations

import sys
import types
from typing import Any

import torch
from rekindle.key import fingerprint
from rekindle.recording.observations import verify
from rekindle.recording.recorder import Recorder

HELPER = '''
"""Helpers of the subject."""
import functools

RATIO = 3.0
LIMITS = {"low": -4.0, "high": 4.0}
UNUSED = 1

def scaled(x, by=1.0):
    """Scale."""
    return x * RATIO * by

def clamp(x):
    return x.clamp(LIMITS["low"], LIMITS["high"])

def logged(tag):
    def decorate(function):
        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            return function(*args, **kwargs) * tag
        return wrapper
    return decorate

@logged(1.5)
def decorated(x):
    return x + 0.25

class Tool:
    OFFSET = 1.0
    def __init__(self, step):
        self.step = step
    def apply(self, x):
        return x + self.OFFSET * self.step
    @staticmethod
    def halve(x):
        return x / 2
    @classmethod
    def shift(cls, x):
        return x - cls.OFFSET
'''

SUBJECT = '''
"""The model under test."""
import dataclasses
import enum
import functools
import logging
import math
import os

import torch
import torch.nn.functional as F
from torch import nn

import subject_helper
from subject_helper import Tool, clamp, decorated, scaled

logger = logging.getLogger(__name__)
BIAS = 0.5
FLAG = 1
NAMES = {"alpha", "beta", "gamma"}
ACTIVATIONS = {"relu": lambda x: torch.relu(x), "tanh": lambda x: torch.tanh(x)}
power = functools.partial(torch.pow, exponent=2)
TABLE = torch.tensor([1.0, 2.0, 3.0, 4.0])

class Mode(enum.Enum):
    SUM = "sum"
    MEAN = "mean"

MODE = Mode.SUM

@dataclasses.dataclass
class Config:
    hidden: int = 4
    act: str = "relu"
    eps: float = 1e-5
    sizes: list = dataclasses.field(default_factory=lambda: [4, 4])
    extra: dict = dataclasses.field(default_factory=dict)

def make_gain(gain):
    def apply(x):
        return x * gain
    return apply

apply_gain = make_gain(2.0)

def sign(x):
    return x if FLAG is True or FLAG == 1 else -x

class Block(nn.Module):
    TEMPERATURE = 1.0
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.linear = nn.Linear(4, 4)
        self.norm = nn.LayerNorm(4, eps=config.eps)
        self.drop = nn.Dropout(0.0)
        self.scale = 1.0
        self.maybe = None
        self.tool = Tool(1.0)
        self.mask = torch.ones(4)
        self.sizes = [1, 2]
        self.register_buffer("table", torch.ones(4))
        self.register_buffer("scratch", torch.zeros(4), persistent=False)
    @property
    def twice(self):
        return self.scale * 2
    @staticmethod
    def fixed(x):
        return x + 0.125
    def forward(self, x):
        # a comment
        y = self.drop(self.linear(x)) * self.mask + self.table
        y = ACTIVATIONS[self.config.act](y) / self.TEMPERATURE
        y = self.fixed(y) * self.twice
        if self.maybe is not None:
            y = y * self.maybe
        return self.norm(self.tool.apply(y))

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.config = Config()
        self.first = Block(self.config)
        self.second = Block(self.config)
        self.head = nn.Linear(4, 4, bias=False)
    def helper(self, x):
        return x + BIAS
    def forward(self, x, factor=1.0, *, offset=0.0):
        """Run."""
        def nested(v):
            return v * 0.75
        square = lambda v: v * v
        h = self.helper(self.first(x))
        h = nested(square(self.second(h)))
        h = scaled(clamp(h)) + subject_helper.RATIO * math.pi
        h = sign(apply_gain(decorated(Tool.shift(Tool.halve(h)))))
        h = power(h) * TABLE
        if os.environ.get("SUBJECT_BRANCH") == "1":
            h = -h
        if "SUBJECT_OTHER" in os.environ:
            h = h + 1
        if "alpha" in NAMES and MODE is Mode.SUM:
            h = h + len(NAMES)
        try:
            import subject_missing
            h = subject_missing.run(h)
        except ImportError:
            pass
        logger.debug("ran")
        h = F.silu(h) + sum([v for v in (1.0, 2.0)])
        return self.head(h) * factor + offset
'''


class World:
    """The two modules, loaded from text under fixed names, a model of theirs and an input."""

    def __init__(self, subject: str = SUBJECT, helper: str = HELPER, path: str = "/nowhere") -> None:
        self.helper = load("subject_helper", helper, path)
        self.subject = load("subject", subject, path)
        torch.manual_seed(0)
        self.model = self.subject.Net()
        self.args: tuple[Any, ...] = (torch.zeros(2, 4),)
        self.kwargs: dict[str, Any] = {}
        self.options: dict[str, Any] = {"opset": 20}

    def describe(self) -> fingerprint.Fingerprint:
        return fingerprint.describe(self.model, self.args, self.kwargs, self.options)

    def record(self) -> list[Any]:
        with Recorder(self.describe()) as recorder:
            self.model(*self.args, **self.kwargs)
        return recorder.observations


def load(name: str, text: str, path: str = "/nowhere") -> types.ModuleType:
    """Load a module from text, in place of one loaded before under the name."""
    module = types.ModuleType(name)
    module.__file__ = f"{path}/{name}.py"
    sys.modules[name] = module
    exec(compile(text, module.__file__, "exec"), vars(module))
    return module


def edited(text: str, old: str, new: str) -> str:
    """The text with its only occurrence of `old` replaced."""
    assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times"
    return text.replace(old, new)


def changes(before: fingerprint.Fingerprint, observed: list[Any], after: World) -> str | None:
    """What differs between a recorded call and the present, or None."""
    now = after.describe()
    return before.difference(now) or verify(observed, now.places)


# By name: a text of the subject, or of its helper, and what it becomes.
SUBJECT_EDITS = {
    "forward edited": ("return self.head(h) * factor + offset", "return self.head(h) * factor - offset"),
    "method edited": ("return x + BIAS", "return x - BIAS"),
    "block forward edited": ("y = self.fixed(y) * self.twice", "y = self.fixed(y) + self.twice"),
    "nested function edited": ("return v * 0.75", "return v * 0.5"),
    "lambda edited": ("lambda v: v * v", "lambda v: v + v"),
    "comprehension edited": ("[v for v in (1.0, 2.0)]", "[-v for v in (1.0, 2.0)]"),
    "constant 1 to True": ("h = h + 1\n", "h = h + True\n"),
    "constant 0.125 to -0.125": ("x + 0.125", "x + -0.125"),
    "parameter default": ("factor=1.0", "factor=2.0"),
    "keyword default": ("offset=0.0", "offset=-0.0"),
    "closure cell": ("make_gain(2.0)", "make_gain(4.0)"),
    "closure code": ("return x * gain", "return x + gain"),
    "global constant": ("BIAS = 0.5", "BIAS = 0.25"),
    "global constant 1 to True": ("FLAG = 1\n", "FLAG = True\n"),
    "global constant 1 to 1.0": ("FLAG = 1\n", "FLAG = 1.0\n"),
    "global removed": ("BIAS = 0.5\n", "\n"),
    "global set": ('"gamma"}', '"delta"}'),
    "global enum member": ("MODE = Mode.SUM", "MODE = Mode.MEAN"),
    "enum value": ('SUM = "sum"', 'SUM = "total"'),
    "global partial": ("exponent=2", "exponent=3"),
    "global tensor": ("2.0, 3.0, 4.0]", "2.0, 3.0, 5.0]"),
    "function in a table": ('"relu": lambda x: torch.relu(x)', '"relu": lambda x: torch.sigmoid(x)'),
    "class attribute": ("TEMPERATURE = 1.0", "TEMPERATURE = 2.0"),
    "property": ("return self.scale * 2", "return self.scale * 3"),
    "static method": ("return x + 0.125", "return x + 0.25"),
    "function called": ("FLAG == 1 else -x", "FLAG == 1 else x"),
    "config default": ('act: str = "relu"', 'act: str = "tanh"'),
    "config eps": ("eps: float = 1e-5", "eps: float = 1e-6"),
    "layer argument": ("nn.Dropout(0.0)", "nn.Dropout(0.5)"),
    "layer type": ("self.drop = nn.Dropout(0.0)", "self.drop = nn.Identity()"),
    "environment variable asked for": ('"SUBJECT_BRANCH"', '"SUBJECT_RAMIFICATION"'),
    "base class": ("class Net(nn.Module):", "class Base(nn.Module):\n    LEVEL = 1\n\nclass Net(Base):"),
    "buffer made transient": ('torch.ones(4))\n        self.register_buffer("scratch"',
                              'torch.ones(4), persistent=False)\n        self.register_buffer("scratch"'),
    "buffer made persistent": ("torch.zeros(4), persistent=False", "torch.zeros(4), persistent=True"),
    "layer added": ("self.scale = 1.0", "self.scale = 1.0\n        self.more = nn.ReLU()"),
    "plain tensor attribute": ("self.mask = torch.ones(4)", "self.mask = torch.zeros(4)"),
    "docstring added": ("def helper(self, x):", "def helper(self, x):\n        'Help.'"),
}  # fmt: skip

HELPER_EDITS = {
    "imported helper edited": ("return x * RATIO * by", "return x * RATIO + by"),
    "imported helper default": ("by=1.0", "by=2.0"),
    "imported helper global": ("RATIO = 3.0", "RATIO = 2.0"),
    "imported helper dict": ('"high": 4.0', '"high": 5.0'),
    "decorator argument": ("@logged(1.5)", "@logged(2.5)"),
    "decorator code": ("kwargs) * tag", "kwargs) + tag"),
    "decorated function": ("return x + 0.25", "return x + 0.75"),
    "helper class attribute": ("OFFSET = 1.0", "OFFSET = 2.0"),
    "helper method": ("return x + self.OFFSET", "return x - self.OFFSET"),
    "helper static method": ("return x / 2", "return x / 4"),
    "helper class method": ("return x - cls.OFFSET", "return x + cls.OFFSET"),
    "helper attribute set in __init__": ("self.step = step", "self.step = step + 1"),
}
