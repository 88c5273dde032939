"""Random models that return scores beside a loss of them, trained for a few steps: `scripts/soundness scores`.

Each program runs wrapped and unwrapped, and once more unwrapped in float64, which says how far rounding goes: results,
gradients and errors must be equal. See scores_program.py for what a program is, scores_parts.py, scores_losses.py and
scores_steps.py for what it is made of, scores_compare.py for what is equal.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import pathlib
import sys
import tempfile
import time
from collections.abc import Callable, Iterator

import random_suite
import torch
from scores_program import PARTS, Program, Step, draw
from scores_run import Outcome, run


def attempt(program: Program, directory: pathlib.Path | None = None) -> Outcome:
    """Runs a program in a directory, or in one that is gone afterwards."""
    if directory is not None:
        return run(program, directory)
    with tempfile.TemporaryDirectory(prefix="rekindle-scores", ignore_cleanup_errors=True) as made:
        return run(program, pathlib.Path(made))


def _smaller(program: Program) -> Iterator[Program]:
    """Yields the program with one step less, or with one thing plainer."""
    steps = program.steps
    for i, step in enumerate(steps):
        if len(steps) > 1:
            yield dataclasses.replace(program, steps=steps[:i] + steps[i + 1 :])
        for plain in dataclasses.fields(Step):
            if plain.name != "seed" and getattr(step, plain.name) != plain.default:
                one = dataclasses.replace(step, **{plain.name: plain.default})
                yield dataclasses.replace(program, steps=(*steps[:i], one, *steps[i + 1 :]))
    for part, (table, _) in PARTS.items():
        if program.parts[part] != next(iter(table)):
            yield dataclasses.replace(program, parts={**program.parts, part: next(iter(table))})
    for plain in dataclasses.fields(Program):
        if plain.name not in ("parts", "steps") and getattr(program, plain.name) != plain.default:
            yield dataclasses.replace(program, **{plain.name: plain.default})


def shrink(program: Program, fails: Callable[[Program], bool]) -> Program:
    """Makes a program as small and plain as it still fails."""
    while (smaller := next(filter(fails, _smaller(program)), None)) is not None:
        program = smaller
    return program


def text_of(program: Program, outcome: Outcome) -> str:
    """Shows a failing program to a reader."""
    plain = dataclasses.asdict(Program({}, ()))
    given = {name: value for name, value in vars(program).items() if name != "steps" and value != plain[name]}
    steps = [f"{'->' if i == outcome.step else '  '} {step}" for i, step in enumerate(program.steps)]
    return "\n".join([program.source().partition("\n\n\n")[2], f"# {given}", *steps, *outcome.wrong])


def report(outcomes: dict[int, Outcome], seconds: float) -> str:
    """Says what a run found, in a few lines."""
    sources = collections.Counter(source for outcome in outcomes.values() for source in outcome.sources)
    reasons = collections.Counter(text[:90] for outcome in outcomes.values() for text in outcome.bypass)
    graphs = sources.total() - sources["raised"] - sources["eager"]
    counts = collections.Counter(programs=len(outcomes), calls=sources.total(), raised=sources["raised"], graphs=graphs)
    failed = [str(seed) for seed, outcome in outcomes.items() if outcome.wrong]
    joined, refused = (sum(getattr(each, name) for each in outcomes.values()) for name in ("joined", "refused"))
    lines = [f"sources of graphs: {dict(sources)}"]
    lines.append(f"{joined} programs join the gradient of their scores with those of a layer; {refused} writes were refused")
    return "\n".join([*lines, random_suite.report(counts, failed, reasons, seconds)])


def main() -> int:
    parser = argparse.ArgumentParser(description="Random models that return scores beside a loss, wrapped and unwrapped.")
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0, help="of the first program")
    parser.add_argument("--shrink", action="store_true", help="make what fails small before it is printed")
    parser.add_argument("--keep", type=pathlib.Path, metavar="DIR", help="keep the caches; a second run then starts warm")
    arguments = parser.parse_args()
    torch.set_num_threads(1)  # the models are too small for more
    outcomes: dict[int, Outcome] = {}
    start = time.monotonic()
    for seed in range(arguments.seed, arguments.seed + arguments.programs):
        program = draw(seed)
        outcome = outcomes[seed] = attempt(program, arguments.keep and arguments.keep / str(seed))
        if outcome.wrong:
            if arguments.shrink:
                program = shrink(program, lambda each: bool(attempt(each).wrong))
                outcome = attempt(program)
            print(f"=== program {seed}\n{text_of(program, outcome)}", flush=True)
    print(report(outcomes, time.monotonic() - start))
    return int(any(outcome.wrong for outcome in outcomes.values()))


if __name__ == "__main__":
    sys.exit(main())
