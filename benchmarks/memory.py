"""`scripts/bench memory`: how much memory training takes where activations are most of it.

Transformers of 6 layers, width 256 and few words train for three steps of AdamW on 16 x 256 tokens, in eager and, with a filled
cache, in Rekindle, each in a fresh process. Measured is by how much the process grows from before the first step to its
peak: activations, gradients, the optimizer's state and the arena. Nothing is written but standard output.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from report import machine_facts

_TRIAL = Path(__file__).resolve().parent / "memory_trial.py"
_MODELS = ("bert", "gpt2", "llama", "t5")
_TARGET = 0.6


def trial(*arguments: str) -> dict[str, Any]:
    """What one process measured."""
    print(" ".join(("memory", *arguments[:2])), file=sys.stderr, flush=True)
    done = subprocess.run([sys.executable, str(_TRIAL), *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"bench memory: memory_trial.py {' '.join(arguments)} failed:\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def measure(models: list[str]) -> dict[str, dict[str, float]]:
    """MiB by model and variant, and the ratio."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="rekindle-bench-") as directory:
        for model in models:
            trial(model, "rekindle", directory)
            eager, warm = trial(model, "eager", directory), trial(model, "rekindle", directory)
            if warm["source"] != "local":
                sys.exit(f"bench memory: {model} was to be found in the cache, its graph came from {warm['source']}")
            peaks = {"eager": eager["peak_mib"], "rekindle": warm["peak_mib"]}
            found[model] = peaks | {"ratio": peaks["rekindle"] / peaks["eager"]}
    return found


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

    facts = machine_facts({"torch": torch.__version__, "threads": torch.get_num_threads()})
    if options.json:
        print(json.dumps({"machine": facts, "target": _TARGET, "peaks": found}, indent=2))
        return
    print(f"growth to the peak, MiB; target ratio {_TARGET}")
    for model, peaks in found.items():
        print(f"  {model:<8} eager {peaks['eager']:7.0f}   rekindle {peaks['rekindle']:7.0f}   ratio {peaks['ratio']:.2f}")
    print("\nMachine: " + ", ".join(f"{name.replace('_', ' ')} {value}" for name, value in facts.items()))
