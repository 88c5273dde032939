#!/usr/bin/env python3
"""Makes one measurement of `scripts/bench keys`, in a process of its own; prints one line of JSON.

keys_trial.py fill DIR          exports BERT-base into a cache
keys_trial.py hit DIR           times each part of finding it again, up to the session
keys_trial.py deep              times the key of a 70B-shaped model of 80 layers, which holds no memory
keys_trial.py recording N       exports with and without the recorder, N times each in turn
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import rekindle
import torch
import transformers
from rekindle import _native
from rekindle.export.copies.private_copy import PrivateCopies
from rekindle.export.request import ExportRequest
from rekindle.export.torchscript import adapter
from rekindle.key.fingerprint import describe
from rekindle.recording.observations import verify
from rekindle.recording.recorder import Recorder
from rekindle.results.contract import flatten_arguments

warnings.filterwarnings("ignore")
_KEY = {"numerics": "fast", "pipeline": _native.pipeline_fingerprint()}


class Clock:
    """Times named parts, by the wall and by what this process computed: another process slows the first only.

    wall, cpu: seconds of each part, by name
    """

    def __init__(self) -> None:
        self.wall: dict[str, float] = {}
        self.cpu: dict[str, float] = {}

    @contextlib.contextmanager
    def part(self, name: str) -> Iterator[None]:
        """Adds the time of its body to the part `name`."""
        wall, cpu = time.perf_counter(), time.process_time()
        yield
        self.wall[name] = self.wall.get(name, 0.0) + time.perf_counter() - wall
        self.cpu[name] = self.cpu.get(name, 0.0) + time.process_time() - cpu


def bert() -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """Returns BERT-base with a classifier, in training, with random weights; and a batch of 2 x 128."""
    torch.manual_seed(0)
    model = transformers.BertForSequenceClassification(
        transformers.BertConfig(problem_type="single_label_classification")  # else the first forward sets it
    ).train()
    tokens = torch.randint(0, 1000, (2, 128))
    return model, {
        "input_ids": tokens,
        "attention_mask": torch.ones_like(tokens),
        "labels": torch.zeros(2, dtype=torch.long),
    }


def llama(layers: int, **sizes: int) -> torch.nn.Module:
    """Returns a Llama in training; the default sizes are those of 70 billion parameters."""
    shape = {"hidden_size": 8192, "intermediate_size": 28672, "vocab_size": 128256, **sizes}
    config = transformers.LlamaConfig(
        **shape, num_hidden_layers=layers, num_attention_heads=64, num_key_value_heads=8, use_cache=False
    )
    return transformers.LlamaForCausalLM(config).train()


def prekey_of(clock: Clock, make_fingerprint: Callable[[], Any]) -> tuple[str, Any]:
    """Returns the key of a call, in the two parts that every start computes; and the fingerprint."""
    with clock.part("describe"):
        fingerprint = make_fingerprint()
    with clock.part("digest"):
        builder = _native.KeyBuilder()
        builder.add_all(fingerprint.fields)
        prekey = builder.digest_hex()
    return prekey, fingerprint


def measured(clock: Clock, model: torch.nn.Module, fingerprint: Any, **counts: int) -> dict[str, Any]:
    """Returns the times, and how much was described in them."""
    return {
        "wall": clock.wall,
        "cpu": clock.cpu,
        "parameters": len(list(model.parameters())),
        "modules": len(list(model.modules())),
        "fields": len(fingerprint.fields),
        **counts,
    }


def fill(directory: str) -> dict[str, Any]:
    """Makes one export, and publishes it."""
    model, batch = bert()
    wrapped = rekindle.Module(model, rekindle.Options(cache_dir=directory, fallback="error", log="warning"))
    wrapped(**batch)
    rekindle.lookup.store.flush()
    status = rekindle.status(wrapped)
    return {"export_seconds": status.export_seconds, "entries": len(rekindle.cache.ls(directory))}


def hit(directory: str) -> dict[str, Any]:
    """Does what a hit does before there is a session. The prekey has to be that of the export."""
    model, batch = bert()
    wrapped = rekindle.Module(model, rekindle.Options(cache_dir=directory, log="warning"))
    runtime, clock = wrapped._runtime, Clock()
    prekey, fingerprint = prekey_of(clock, lambda: runtime._subject.fingerprint((), batch))
    cache = _native.ExportCache(directory, True)
    with clock.part("read manifest"):
        [(entry, recorded, _)] = cache.lookup(prekey)
    with clock.part("check observations"):
        observations = json.loads(recorded)
        assert verify(observations) is None
    with clock.part("read and check entry"):
        loaded = cache.load(entry)
    with clock.part("decode contract"):
        json.loads(loaded["sections"]["contract"])
    entry_bytes = sum(map(len, loaded["sections"].values()))
    return measured(clock, model, fingerprint, observations=len(observations), entry_bytes=entry_bytes)


def deep() -> dict[str, Any]:
    """Times the key of the large model, and the check of observations that a small sibling's forward left."""
    small = llama(2, hidden_size=64, intermediate_size=64, vocab_size=64)
    tokens = {"input_ids": torch.zeros((1, 16), dtype=torch.long)}
    small(**tokens)  # what transformers sets up once is not part of a forward
    with Recorder(describe(small, (), tokens, _KEY)) as recorder:
        small(**tokens)
    with torch.device("meta"):
        model = llama(80)
        batch = {"input_ids": torch.zeros((1, 4096), dtype=torch.long)}
    clock = Clock()
    _, fingerprint = prekey_of(clock, lambda: describe(model, (), batch, _KEY))
    with clock.part("check observations"):
        assert verify(recorder.observations) is None
    return measured(clock, model, fingerprint, observations=len(recorder.observations))


def recording(rounds: int) -> dict[str, Any]:
    """Exports BERT-base in pairs, with and without the recorder; the order changes from pair to pair."""
    model, batch = bert()
    subject = rekindle.Module(model)._runtime._subject
    call = subject.call((), batch, flatten_arguments((), batch))
    request = ExportRequest(call, subject.plan(call.arguments, ()), PrivateCopies(call), subject.describe)
    fingerprint = subject.fingerprint((), batch)
    adapter.load_exporter()

    def export(recorded: bool) -> Clock:
        clock = Clock()
        with clock.part("export"):
            adapter.export(dataclasses.replace(request, watch=Recorder(fingerprint)) if recorded else request)
        return clock

    export(True)  # the first one pays for imports
    pairs: list[dict[str, list[float]]] = []
    for number in range(rounds):
        clocks = {recorded: export(recorded) for recorded in ((True, False), (False, True))[number % 2]}
        pairs.append(
            {kind: [getattr(clocks[recorded], kind)["export"] for recorded in (True, False)] for kind in ("wall", "cpu")}
        )
    return {"pairs": pairs}


def main() -> None:
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("fill", "hit", "deep", "recording"))
    parser.add_argument("argument", nargs="?")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    measure = {
        "fill": lambda: fill(arguments.argument),
        "hit": lambda: hit(arguments.argument),
        "deep": deep,
        "recording": lambda: recording(int(arguments.argument)),
    }
    print(json.dumps(measure[arguments.what]()))
    sys.stdout.flush()


if __name__ == "__main__":
    main()
