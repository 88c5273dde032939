"""Fingerprints and observations are the same in every process, whatever the seed of Python's hashes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

SUBJECT = """
import json, sys
import torch
from fingerprint_support import World, verify
import enum

class Kind(enum.Enum):
    A = "a"
    B = "b"

world = World()
world.model.config.extra = {"kinds": {Kind.A, Kind.B}, "pairs": {(1, "x"), (2, "y"), (3, "z")}}
world.model.first.names = frozenset(["one", "two", "three", "four"])
"""

GPT2 = """
import json, sys
import torch
from fingerprint_support import verify
from rekindle.key import fingerprint
from rekindle.recording.recorder import Recorder
from transformers import GPT2Config, GPT2LMHeadModel

class World:
    def __init__(self):
        torch.manual_seed(0)
        config = GPT2Config(n_layer=2, n_embd=32, n_head=2, vocab_size=64, n_positions=32, use_cache=False,
                            bos_token_id=0, eos_token_id=0)
        self.model = GPT2LMHeadModel(config)
        self.ids = torch.zeros(2, 8, dtype=torch.int64)
    def describe(self):
        return fingerprint.describe(self.model, (self.ids,), {"labels": self.ids}, {})
    def record(self):
        with Recorder(self.describe()) as recorder:
            self.model(self.ids, labels=self.ids)
        return recorder.observations

world = World()
"""

REPORT = """
before = world.describe()
recorded = json.loads(sys.stdin.read())
print(json.dumps({
    "fields": before.fields,
    "digest": before.digest(),
    "verified": verify(recorded, before.places) if recorded else None,
    "observations": world.record(),
    "after": before.difference(world.describe()),
}))
"""


def run(program: str, seed: int, recorded: list[Any]) -> dict[str, Any]:
    """Run a program in a process of its own and return what it reports."""
    here = str(Path(__file__).parent)
    environment = dict(os.environ, PYTHONHASHSEED=str(seed))
    environment["PYTHONPATH"] = os.pathsep.join([here, *filter(None, sys.path)])
    done = subprocess.run(
        [sys.executable, "-c", program + REPORT],
        input=json.dumps(recorded),
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("program", [SUBJECT, GPT2], ids=["subject", "gpt2"])
def test_another_process_finds_the_same_key_and_verifies_the_observations(program: str) -> None:
    if program is GPT2:
        pytest.importorskip("transformers")
    first = run(program, 1, [])
    second = run(program, 2, first["observations"])
    assert second["fields"] == first["fields"]
    assert second["digest"] == first["digest"]
    assert second["verified"] is None
    assert second["observations"] == first["observations"]
    assert first["after"] is None
    assert len(first["observations"]) > 30


def test_another_process_notices_what_changed_between_them() -> None:
    first = run(SUBJECT, 1, [])
    changed = SUBJECT.replace("world = World()", "world = World()\nworld.subject.BIAS = 0.25")
    assert run(changed, 1, first["observations"])["verified"] == "global subject.BIAS changed: 0.5 -> 0.25"
