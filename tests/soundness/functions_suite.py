"""Random modules that apply autograd Functions, trained for a few steps: `scripts/soundness functions`.

Each program runs wrapped and unwrapped: results, gradients, buffers, inputs, logs, random numbers and errors must be equal. See
functions_program.py for what a program is, functions_bodies.py, functions_arguments.py, functions_places.py and
functions_steps.py for what it is made of, functions_run.py for what is compared.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Iterator

from functions_program import Program, draw
from functions_run import run
from functions_text import FUNCTION_PARTS, NET_PARTS, Parts
from stepwise_programs import Suite, steps_of
from stepwise_run import Outcome


def _plainer(parts: Parts, tables: dict) -> Iterator[Parts]:
    """Yields the parts with one of them plainer."""
    for part, (table, _) in tables.items():
        if parts[part] != next(iter(table)):
            yield {**parts, part: next(iter(table))}


def _smaller(program: Program) -> Iterator[Program]:
    """Yields the program with one Function less, or with one part plainer."""
    functions = program.functions
    for i, parts in enumerate(functions):
        if len(functions) > 1:
            yield dataclasses.replace(program, functions=functions[:i] + functions[i + 1 :])
        for less in _plainer(parts, FUNCTION_PARTS):
            yield dataclasses.replace(program, functions=(*functions[:i], less, *functions[i + 1 :]))
    for less in _plainer(program.net, NET_PARTS):
        yield dataclasses.replace(program, net=less)


def _text_of(program: Program, outcome: Outcome) -> str:
    """Shows a failing program to a reader."""
    ways = []
    for parts, tables in [*((parts, FUNCTION_PARTS) for parts in program.functions), (program.net, NET_PARTS)]:
        ways.append(f"# { ({part: way for part, way in parts.items() if way != next(iter(tables[part][0]))}) }")
    return "\n".join([program.body(), *ways, *steps_of(program, outcome), *outcome.wrong])


def _told(outcomes: dict[int, Outcome]) -> list[str]:
    differ = [str(seed) for seed, outcome in outcomes.items() if any(map(_is_defect, outcome.bypass))]
    refused = f"{sum(each.refused for each in outcomes.values())} writes were refused"
    return [f"{refused}; graphs differed from eager when they were made: {' '.join(differ) or 'none'}"]


def _is_defect(bypass: str) -> bool:
    """Tells whether calls ran in eager as a graph was wrong, other than where eager's backward raises."""
    return bypass.startswith("verification_failed") and ("is off" in bypass or "requires" in bypass or " is None" in bypass)


SUITE = Suite(
    "functions", "Random modules that apply autograd Functions, wrapped and unwrapped.", draw, run, _smaller, _text_of, _told
)

if __name__ == "__main__":
    sys.exit(SUITE.main())
