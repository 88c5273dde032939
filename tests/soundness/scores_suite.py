"""Random models that return scores beside a loss of them, trained for a few steps: `scripts/soundness scores`.

Each program runs wrapped and unwrapped, and once more unwrapped in float64, which says how far rounding goes: results,
gradients and errors must be equal. See scores_program.py for what a program is, scores_parts.py, scores_losses.py and
stepwise_backwards.py for what it is made of, stepwise_compare.py for what is equal.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator

from scores_program import PARTS, Program, draw
from scores_run import ScoresOutcome, run
from stepwise_programs import Suite, steps_of


def _smaller(program: Program) -> Iterator[Program]:
    """Yields the program with one part plainer."""
    for part, (table, _) in PARTS.items():
        if program.parts[part] != next(iter(table)):
            yield dataclasses.replace(program, parts={**program.parts, part: next(iter(table))})
    for plain in dataclasses.fields(Program):
        if plain.name not in ("parts", "steps") and getattr(program, plain.name) != plain.default:
            yield dataclasses.replace(program, **{plain.name: plain.default})


def _text_of(program: Program, outcome: ScoresOutcome) -> str:
    """Shows a failing program to a reader."""
    plain = dataclasses.asdict(Program({}, ()))
    given = {name: value for name, value in vars(program).items() if name != "steps" and value != plain[name]}
    return "\n".join([program.source().partition("\n\n\n")[2], f"# {given}", *steps_of(program, outcome), *outcome.wrong])


def _told(outcomes: dict[int, ScoresOutcome]) -> list[str]:
    joined, refused = (sum(getattr(each, name) for each in outcomes.values()) for name in ("joined", "refused"))
    return [f"{joined} programs join the gradient of their scores with those of a layer; {refused} writes were refused"]


SUITE = Suite(
    "scores", "Random models that return scores beside a loss, wrapped and unwrapped.", draw, run, _smaller, _text_of, _told
)

if __name__ == "__main__":
    sys.exit(SUITE.main())
