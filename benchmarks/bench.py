"""Measures Rekindle against eager, and on request against torch.compile, side by side in one run.

A round starts every subject in a fresh process, one after the other, for the time to its first step: eager,
Rekindle with an empty cache, Rekindle again. The processes then take turns at blocks of further steps, for
the step time and the peak memory. The subject that goes first changes from round to round. Ratios are taken
within a round, or within a turn, and only then summarized: whatever slows the machine down slows both sides.
Nothing is written but standard output; progress goes to standard error.

`bench keys` measures what finding a graph in the cache costs, `bench pythonop` what calling an autograd Function from a
graph costs, `bench step` what a step costs besides its kernels, `bench memory` what training takes where activations are most
of it; see their `--help`.
"""

import argparse
import contextlib
import importlib.util
import statistics
import sys
import tempfile
from pathlib import Path

import keys
import memory
import pythonop
import step
from report import Samples, print_models, print_result, summarize
from trial_process import Measurement, Trial, TrialError, TrialProcess, add_variant_options, chosen_variants

_MODELS = ("gpt", "gpt2", "mlp", "encoder")
_WARM_UP_STEPS = 3  # after the first one, before the turns begin


def families(arguments: argparse.Namespace, model: str, scratch: Path) -> list[list[Trial]]:
    """Returns the subjects in groups: within a group the first fills the cache that the second finds filled."""

    def trial(label: str, variant: str) -> Trial:
        return Trial(label, variant, model, 1, scratch / variant, arguments.dropout)

    groups = {
        "eager": [trial("eager", "eager")],
        "rekindle": [trial("rekindle, cold", "rekindle"), trial("rekindle, warm", "rekindle")],
        "compile": [trial("compile, cold", "compile"), trial("compile, warm", "compile")],
    }
    return [groups[variant] for variant in arguments.variant]


def take_turns(processes: list[TrialProcess], samples: dict[str, Samples], turns: int, steps: int) -> None:
    """Lets the processes train in alternation; every turn adds one median step time per subject."""
    for turn in range(-1, turns):
        for process in processes if turn % 2 == 0 else reversed(processes):
            count = _WARM_UP_STEPS if turn < 0 else steps
            process.request(count)
            seconds = process.step_seconds(count)
            if turn >= 0:
                samples[process.trial.label].step_seconds.append(statistics.median(seconds))


def run_round(arguments: argparse.Namespace, model: str, number: int, samples: dict[str, Samples]) -> Measurement:
    """Runs one round of one model; returns its last measurement, for the facts of the run."""
    with contextlib.ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="rekindle-bench-")))
        groups = families(arguments, model, scratch)
        shift = number % len(groups)
        training: list[TrialProcess] = []
        for group in groups[shift:] + groups[:shift]:
            for position, trial in enumerate(group):
                print(f"{model}, round {number + 1}: {trial.label}", file=sys.stderr, flush=True)
                log = scratch / f"{trial.label.replace(', ', '-')}.log"
                process = stack.enter_context(TrialProcess(trial, log))
                process.step_seconds(1)
                if position == len(group) - 1:
                    training.append(process)
                else:  # the next of the group needs what this one leaves in the cache
                    samples[trial.label].add(process.finish())
        print(f"{model}, round {number + 1}: steps in turn", file=sys.stderr, flush=True)
        take_turns(training, samples, arguments.turns, arguments.turn_steps)
        for process in training:
            measurement = process.finish()
            samples[process.trial.label].add(measurement)
        return measurement


def parse_arguments() -> argparse.Namespace:
    """Reads the command line."""
    parser = argparse.ArgumentParser(prog="bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", action="append", choices=_MODELS, help="may be repeated (default: all)")
    add_variant_options(parser)
    parser.add_argument("--rounds", type=int, default=3, help="fresh starts of every subject")
    parser.add_argument("--turns", type=int, default=6, help="turns of every subject per round")
    parser.add_argument("--turn-steps", type=int, default=5, help="training steps per turn")
    parser.add_argument("--dropout", type=float, default=0.1)
    parser.add_argument("--json", action="store_true", help="print JSON instead of tables")
    arguments = parser.parse_args()
    for option in ("rounds", "turns", "turn_steps"):
        if getattr(arguments, option) < 1:
            parser.error(f"--{option.replace('_', '-')} is {getattr(arguments, option)}: it must be at least 1")
    arguments.model = arguments.model or list(_MODELS)
    arguments.variant = chosen_variants(arguments)
    if "rekindle" in arguments.variant and importlib.util.find_spec("rekindle") is None:
        parser.error(f"{sys.executable} cannot import rekindle: run ./scripts/setup, or pass --variant eager")
    return arguments


def measure(arguments: argparse.Namespace) -> None:
    """Measures training, and prints the report."""
    samples: dict[str, dict[str, Samples]] = {}
    for model in arguments.model:
        labels = [trial.label for group in families(arguments, model, Path()) for trial in group]
        samples[model] = {label: Samples() for label in labels}
        for number in range(arguments.rounds):
            last = run_round(arguments, model, number, samples[model])
    models = {
        model: {label: summarize(subject, subjects.get("eager")) for label, subject in subjects.items()}
        for model, subjects in samples.items()
    }
    settings = {name: getattr(arguments, name) for name in ("rounds", "turns", "turn_steps", "dropout")}
    result = {"settings": settings, "models": models}
    print_result(result, last.ready["threads"], arguments.json, lambda: print_models(models))


def main() -> None:
    """Runs the benchmark that the first argument names, or that of training."""
    others = {"keys": keys, "memory": memory, "pythonop": pythonop, "step": step}
    try:
        if len(sys.argv) > 1 and sys.argv[1] in others:
            others[sys.argv[1]].main(sys.argv[2:])
        else:
            measure(parse_arguments())
    except TrialError as error:
        sys.exit(f"bench: {error}")


if __name__ == "__main__":
    main()
