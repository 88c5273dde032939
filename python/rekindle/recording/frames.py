"""Tells whose the frames of running code are, what they are called, and where a search along their callers ends."""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from typing import TypeVar

from rekindle.key.values.names import ABSENT
from rekindle.process.origin import PURE_LIBRARIES, Origin, installed, origin_of_frame
from rekindle.process.torch_internals import disabled_torch_function, set_tracing_state, tracing_state

_Result = TypeVar("_Result")


def apart(action: Callable[[], _Result], on_error: Callable[[Exception], None]) -> _Result | None:
    """Returns what `action` does, which is not part of the forward: it may read the content of a tensor.

    Gives `on_error` what it raises, and returns None.
    """
    state = tracing_state()
    if state is not None:  # else it may be one that cannot be set, inside of an operator
        set_tracing_state(None)
    try:
        with disabled_torch_function():
            return action()
    except Exception as error:
        on_error(error)
        return None
    finally:
        if state is not None:
            set_tracing_state(state)


def frames_from(frame: types.FrameType | None) -> Iterator[types.FrameType]:
    """Yields the frame and its callers, from the inside out."""
    while frame is not None:
        yield frame
        frame = frame.f_back


def beyond(frame: types.FrameType | None, passed: tuple[Origin, ...], ending: tuple[str, ...] = ()) -> types.FrameType | None:
    """Returns the first frame, from the inside out, that is of none of the origins `passed`, or None.

    It is also None where a module of `ending` is on the way.
    """
    while frame is not None and origin_of_frame(frame) in passed:
        if frame.f_globals.get("__name__") in ending:
            return None
        frame = frame.f_back
    return frame


def first_type(frame: types.FrameType, code: types.CodeType) -> type | None:
    """Returns the first argument of a call of `code` if it is a class, else its class: a method's; None without arguments."""
    if not code.co_argcount:
        return None
    first = frame.f_locals.get(code.co_varnames[0], ABSENT)
    return first if isinstance(first, type) else type(first)


def is_user(frame: types.FrameType) -> bool:
    """Tells whether the frame runs code of the user's."""
    return origin_of_frame(frame) is Origin.USER


def is_pure_library(frame: types.FrameType) -> bool:
    """Tells whether the frame runs code of an installed package whose results do not depend on the order of its sets."""
    root = str(frame.f_globals.get("__name__")).partition(".")[0]
    return root in PURE_LIBRARIES and installed(frame.f_code.co_filename)


def place_of(frame: types.FrameType) -> str:
    """Returns module and qualified name of the code that the frame runs."""
    code = frame.f_code
    return f"{frame.f_globals.get('__name__', '?')}.{code.co_qualname}"


def read_is_no_forwards() -> bool:
    """Tells whether Rekindle itself reads the environment, or a module of torch's that is imported. To be called from a patched
    method of `os.environ`, two frames below the mapping's own.

    What torch makes of a variable then is a setting, and observed as that; some it sets itself, for the next import to find.
    """
    frame = beyond(sys._getframe(3), (Origin.STDLIB,))
    if frame is not None and origin_of_frame(frame) is Origin.REKINDLE:
        return True
    while frame is not None and (origin := origin_of_frame(frame)) in (Origin.STDLIB, Origin.TORCH):
        if origin is Origin.TORCH and frame.f_code.co_name == "<module>":
            return True
        frame = frame.f_back
    return False
