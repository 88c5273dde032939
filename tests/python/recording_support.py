"""Modules whose forward has a body that is given, and what a recorder notes of them."""

from __future__ import annotations

from typing import Any

import torch
from fingerprint_support import Recorder, load
from rekindle.key import fingerprint
from torch import nn

HEADER = """
import datetime, logging, os, random, secrets, socket, time, uuid, warnings
import numpy, torch
from torch import nn
"""


def net(body: str, top: str = "") -> nn.Module:
    """A module named `subject.Net` whose forward has the given body."""
    lines = "\n        ".join(body.splitlines())
    text = f"{HEADER}{top}\nclass Net(nn.Module):\n    def forward(self, x):\n        {lines}\n"
    return load("subject", text).Net()


def record(model: nn.Module, with_fingerprint: bool = True) -> list[Any]:
    x = torch.zeros(2)
    known = fingerprint.describe(model, (x,), {}, {}) if with_fingerprint else None
    with Recorder(known) as recorder:
        model(x)
    return recorder.observations
