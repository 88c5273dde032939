"""Measures how much memory training takes where activations are most of it: `scripts/bench memory`.

Transformers of 6 layers, width 256 and few words, a vision transformer and ResNet-50 train for six steps of AdamW, in eager and,
with a filled cache, in Rekindle, each in a fresh process; with --budgets, in Rekindle with memory budgets, too, and with
--compile in torch.compile, with its own activation_memory_budget of the same shares. With --density, sequences are padded, and
Rekindle trains with padding_elimination as well. With --checkpoint, each layer is in an activation checkpoint, in all subjects.
Measured is by how much the process grows from before the first step to its peak: activations, gradients, the optimizer's state
and the arena; and the time of a step.
Nothing is written but standard output.
"""

import argparse
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from report import print_result
from trial_process import TrialError, measured_by

_MODELS = ("bert", "gpt2", "llama", "t5", "vit", "resnet50")
_TARGET = 0.5


def trial(*arguments: str) -> dict[str, Any]:
    """Returns what one process measured."""
    print(" ".join(("memory", *arguments[:2], *arguments[4:])), file=sys.stderr, flush=True)
    return measured_by("memory_trial.py", *arguments)


def _variants(budgets: list[float], compiled: bool, padded: bool) -> Iterator[tuple[str, str, list[str]]]:
    """Yields name, variant and further arguments of each subject."""
    yield "eager", "eager", []
    yield "rekindle", "rekindle", []
    if padded:
        yield "no padding", "rekindle", ["--leave-padding-out"]
    for budget in budgets:
        yield f"rekindle {budget:g}", "rekindle", ["--budget", str(budget)]
    if compiled:
        yield "compile", "compile", []
        for budget in budgets:
            yield f"compile {budget:g}", "compile", ["--budget", str(budget)]


def measure(
    models: list[str], budgets: list[float], compiled: bool, density: float, checkpointed: bool
) -> dict[str, dict[str, dict[str, Any]]]:
    """Returns what trials measured, by model and subject; peaks and times also as ratios to eager's."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    with tempfile.TemporaryDirectory(prefix="rekindle-bench-") as directory:
        for model in models:
            common = ["--density", str(density), *(["--checkpoint"] if checkpointed else [])]
            trial(model, "rekindle", directory, *common)
            found[model] = {}
            for name, variant, more in _variants(budgets, compiled, density < 1):
                of = found[model][name] = trial(model, variant, directory, *more, *common)
                if variant == "rekindle" and of["source"] != "local":
                    raise TrialError(f"{model} was to be found in the cache, its graph came from {of['source']}")
                eager = found[model]["eager"]
                of |= {"ratio": of["peak_mib"] / eager["peak_mib"], "step_ratio": of["step"] / eager["step"]}
    return found


def print_table(found: dict[str, dict[str, dict[str, Any]]]) -> None:
    """Prints a line per model and subject."""
    print(f"growth to the peak, MiB; target without a budget {_TARGET} of eager's")
    print(f"  {'':<9} {'':<14} {'growth':>7} {'ratio':>6} {'step':>6}  {'activations':>11} {'budget':>9} {'again':>6}")
    for model, subjects in found.items():
        for name, of in subjects.items():
            mib = [f"{of[key] / 2**20:.1f}" if key in of else "" for key in ("activations", "budget")]
            again = f"{of['again']:.0%}" if "again" in of else ""
            line = f"{of['peak_mib']:7.0f} {of['ratio']:6.2f} {of['step_ratio']:6.2f}  {mib[0]:>11} {mib[1]:>9} {again:>6}"
            print(f"  {model:<9} {name:<14} {line}".rstrip())
    print()


def _share(text: str) -> float:
    share = float(text)
    if not 0 < share <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and up to 1")
    return share


def _shares(text: str) -> list[float]:
    return [_share(part) for part in text.split(",")]


def main(arguments: list[str]) -> None:
    """Measures, and prints the report."""
    parser = argparse.ArgumentParser(
        prog="bench memory", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    choices = (*_MODELS, "bert-base")  # the last of 12 layers, at 8 x 128 tokens
    parser.add_argument("--model", choices=choices, action="append", help="may be repeated (default: all but bert-base)")
    parser.add_argument("--budgets", type=_shares, default=[], help="memory budgets as shares, such as 0.7,0.5,0.3")
    parser.add_argument("--compile", action="store_true", help="run torch.compile as well; takes minutes")
    parser.add_argument("--density", type=_share, default=1.0, help="share of the tokens that are no padding, such as 0.3")
    parser.add_argument("--checkpoint", action="store_true", help="with each layer of transformers in a checkpoint")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args(arguments)
    if options.checkpoint and "resnet50" in (options.model or ()):
        parser.error("--checkpoint: resnet50 is no model of transformers")
    models = options.model or [model for model in _MODELS if not (options.checkpoint and model == "resnet50")]
    found = measure(models, options.budgets, options.compile, options.density, options.checkpoint)
    import torch

    print_result({"target": _TARGET, "peaks": found}, torch.get_num_threads(), options.json, lambda: print_table(found))
