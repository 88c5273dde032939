"""Counts the values that lie on the stack of a code object where an instruction begins, from its bytecode."""

from __future__ import annotations

import dis
import itertools
from types import CodeType

_JUMPS = frozenset([*dis.hasjrel, *dis.hasjabs])


def depths_at(code: CodeType, opcode: int) -> dict[int, int]:
    """Returns the stack's depth at each instruction of an opcode that can be reached, by the instruction's offset in bytes."""
    found = depths_of(code)
    return {step.offset: found[step.offset] for step in _steps(code) if step.opcode == opcode and step.offset in found}


def _steps(code: CodeType) -> list[dis.Instruction]:
    return list(dis.get_instructions(code))


def depths_of(code: CodeType) -> dict[int, int]:
    """Returns the depth where each instruction begins that can be reached, by its offset. Ways that meet have equal depths."""
    steps = _steps(code)
    next_of = {step.offset: after for step, after in itertools.pairwise(steps)}
    by_offset = {step.offset: step for step in steps}
    # Where an exception is handled lie the values that were there, where it was raised if that is asked for, and itself.
    handlers = [(entry.target, entry.depth + entry.lasti + 1) for entry in dis.Bytecode(code).exception_entries]
    depths: dict[int, int] = {}
    open_ends = [(steps[0].offset, 0), *handlers]
    while open_ends:
        offset, depth = open_ends.pop()
        if offset in depths:
            continue
        depths[offset] = depth
        step = by_offset[offset]
        argument = step.arg if step.opcode >= dis.HAVE_ARGUMENT else None
        if step.opcode in _JUMPS:
            open_ends.append((step.argval, depth + dis.stack_effect(step.opcode, argument, jump=True)))
        if step.opname not in _ENDS and offset in next_of:
            open_ends.append((next_of[offset].offset, depth + dis.stack_effect(step.opcode, argument, jump=False)))
    return depths


_ENDS = frozenset(
    "RETURN_VALUE RETURN_CONST RAISE_VARARGS RERAISE JUMP_FORWARD JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT "
    "INTERPRETER_EXIT".split()
)
