"""Takes and puts back what a function with functools.lru_cache has kept of its answers.

An example: `answers_of(area)` is [((2, 3), 6)] after `area(2, 3)`; the question is a key of functools', in a form of its own.
"""

from __future__ import annotations

import gc
from typing import Any

from rekindle.key.values.cells import Cells, flat, named, pairs


def _table_of(function: Any) -> dict[Any, Any]:
    """Returns the cache of a cached function; only the garbage collector sees it."""
    return next(item for item in gc.get_referents(function) if type(item) is dict and item is not function.__dict__)


def answers_of(function: Any) -> list[tuple[Any, Any]]:
    """Returns the (question, answer) pairs that a cached function has kept."""
    if not function.cache_info().currsize:
        return []
    held, table = gc.get_referents(function), _table_of(function)
    if function.cache_parameters()["maxsize"] is None:
        return list(table.items())
    link = type(next(iter(table.values())))  # a key and its result come before the type of their link
    live = {id(key) for key in table}
    # The links of keys that were removed stay, the oldest first: of two with one key the last counts.
    found = {id(held[i - 2]): (held[i - 2], held[i - 1]) for i, item in enumerate(held) if item is link}
    return [pair for key, pair in found.items() if key in live]


def _put_back_answers(function: Any, parts: tuple[Any, ...]) -> None:
    """Forgets what was answered since; what was forgotten since cannot be known again."""
    if not parts:
        function.cache_clear()
        return
    before, table = {id(key) for key, _ in pairs(parts)}, _table_of(function)
    for key, _ in answers_of(function):
        if id(key) not in before:
            table.pop(key, None)


def _forgets(before: tuple[Any, ...], now: tuple[Any, ...]) -> bool:
    return not {(id(key), id(answer)) for key, answer in pairs(before)} <= {(id(key), id(answer)) for key, answer in pairs(now)}


# What is answered in a trial run is no effect of it: a graph's first call has it answered again (recording/cached_functions.py).
ANSWERS = Cells(None, lambda value: flat(answers_of(value)), _put_back_answers, named, is_effect=_forgets)
