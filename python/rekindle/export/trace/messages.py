"""Tells when a size is turned into text for a message that only a failed assertion shows.

An example: torchvision's layers begin with `torch._assert(x.dim() == 3, f"Expected three dimensions, got {x.shape}")`. Python
makes the text at each call, and nothing reads it unless the assertion fails: then the forward raises, and there is no graph. So
the sizes in it are not asked for. An `assert` makes its text when it fails, and needs none of this.
"""

from __future__ import annotations

import dis
import functools
from types import CodeType, FrameType

import torch

from rekindle.key.code.stack_depth import depths_of

_FORMATS = frozenset(("FORMAT_VALUE", "FORMAT_SIMPLE", "FORMAT_WITH_SPEC"))
# How many values instructions take at most from the stack which may come before the text is handed over.
_TAKES = {
    name: count
    for count, names in {
        0: "LOAD_CONST LOAD_SMALL_INT LOAD_FAST LOAD_FAST_BORROW LOAD_FAST_CHECK LOAD_DEREF LOAD_GLOBAL PUSH_NULL NOP",
        1: "LOAD_ATTR LOAD_METHOD CONVERT_VALUE FORMAT_SIMPLE",
        2: "FORMAT_VALUE FORMAT_WITH_SPEC BINARY_OP BINARY_SUBSCR",
    }.items()
    for name in names.split()
}


def is_for_message(frame: FrameType) -> bool:
    """Tells whether the text that the frame's code is making goes into the message of a torch._assert and nowhere else."""
    loads = _loads_of_callee(frame.f_code, frame.f_lasti)
    if not loads:
        return False
    value = frame.f_globals.get(loads[0])
    for name in loads[1:]:
        value = vars(value).get(name) if type(value) is type(torch) else None
    return value is torch._assert


@functools.lru_cache(maxsize=256)
def _loads_of_callee(code: CodeType, offset: int) -> tuple[str, ...]:
    """Returns the names by which code loads the function that gets the text being made at `offset`, as ("torch", "_assert").

    Returns () where the text may go elsewhere, or the function's result is used.
    """
    depths = depths_of(code)
    steps = [step for step in dis.get_instructions(code) if step.opname != "CACHE" and step.offset in depths]
    at = next((i for i, step in enumerate(steps) if step.offset == offset), None)
    if at is None or steps[at].opname not in _FORMATS:
        return ()
    text = depths[steps[at + 1].offset] - 1  # where it lies on the stack
    for i, step in enumerate(steps[at + 1 :], at + 1):
        depth, count = depths[step.offset], step.arg or 0
        if step.opname == "BUILD_STRING":
            text = min(text, depth - count)
        elif step.opname in ("PRECALL", "CALL") and depth - count <= text:  # the former has the arguments, before Python 3.12
            is_dropped = next(after.opname for after in steps[i + 1 :] if after.opname != "CALL") == "POP_TOP"
            return _loads_before(steps[:at], depths, depth - count) if is_dropped else ()
        elif step.opname in ("PRECALL", "CALL"):
            if depth - count - 2 <= text:  # beside the arguments, what is called and what it is called on
                return ()
        elif step.is_jump_target or step.opname not in _TAKES or depth - _TAKES[step.opname] <= text:
            return ()
    return ()


def _loads_before(steps: list[dis.Instruction], depths: dict[int, int], first: int) -> tuple[str, ...]:
    """Returns the names that load a function whose first argument comes to lie at `first` of the stack."""
    names: list[str] = []
    for step in reversed(steps):
        if depths[step.offset] + dis.stack_effect(step.opcode, step.arg) > first:
            continue  # of an argument
        if step.opname in ("LOAD_ATTR", "LOAD_METHOD"):
            names.insert(0, step.argval)
        elif step.opname == "LOAD_GLOBAL":
            return (step.argval, *names)
        elif step.opname not in ("PUSH_NULL", "PRECALL", "NOP"):
            return ()
    return ()
