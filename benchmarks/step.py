"""Measures what a step costs besides its kernels (guard, call, plan): `scripts/bench step`.

Stacks of tiny linear layers, in eager and wrapped, take turns at blocks of steps in one process. Where the line through their
times meets zero layers is what a step costs whatever it computes. All is time that the process itself computed, which other
work on the machine does not lengthen. Nothing is written but standard output.
"""

import argparse
import functools
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

from figures import spread
from report import print_result

_DEPTHS = (1, 5, 9)
_BLOCKS = 4
_TARGETS = {"fixed cost over eager's": 12.0, "guard": 3.0, "plan of BERT-base": 30_000.0}  # microseconds


def _microseconds(run: Callable[[], object], times: int) -> float:
    """Returns the time of a run in the fastest of a few blocks."""
    found = []
    for _ in range(_BLOCKS):
        start = time.process_time()
        for _ in range(times // _BLOCKS):
            run()
        found.append((time.process_time() - start) / (times // _BLOCKS) * 1e6)
    return min(found)


def _at_zero(depths: tuple[int, ...], costs: list[float]) -> float:
    return statistics.linear_regression(depths, costs).intercept


def fixed_costs(turns: int, steps: int, directory: str) -> dict[str, Any]:
    """Measures, in microseconds, what a step, forward and backward, costs besides its kernels, and what a guard costs."""
    import rekindle
    import torch

    torch.set_num_threads(1)
    x, cotangent = torch.randn(4, 8), torch.ones(4, 8)
    options = rekindle.Options(cache_dir=directory, fallback="error", log="error")
    eager = [torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(depth))) for depth in _DEPTHS]
    wrapped = [rekindle.Module(model, options) for model in eager]

    def step(model: Any) -> Callable[[], object]:
        return lambda: model(x).backward(cotangent)

    for model in (*eager, *wrapped):
        _microseconds(step(model), 50)
    pairs = []
    for turn in range(turns):
        sides = [eager, wrapped] if turn % 2 else [wrapped, eager]
        costs = [_at_zero(_DEPTHS, [_microseconds(step(model), steps) for model in side]) for side in sides]
        pairs.append(costs if turn % 2 else costs[::-1])
    guard = functools.partial(next(iter(wrapped[-1]._runtime._kinds)).graphs[0].ready, [x])
    return {
        "fixed cost, eager": spread([pair[0] for pair in pairs]),
        "fixed cost, graph": spread([pair[1] for pair in pairs]),
        "fixed cost over eager's": spread([pair[1] - pair[0] for pair in pairs]),
        "guard": spread([_microseconds(guard, steps) for _ in range(turns)]),
    }


def plan_cost(rounds: int, directory: str) -> dict[str, float]:
    """Measures the plan of BERT-base in training, batch 2 x 128, found in the cache, in microseconds."""
    import rekindle
    from keys_trial import bert

    model, batch = bert()
    found = []
    for number in range(rounds + 1):
        wrapped = rekindle.Module(model, rekindle.Options(cache_dir=directory, fallback="error", log="error"))
        wrapped(**batch)
        if number > 0:  # after the export
            found.append(1e6 * rekindle.status(wrapped).plan_seconds)
    return spread(found)


def print_table(costs: dict[str, dict[str, float]], turns: int) -> None:
    """Prints a line per cost."""
    print(f"microseconds, median [lowest, highest] of {turns} turns")
    for name, cost in costs.items():
        target = f"   target {_TARGETS[name]:.0f}" if name in _TARGETS else ""
        print(f"  {name:<24} {cost['median']:9.1f} [{cost['low']:.1f}, {cost['high']:.1f}]{target}")
    print()


def main(arguments: list[str]) -> None:
    """Measures, and prints the report."""
    parser = argparse.ArgumentParser(prog="bench step", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=15, help="paired measurements (default: 15)")
    parser.add_argument("--steps", type=int, default=400, help="steps of each model in a turn (default: 400)")
    parser.add_argument("--plans", type=int, default=5, help="plans of BERT-base; 0 leaves them out (default: 5)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="rekindle-bench-") as directory:
        costs = fixed_costs(options.turns, options.steps, directory)
        if options.plans > 0:
            costs["plan of BERT-base"] = plan_cost(options.plans, directory)
    print_result({"targets": _TARGETS, "costs": costs}, 1, options.json, lambda: print_table(costs, options.turns))
