"""Measures how much memory training takes where activations are most of it: `scripts/bench memory`.

Transformers of 6 layers, width 256 and few words train for three steps of AdamW on 16 x 256 tokens, in eager and, with a filled
cache, in Rekindle, each in a fresh process. Measured is by how much the process grows from before the first step to its
peak: activations, gradients, the optimizer's state and the arena. Nothing is written but standard output.
"""

import argparse
import sys
import tempfile
from typing import Any

from report import print_result
from trial_process import TrialError, measured_by

_MODELS = ("bert", "gpt2", "llama", "t5")
_TARGET = 0.6


def trial(*arguments: str) -> dict[str, Any]:
    """Returns what one process measured."""
    print(" ".join(("memory", *arguments[:2])), file=sys.stderr, flush=True)
    return measured_by("memory_trial.py", *arguments)


def measure(models: list[str]) -> dict[str, dict[str, float]]:
    """Returns MiB by model and variant, and the ratio."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="rekindle-bench-") as directory:
        for model in models:
            trial(model, "rekindle", directory)
            eager, warm = trial(model, "eager", directory), trial(model, "rekindle", directory)
            if warm["source"] != "local":
                raise TrialError(f"{model} was to be found in the cache, its graph came from {warm['source']}")
            peaks = {"eager": eager["peak_mib"], "rekindle": warm["peak_mib"]}
            found[model] = peaks | {"ratio": peaks["rekindle"] / peaks["eager"]}
    return found


def print_table(found: dict[str, dict[str, float]]) -> None:
    """Prints a line per model."""
    print(f"growth to the peak, MiB; target ratio {_TARGET}")
    for model, peaks in found.items():
        print(f"  {model:<8} eager {peaks['eager']:7.0f}   rekindle {peaks['rekindle']:7.0f}   ratio {peaks['ratio']:.2f}")
    print()


def main(arguments: list[str]) -> None:
    """Measures, and prints the report."""
    parser = argparse.ArgumentParser(
        prog="bench memory", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", choices=_MODELS, action="append", help="may be repeated (default: all)")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    found = measure(options.model or [*_MODELS])
    import torch

    print_result({"target": _TARGET, "peaks": found}, torch.get_num_threads(), options.json, lambda: print_table(found))
