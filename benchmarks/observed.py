"""Measures what a subscription of rekindle.statistics costs a training step: `scripts/bench observed`.

A model takes turns at blocks of steps, from its graph: without and with a subscription to all of its modules, parameters and
gradients. Files go to a temporary directory.
"""

import argparse
import statistics
import tempfile
import time
from typing import Any

from figures import spread
from report import print_result

_TARGET = 1.1  # of a step with a subscription over one without
_FIRST = 2  # steps of a block that do not count: plans, pages


def _block(step: Any, steps: int) -> float:
    """Returns the median time of a step, in seconds."""
    found = []
    for _ in range(_FIRST + steps):
        start = time.perf_counter()
        step()
        found.append(time.perf_counter() - start)
    return statistics.median(found[_FIRST:])


def measure(name: str, threads: int, turns: int, steps: int, text_files: bool, directory: str) -> dict[str, Any]:
    """Returns the spread of a step's time without and with a subscription, in milliseconds, and of their ratio."""
    import rekindle
    import torch
    from rekindle.statistics import StatisticsSubscriber, subscribe
    from workloads import WORKLOADS

    torch.set_num_threads(threads)
    torch.manual_seed(0)
    workload = WORKLOADS[name]
    workload.prepare()
    options = rekindle.Options(cache_dir=f"{directory}/cache", fallback="error", log="error")
    model = rekindle.Module(workload.make_model(0.1).train(), options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=workload.learning_rate)
    batches = workload.batches(0)

    def step() -> None:
        workload.loss(model(**next(batches))).backward()
        optimizer.step()
        optimizer.zero_grad()

    pairs = []
    for turn in range(turns):
        without = _block(step, steps)
        with subscribe(model, StatisticsSubscriber(f"{directory}/{turn}", text_files=text_files)):
            pairs.append((without, _block(step, steps)))
    return {
        "step, ms": spread([1e3 * without for without, _ in pairs]),
        "step with a subscription, ms": spread([1e3 * observed for _, observed in pairs]),
        "ratio": spread([observed / without for without, observed in pairs]),
    }


def print_table(costs: dict[str, dict[str, float]]) -> None:
    """Prints a line per cost."""
    for name, cost in costs.items():
        target = f"   target {_TARGET}" if name == "ratio" else ""
        print(f"  {name:<30} {cost['median']:9.2f} [{cost['low']:.2f}, {cost['high']:.2f}]{target}")
    print()


def main(arguments: list[str]) -> None:
    """Measures, and prints the report."""
    parser = argparse.ArgumentParser(
        prog="bench observed", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", default="bert", help="one of scripts/bench --models (default: bert)")
    parser.add_argument("--threads", type=int, default=1, help="default: 1")
    parser.add_argument("--turns", type=int, default=3, help="paired measurements (default: 3)")
    parser.add_argument("--steps", type=int, default=5, help="steps of a block (default: 5)")
    parser.add_argument("--text-files", action="store_true", help="write ORTModule's text files, too")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="rekindle-bench-") as directory:
        costs = measure(options.model, options.threads, options.turns, options.steps, options.text_files, directory)
    print_result({"target": _TARGET, "costs": costs}, options.threads, options.json, lambda: print_table(costs))
