"""Random programs whose later calls have numbers at the edges of their dtypes: `scripts/soundness values`.

Each program is wrapped, called with ordinary numbers, at which its graph is made and compared, and then with infinities, nans,
zeros of both signs, the largest and smallest numbers, masks that hide all of a row, in other layouts and batch sizes. Results,
gradients, inputs, random numbers and errors must be eager's. See values_program.py for what a program is, values_numbers.py for
what calls are given, values_judge.py for what is equal.
"""

from __future__ import annotations

import dataclasses
import pathlib
import sys
from collections.abc import Iterable, Iterator
from typing import Any

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "conformance"))  # which has the operations

from stepwise_programs import Suite, steps_of
from values_program import Program, draw
from values_run import ValuesOutcome, run


def _smaller(program: Program) -> Iterator[Program]:
    """Yields the program with one line, one result or one input less, or plainer inputs."""
    first = len(program.inputs) + 1
    for i, line in enumerate(program.lines):
        yield from _without(program, i, first)
        first += line.results
    used = {at for line in program.lines for at in line.inputs}
    for result in program.results:  # but those that nothing reads then: a graph leaves out errors of these
        if len(program.results) > 1 and (result in used or result <= len(program.inputs)):
            yield dataclasses.replace(program, results=tuple(i for i in program.results if i != result))
    used |= {*program.results}
    yield from (_without_input(program, i) for i in range(len(program.inputs)) if i not in used and len(program.inputs) > 1)
    yield from _plainer(program)


def _plainer(program: Program) -> Iterator[Program]:
    for option in ({"level": None}, {"numerics": "fast"}):
        yield from _changed(program, **option)
    for i, one in enumerate(program.inputs):
        plain: list[dict[str, Any]] = [{"gradient": False}, {"positive": False}, {"sizes": one.sizes[:-1]}]
        for given in (*plain, {"sizes": (2,) * len(one.sizes)}):
            less = dataclasses.replace(one, **given)
            yield from _changed(program, inputs=(*program.inputs[:i], less, *program.inputs[i + 1 :]))


def _changed(program: Program, **given: Any) -> Iterator[Program]:
    """Yields the program with what is given, if that is another one."""
    changed = dataclasses.replace(program, **given)
    if changed != program:
        yield changed


def _without(program: Program, i: int, first: int) -> Iterator[Program]:
    """Yields the program without line i, whose first value is `first`: an input of the line takes the place of its results."""
    line = program.lines[i]
    for instead in {*line.inputs}:
        moved = {at: instead if at < first + line.results else at - line.results for at in range(first, 1 << 10)}
        lines = [dataclasses.replace(each, inputs=[moved.get(at, at) for at in each.inputs]) for each in program.lines[i + 1 :]]
        results = {moved.get(at, at) for at in program.results}
        yield dataclasses.replace(program, lines=(*program.lines[:i], *lines), results=tuple(sorted(results)))


def _without_input(program: Program, i: int) -> Program:
    def earlier(positions: Iterable[int]) -> list[int]:
        return [at - (at > i) for at in positions]

    lines = tuple(dataclasses.replace(line, inputs=earlier(line.inputs)) for line in program.lines)
    steps = tuple(dataclasses.replace(step, only=step.only - (step.only > i)) for step in program.steps)
    inputs = program.inputs[:i] + program.inputs[i + 1 :]
    return dataclasses.replace(program, lines=lines, results=tuple(earlier(program.results)), inputs=inputs, steps=steps)


def _text_of(program: Program, outcome: ValuesOutcome) -> str:
    """Shows a failing program to a reader."""
    given = [f"v{i} = {one}" for i, one in enumerate(program.inputs)]
    given.append(f"v{len(given)} = weight of {program.size} {program.dtype}; a batch is {program.batch}")
    given.append(f"# memory_level={program.level}, numerics={program.numerics!r}")
    return "\n".join([*given, program.module().text(len(program.inputs)), *steps_of(program, outcome), *outcome.wrong])


def _told(outcomes: dict[int, ValuesOutcome]) -> list[str]:
    differ = [str(seed) for seed, each in outcomes.items() if any("verification_failed" in text for text in each.bypass)]
    exports = sum(each.exports for each in outcomes.values())
    return [f"{exports} exports; graphs differed from eager when they were made: {' '.join(differ) or 'none'}"]


SUITE = Suite("values", "Random programs whose later calls have numbers at the edges.", draw, run, _smaller, _text_of, _told)

if __name__ == "__main__":
    sys.exit(SUITE.main())
