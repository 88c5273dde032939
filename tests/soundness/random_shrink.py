"""Makes a failing program smaller while it fails."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from random_program import Program, Step

Fails = Callable[[Program], bool]


def shrink(program: Program, fails: Fails, last: int | None = None) -> Program:
    """The smallest program that was found to fail; `program` does, at its step `last`."""
    if program.second is not None and fails(alone := dataclasses.replace(program, second=None)):
        program = alone
    if last is not None and fails(short := dataclasses.replace(program, steps=program.steps[: last + 1])):
        program = short
    before = None
    while before != program:
        before = program
        for piece in program.pieces:
            program = _first(program, [program.without(piece.number)], fails)
        program = _fewer_steps(program, fails)
        for i in range(len(program.pieces)):
            program = _first(program, _elsewhere(program, i), fails)
        if program.through:
            program = _first(program, [dataclasses.replace(program, through=False)], fails)
        for i in range(len(program.steps)):
            for simpler in _simpler_calls(program.steps[i]):
                steps = (*program.steps[:i], simpler(program.steps[i]), *program.steps[i + 1 :])
                program = _first(program, [dataclasses.replace(program, steps=steps)], fails)
    return program


def _first(program: Program, simpler: list[Program], fails: Fails) -> Program:
    return next((each for each in simpler if each != program and fails(each)), program)


def _fewer_steps(program: Program, fails: Fails) -> Program:
    size = max(1, len(program.steps) // 2)
    while size:
        start = 0
        while start < len(program.steps):
            less = dataclasses.replace(program, steps=program.steps[:start] + program.steps[start + size :])
            if fails(less):
                program = less
            else:
                start += size
        size //= 2
    return program


def _elsewhere(program: Program, i: int) -> list[Program]:
    piece = program.pieces[i]
    if piece.place != "method":
        return []
    pieces = (*program.pieces[:i], dataclasses.replace(piece, place="forward"), *program.pieces[i + 1 :])
    return [dataclasses.replace(program, pieces=pieces)]


def _simpler_calls(step: Step) -> list[Callable[[Step], Step]]:
    if not step.is_call:
        return []
    found: list[Callable[[Step], Step]] = [
        lambda each: dataclasses.replace(each, text="call"),
        lambda each: dataclasses.replace(each, inputs="x(3, 4)"),
    ]
    for argument in step.arguments:
        found.append(
            lambda each, less=argument: dataclasses.replace(each, arguments=tuple(a for a in each.arguments if a is not less))
        )
    return found
