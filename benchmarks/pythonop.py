"""Measures what an autograd Function costs inside of a graph over calling it in eager: `scripts/bench pythonop`.

Forward and backward count. Modules that apply a Function many times and once, in eager and wrapped, take turns at blocks of
steps in one process. The cost of a call is the difference of two such steps over the difference in calls, so that everything
else cancels; the two costs are compared within a turn. Nothing is written but standard output.
"""

import argparse
import tempfile
import time
from typing import Any, ClassVar

from figures import spread
from report import print_result

_TARGET = 10.0  # microseconds over eager
_CALLS = (1, 41)


def _modules() -> dict[str, Any]:
    """Returns, by what their Functions do, how to make a module with so many calls."""
    import torch
    from torch.autograd import Function

    class Saves(Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, factor: float) -> torch.Tensor:
            ctx.save_for_backward(x)
            ctx.factor = factor
            return x * factor

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> Any:
            assert len(ctx.saved_tensors) == 1
            return gradient * ctx.factor, None

    class Passes(Function):
        inplace_map: ClassVar = {0: 0}

        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x.view_as(x)

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
            return gradient

    class Linear(Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x, weight)
            return torch.nn.functional.linear(x, weight, bias)

        @staticmethod
        def backward(ctx: Any, gradient: torch.Tensor) -> Any:
            x, weight = ctx.saved_tensors
            return gradient @ weight, gradient.t() @ x, gradient.sum(0)

    class Repeats(torch.nn.Module):
        def __init__(self, calls: int, function: Any, with_parameters: bool, *constants: Any) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(8, 8)
            self.calls, self.function, self.constants, self.with_parameters = calls, function, constants, with_parameters

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.layer(x)
            parameters = (self.layer.weight, self.layer.bias) if self.with_parameters else ()
            for _ in range(self.calls):
                x = self.function.apply(x, *parameters, *self.constants)
            return x

    return {
        "saves a tensor": lambda calls: Repeats(calls, Saves, False, 0.9),
        "hands on what it is given": lambda calls: Repeats(calls, Passes, False),
        "takes parameters": lambda calls: Repeats(calls, Linear, True),
    }


def _microseconds(model: Any, x: Any, steps: int) -> float:
    start = time.process_time()  # other work on the machine does not lengthen it
    for _ in range(steps):
        model(x).sum().backward()
    return (time.process_time() - start) / steps * 1e6


def measure(turns: int, steps: int) -> dict[str, Any]:
    """Returns, per kind of Function, the microseconds of a call in eager, in a graph, and over eager."""
    import rekindle
    import torch

    torch.set_num_threads(1)
    x = torch.randn(4, 8)
    found = {}
    with tempfile.TemporaryDirectory(prefix="rekindle-bench-") as directory:
        for name, make in _modules().items():
            eager = [make(calls) for calls in _CALLS]
            wrapped = [
                rekindle.Module(module, rekindle.Options(cache_dir=directory, fallback="error", log="error")) for module in eager
            ]
            for model in [*eager, *wrapped]:
                _microseconds(model, x, 20)
            turn_costs: list[tuple[float, float]] = []  # eager, graph
            for turn in range(turns):
                sides = [eager, wrapped] if turn % 2 else [wrapped, eager]
                short, long = [[_microseconds(side[i], x, steps) for side in sides] for i in (0, 1)]
                costs = [(after - before) / (_CALLS[1] - _CALLS[0]) for before, after in zip(short, long, strict=True)]
                turn_costs.append((costs[0], costs[1]) if turn % 2 else (costs[1], costs[0]))
            found[name] = {
                "eager": spread([a for a, _ in turn_costs]),
                "graph": spread([b for _, b in turn_costs]),
                "over eager": spread([b - a for a, b in turn_costs]),
            }
    return found


def print_table(result: dict[str, Any], turns: int) -> None:
    """Prints a line per kind of Function."""
    print(f"one call, forward and backward, in microseconds: median [lowest, highest] of {turns} turns")
    print(f"target over eager: {_TARGET:.0f}")
    for name, costs in result.items():
        cells = "   ".join(
            f"{what} {cost['median']:6.1f} [{cost['low']:.1f}, {cost['high']:.1f}]" for what, cost in costs.items()
        )
        print(f"  {name:<26} {cells}")
    print()


def main(arguments: list[str]) -> None:
    """Measures, and prints the report."""
    parser = argparse.ArgumentParser(
        prog="bench pythonop", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=15, help="paired measurements (default: 15)")
    parser.add_argument("--steps", type=int, default=40, help="steps of each module in a turn (default: 40)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    result = measure(options.turns, options.steps)
    print_result({"target": _TARGET, "calls": result}, 1, options.json, lambda: print_table(result, options.turns))
