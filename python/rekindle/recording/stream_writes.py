"""Notices what is written to stdout and stderr where no event of Python tells: by functions of C that others of C call.

An example: with `say = functools.partial(print, flush=True)`, a forward that calls `say("done")` calls the partial object, which
calls `print`, which calls the `write` that stdout has.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from rekindle.process.process_state import in_this_thread, replaced


@contextlib.contextmanager
def written(on_write: Callable[[FrameType, Any], None]) -> Iterator[None]:
    """Calls `on_write`, while the body runs, before this thread writes a text to the process's stdout or stderr.

    on_write: is given the frame that writes, and `print`, which does the same: who writes for whom is judged alike
    """
    streams = {id(one): one for one in (sys.stdout, sys.stderr, sys.__stdout__, sys.__stderr__)}
    with contextlib.ExitStack() as entered:
        for stream in streams.values():
            if isinstance(stream, io.TextIOWrapper):  # what else a program has there is Python, whose calls are seen
                entered.enter_context(replaced(stream, "write", in_this_thread(_telling(stream, on_write), stream.write)))
        yield


def _telling(stream: io.TextIOWrapper, on_write: Callable[[FrameType, Any], None]) -> Callable[..., int]:
    theirs = stream.write

    def write(*args: Any) -> int:
        on_write(sys._getframe(2), print)
        return theirs(*args)

    return write
