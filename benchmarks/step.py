"""Measures what a step costs besides its kernels (guard, call, plan): `scripts/bench step`.

A tiny MLP of two linear layers, in eager and wrapped, takes turns at blocks of steps in one process; so do stacks of tiny linear
layers. Where the line through the times of these meets zero layers is what a step costs whatever it computes. All is time that
the process itself computed, which other work on the machine does not lengthen. Nothing is written but standard output.
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
MLP_OVER_EAGER = "MLP of two layers, over eager's"
MLP_LIMIT = 12.0  # microseconds
_TARGETS = {MLP_OVER_EAGER: MLP_LIMIT, "guard": 3.0, "plan of BERT-base": 30_000.0}  # microseconds


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


def _in_turn(models: list[Any], wrapped: list[Any], turns: int, cost: Callable[[list[Any]], float]) -> list[tuple[float, float]]:
    """Returns pairs of costs, eager's and the graph's, measured in turn."""
    pairs = []
    for turn in range(turns):
        if turn % 2:
            pairs.append((cost(models), cost(wrapped)))
        else:
            pairs.append((cost(wrapped), cost(models))[::-1])
    return pairs


def _described(name: str, pairs: list[tuple[float, float]]) -> dict[str, Any]:
    return {
        f"{name}, eager": spread([eager for eager, _ in pairs]),
        f"{name}, graph": spread([graph for _, graph in pairs]),
        f"{name}, over eager's": spread([graph - eager for eager, graph in pairs]),
    }


def fixed_costs(turns: int, steps: int, directory: str) -> dict[str, Any]:
    """Measures, in microseconds, what a step, forward and backward, costs besides its kernels, and what a guard costs."""
    import rekindle
    import torch
    from torch import nn

    torch.set_num_threads(1)
    x, cotangent = torch.randn(4, 8), torch.ones(4, 8)
    options = rekindle.Options(cache_dir=directory, fallback="error", log="error")
    stacks = [nn.Sequential(*(nn.Linear(8, 8) for _ in range(depth))) for depth in _DEPTHS]
    mlp = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    wrapped_stacks, wrapped_mlp = [rekindle.Module(model, options) for model in stacks], rekindle.Module(mlp, options)

    def cost(model: Any, times: int = steps) -> float:
        return _microseconds(lambda: model(x).backward(cotangent), times)

    for model in (mlp, wrapped_mlp, *stacks, *wrapped_stacks):
        cost(model, 50)
    of_mlp = _in_turn([mlp], [wrapped_mlp], turns, lambda side: cost(side[0]))
    at_zero = _in_turn(stacks, wrapped_stacks, turns, lambda side: _at_zero(_DEPTHS, [cost(model) for model in side]))
    guard = functools.partial(next(iter(wrapped_stacks[-1]._runtime._kinds)).graphs[0].ready, [x])
    return {
        **_described("MLP of two layers", of_mlp),
        **_described("no layer", at_zero),
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
        print(f"  {name:<32} {cost['median']:9.1f} [{cost['low']:.1f}, {cost['high']:.1f}]{target}")
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
