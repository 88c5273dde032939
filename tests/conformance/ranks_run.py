"""Trains one program of ranks/ as one rank, through Rekindle and in eager, step by step in turn; prints one JSON object.

    RANK=0 WORLD_SIZE=2 python ranks_run.py replicated.plain --meet FILE --cache-dir DIR --steps 30 --variants rekindle,eager

The ranks meet at FILE, which none has made. Variants are those of training_run.py.
"""

from __future__ import annotations

import argparse
import importlib
import json
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import rekindle
import torch
import torch.distributed as dist
from comparison import nudge
from ranks import Job
from rekindle.timing.node_times import is_of_graph, outermost
from torch import nn
from torch.distributed.tensor import DTensor
from torch.profiler import ProfilerActivity, profile
from training_run import Training, status_of

# Ranges of torch.profiler: optimizers' steps, collectives, and what FSDP2 does around a block.
_NOT_OF_THE_MODEL = ("Optimizer.", "c10d::", "gloo:", "FSDP::")


def _values(model: nn.Module) -> list[torch.Tensor]:
    """Returns what this rank has of the parameters."""
    found = []
    for parameter in model.parameters():
        shard = getattr(parameter, "ds_tensor", parameter)  # DeepSpeed's
        found.append((shard.to_local() if isinstance(shard, DTensor) else shard).detach().float())
    return found


def _distances(mine: nn.Module, theirs: nn.Module) -> list[list[float]]:
    pairs = zip(_values(mine), _values(theirs), strict=True)
    return [[float((a - b).norm()), float(b.norm())] for a, b in pairs]


def _trainings(name: str, variants: list[str], options: rekindle.Options) -> tuple[dict[str, Training], dict[str, Job]]:
    module, _, function = name.partition(".")
    program = getattr(importlib.import_module(f"ranks.{module}"), function)
    wraps = {"rekindle": lambda made: rekindle.Module(made, options), "eager": lambda made: made, "nudged": nudge}
    jobs: dict[str, Job] = {}

    def started(variant: str) -> Callable[[Callable[[nn.Module], nn.Module]], Iterator[float]]:
        def start(wrap: Callable[[nn.Module], nn.Module]) -> Iterator[float]:
            jobs[variant] = Job(wrap, dist.get_rank(), dist.get_world_size())
            return program(jobs[variant])

        return start

    return {variant: Training(started(variant), wraps[variant]) for variant in variants}, jobs


def _in_graphs(training: Training) -> float | None:
    """Trains one step more; returns what part of its operators' time is that of graphs' nodes; see _NOT_OF_THE_MODEL.

    None for a program that trains in a thread of its own, of which torch.profiler sees nothing.
    """
    with profile(activities=[ProfilerActivity.CPU], acc_events=True) as recorder:
        training.step()
    found = [*outermost(recorder.events() or (), without=_NOT_OF_THE_MODEL)]
    of_graphs, of_all = (sum(event.time_range.elapsed_us() for event in events) for events in (filter(is_of_graph, found), found))
    return of_graphs / of_all if of_all else None


def main() -> None:
    """Runs the trainings in turn and prints what they did."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("program")
    parser.add_argument("--meet", type=Path, required=True)
    parser.add_argument("--cache-dir", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=30)
    parser.add_argument("--variants", default="rekindle,eager")
    parser.add_argument("--log", default="off")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=f"file://{given.meet}", rank=rank, world_size=world)
    variants = given.variants.split(",")
    trainings, jobs = _trainings(given.program, variants, rekindle.Options(cache_dir=given.cache_dir, log=given.log))
    for _ in range(given.steps):
        for variant in variants:
            trainings[variant].step()
    report: dict[str, Any] = {
        name: {"losses": [*training.losses], "seconds": [*training.seconds]} for name, training in trainings.items()
    }
    models = {name: job.model for name, job in jobs.items() if job.model is not None}
    if "rekindle" in models:
        report["modules"] = [status_of(module) for module in trainings["rekindle"].wrapped]
        report["parameters"] = _distances(models["rekindle"], models["eager"])
        report["in_graphs"] = _in_graphs(trainings["rekindle"])
    if "nudged" in models:
        report["nudged_parameters"] = _distances(models["nudged"], models["eager"])
    print(json.dumps(report), flush=True)
    rekindle.lookup.store.flush()
    dist.barrier()
    sys.stdout.flush()
    os._exit(0)  # threads of gloo's may outlive their group, which ends a process by abort


if __name__ == "__main__":
    main()
