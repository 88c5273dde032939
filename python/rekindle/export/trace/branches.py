"""Reads in Python's bytecode what follows a question.

A branch that only raises is a check, not a way to compute something else.
"""

from __future__ import annotations

import dis
import functools
import types

_MOST = 200  # instructions of a branch that are looked at
# What may stand between the question and the jump; from Python 3.13 on, a comparison asks for the truth of its result.
_BEFORE_JUMP = {"COMPARE_OP", "TO_BOOL", "UNARY_NOT", "COPY", "CACHE", "NOT_TAKEN"}
_LEAVING = {"RETURN_VALUE", "RETURN_CONST", "YIELD_VALUE", "RETURN_GENERATOR", "SEND"}


def is_check(asking: types.FrameType) -> bool:
    """Tells whether a frame asks for the truth of a value just now because it raises in one of both cases, as `assert` does."""
    code = asking.f_code
    places, found = _instructions(code)
    i = places.get(asking.f_lasti)
    while i is not None and i < len(found) and found[i].opname in _BEFORE_JUMP:
        i += 1
    if i is None or i == len(found) or not _plain(found[i]).endswith(("JUMP_IF_TRUE", "JUMP_IF_FALSE")):
        return False
    return _only_raises(found, i + 1) or _only_raises(found, places[found[i].argval])


def _plain(instruction: dis.Instruction) -> str:
    """Returns a jump's name without its direction, which Python 3.11 names."""
    return instruction.opname.replace("FORWARD_", "").replace("BACKWARD_", "")


@functools.lru_cache(maxsize=256)
def _instructions(code: types.CodeType) -> tuple[dict[int, int], list[dis.Instruction]]:
    found = list(dis.get_instructions(code))
    return {instruction.offset: i for i, instruction in enumerate(found)}, found


def _only_raises(found: list[dis.Instruction], start: int) -> bool:
    for instruction in found[start : start + _MOST]:
        if instruction.opname == "RAISE_VARARGS":
            return True
        if "JUMP" in instruction.opname or "FOR_ITER" in instruction.opname or instruction.opname in _LEAVING:
            return False
    return False
