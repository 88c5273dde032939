"""What cached functions (functools.lru_cache) have answered: results that a forward gets without running their code."""

from __future__ import annotations

import contextlib
import functools
import json
import threading
from collections.abc import Iterator
from typing import Any

from rekindle.fingerprint.cells import answers_of
from rekindle.fingerprint.digest import digest_leaves
from rekindle.fingerprint.resolve import find
from rekindle.fingerprint.values import Walker
from rekindle.reasons import Bypass, Reason

_OPAQUE = "opaque"
Answers = dict[str, str]  # digest of a question to the digest of its answer
Met = dict[int, tuple[Any, str, Answers]]  # by identity: cached function, path, answers when it was met first


class _Noted(threading.local):
    """What `noted_in` fills in this thread."""

    met: Met | None = None


_noted = _Noted()


@contextlib.contextmanager
def noted_in(met: Met) -> Iterator[None]:
    """Context in which the cached functions that a walk of this thread meets are added to `met`."""
    before, _noted.met = _noted.met, met
    try:
        yield
    finally:
        _noted.met = before


def meet(path: str, function: Any) -> None:
    """A walk is at a cached function."""
    met = _noted.met
    if met is not None and id(function) not in met:
        met[id(function)] = (function, path, {})  # an answer may be of a class that holds the function
        met[id(function)] = (function, path, _answers(function))


def observations(met: Met) -> Iterator[list[str | None]]:
    """One per function that has answered: what it had answered before, which must be answered alike, and what since, which
    must not be answered otherwise. Raises Bypass where an answer from before cannot be compared."""
    for function, path, before in list(met.values()):
        now = _answers(function)
        if not now:
            continue
        module, name = function.__module__, function.__qualname__
        found = find(module, name) is function
        if before and (not found or _OPAQUE in before.values()):
            raise Bypass(
                Reason.OPAQUE_VALUE,
                f"{path} is a cached function that has answered before, and its answers cannot be compared; "
                "call its cache_clear() before the first forward",
            )
        if found:
            since = {question: answer for question, answer in now.items() if question not in before}
            yield ["answers", module, name, json.dumps([before, since])]


def hold(module: str, name: str, text: str) -> bool:
    """Whether the answers of an observation fit those that the function has ready now."""
    before, since = json.loads(text)
    function = find(module, name)
    if not isinstance(function, functools._lru_cache_wrapper):
        return False
    now = _answers(function)
    return all(now.get(question) == answer for question, answer in before.items()) and all(
        question not in now or now[question] == answer != _OPAQUE for question, answer in since.items()
    )


def _answers(function: Any) -> Answers:
    if not function.cache_info().currsize:
        return {}
    return {_digest(question): _digest(answer) for question, answer in answers_of(function)}


def _digest(value: Any) -> str:
    walker = Walker()
    try:
        walker.walk("", list(value) if isinstance(value, list) else value)
    except Bypass:
        return _OPAQUE
    return digest_leaves(walker.leaves)
