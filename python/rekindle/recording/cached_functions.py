"""Observes what cached functions (functools.lru_cache) have answered: results that a forward gets without running their code.

Runs that try a graph leave a cache as it was (ANSWERS). A graph asks no function: before it serves a call, what its forward
asked is asked once, so that later calls find the answers that eager would have left.

For example, `app.table` had answered `table(2)`, and the forward called `table(3)`. The observation is

    ["answers", "app", "table", '[{"<question 2>": "<answer>"}, {"<question 3>": ["<answer>", <arguments>]}]']

with digests in angles. It holds while `table` has the first answer, and the second or none. Then `ask_again` calls `table(3)`,
unless that is answered already.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from torch import nn

from rekindle.functions.calls import describe_plain, resolve
from rekindle.key.fingerprint import Fingerprint
from rekindle.key.values.cached_answers import ANSWERS, answers_of
from rekindle.key.values.callables import told_of_cached
from rekindle.key.values.cells import TENSOR, Cells, seen_only
from rekindle.key.values.classes import one_pass, walk_members
from rekindle.key.values.names import find
from rekindle.key.values.tensors import CONTENT_LIMIT
from rekindle.key.values.walker import Walker, label
from rekindle.process.digest import digest_leaves
from rekindle.process.origin import PURE_LIBRARIES, Origin, installed, is_covered_class, is_heap_class, origin_of
from rekindle.process.random_states import random_states, random_states_equal, set_random_states
from rekindle.reasons import Bypass, Reason

_OPAQUE = "opaque"
_MOST_ASKED_BY_TRIALS = 8  # of a function that no call has asked before
_LARGEST_ANSWER = 1 << 30  # bytes of a tensor
_KEEPER = "transformers.pytorch_utils"  # whose compile_compatible_method_lru_cache is between a method and its cache
_NOBODY = nn.Module()  # a question is found again from loaded modules alone
Asked = tuple[tuple[Any, ...], dict[str, Any]]  # arguments of a call
Answers = dict[str, tuple[str, Asked]]  # by digest of the question; the digest of the answer


class _Met:
    """Tells what a cached function was asked since the walk met it.

    path: where it was met first
    """

    def __init__(self, path: str, function: Any) -> None:
        self.path, self.function = path, function
        self.calls = function.cache_info()[:2]  # hits and misses by then
        self.before: Answers = {}  # what it had answered then

    @property
    def is_asked(self) -> bool:
        """Tells whether the function was called since."""
        return bool(self.function.cache_info()[:2] != self.calls)


Met = dict[int, _Met]  # by identity


@contextlib.contextmanager
def noted_in(met: Met) -> Iterator[None]:
    """Adds to `met`, while the body runs, the cached functions that a walk of this thread meets."""
    with told_of_cached(functools.partial(_meet, met)):
        yield


def _meet(met: Met, path: str, function: Any) -> None:
    """Notes a cached function that a walk is at; raises Bypass for one whose answers depend on which calls came first."""
    if id(function) not in met:
        if _forgets_soon(function):
            raise _refused(path, "which may forget answers soon: raise its maxsize, or set it to None")
        one = met[id(function)] = _Met(path, function)  # an answer may be of a class that holds the function
        one.before = _answers(function)


def _forgets_soon(function: Any) -> bool:
    """Tells whether a bounded cache is more than half full, or too full for what trials of a graph may ask.

    Which answers it forgets then depends on the order of all calls; a graph makes none, and trials of a graph make some. A
    function without arguments, or of an installed package, does not count.
    """
    most, room = function.cache_parameters()["maxsize"], _MOST_ASKED_BY_TRIALS
    if not most or _has_one_question(function.__wrapped__) or is_of_a_library(function):
        return False
    return bool(most - function.cache_info().currsize < max(room, most // 2))


def is_of_a_library(function: Any) -> bool:
    """Tells whether a cached function's answers are no concern of its users: they are alike whenever they are asked for."""
    file = _file_of(function)
    return installed(file) or origin_of(file) is Origin.STDLIB


def _is_pure(function: Any) -> bool:
    """Tells whether the answers of a cached function depend on its arguments alone, as those of einops about its patterns do.

    So do those that a method of transformers keeps, of its module, shapes and dtypes: the module is in the key.
    """
    if not is_of_a_library(function):
        return False
    found = find(function.__module__, function.__qualname__)  # maybe a static method
    keeper = getattr(getattr(found, "__func__", found), "__globals__", {})
    return function.__module__.partition(".")[0] in PURE_LIBRARIES or keeper.get("__name__") == _KEEPER


def _has_one_question(function: Any) -> bool:
    code = getattr(function, "__code__", None)
    takes_any = inspect.CO_VARARGS | inspect.CO_VARKEYWORDS
    return code is not None and not (code.co_argcount or code.co_kwonlyargcount or code.co_flags & takes_any)


def _file_of(function: Any) -> str:
    code = getattr(function.__wrapped__, "__code__", None)
    return "" if code is None else str(code.co_filename)


def met_by(fingerprint: Fingerprint) -> Met:
    """Returns the cached functions that a fingerprint leads to."""
    met: Met = {}
    with one_pass(), noted_in(met):
        classes = {id(base): base for cls in fingerprint.classes for base in cls.__mro__}
        users = [cls for cls in classes.values() if is_heap_class(cls) and not is_covered_class(cls)]
        walked = [fingerprint.cells, *(walk_members(cls).cells for cls in users)]
        for function in [value for cells in walked for value, one in cells if one is ANSWERS]:
            _meet(met, label(function), function)
    return met


def observations(met: Met) -> Iterator[list[str | None]]:
    """Yields an observation for each function that was asked.

    It holds what the function had answered before, which must be answered alike, and what since, which must not be answered
    otherwise and is asked again. Raises Bypass for what cannot be compared, or not be asked again.
    """
    for one in [one for one in met.values() if one.is_asked and not _is_pure(one.function)]:
        now, before = _answers(one.function), one.before
        module, name = one.function.__module__, one.function.__qualname__
        is_known = find(module, name) is one.function and _OPAQUE not in {*before, *now, *(answer for answer, _ in now.values())}
        if now and not is_known:
            raise _refused(one.path, "whose answers cannot be compared; call it outside the forward")
        since = {
            question: [answer, told]
            for question, (answer, asked) in now.items()
            if question not in before and (told := _told(one, asked)) is not None
        }
        if now:
            yield ["answers", module, name, json.dumps([{question: answer for question, (answer, _) in before.items()}, since])]


def hold(module: str, name: str, text: str) -> bool:
    """Tells whether the answers of an observation fit those that the function has ready now."""
    before, since = json.loads(text)
    function = find(module, name)
    if not isinstance(function, functools._lru_cache_wrapper) or _forgets_soon(function):
        return False
    now = {question: answer for question, (answer, _) in _answers(function).items()}
    return all(now.get(question) == answer for question, answer in before.items()) and all(
        now.get(question, answer) == answer for question, (answer, _) in since.items()
    )


def ask_again(recorded: Iterable[Sequence[str | None]]) -> None:
    """Lets cached functions answer what they were asked in a recording, as they would in eager.

    Raises Bypass where one answers otherwise, raises or draws random numbers, and leaves its cache as it was for eager to ask.
    """
    for _, module, name, text in [one for one in recorded if one[0] == "answers"]:
        function = find(str(module), str(name))
        known, held = _answers(function), ANSWERS.take(function)
        missing = {question: one for question, one in json.loads(text or "")[1].items() if question not in known}
        try:
            for question, (answer, told) in missing.items():
                _ask(function, told)
                if _answers(function).get(question, ("",))[0] != answer:
                    raise _refused(f"{module}.{name}", "which answers otherwise than before")
        except Bypass:
            assert ANSWERS.put_back is not None
            ANSWERS.put_back(function, held)
            raise


def _ask(function: Any, told: Any) -> None:
    state = random_states()
    try:
        arguments, keywords = (resolve(part, _NOBODY, []) for part in told)
        function(*arguments, **keywords)
    except Exception as error:  # which eager may not meet, or at another time
        set_random_states(state)
        raise _refused(label(function), f"which raised {type(error).__name__}") from error
    if not random_states_equal(state, random_states()):
        set_random_states(state)
        raise _refused(label(function), "which draws random numbers")


def _told(one: _Met, asked: Asked) -> list[Any] | None:
    """Returns arguments as JSON; raises Bypass for those that another process could not find, as the module itself.

    Of an installed package, whose caches are its own concern, it returns None for those instead.
    """
    from rekindle.sizes.traced_sizes import swapped  # which only exports and caches need

    try:
        return [describe_plain(swapped(part, int), one.path) for part in asked]
    except Bypass as bypass:
        if installed(_file_of(one.function)):
            return None
        raise _refused(one.path, f"which cannot be asked again: {bypass.message}") from None


def _refused(path: str, why: str) -> Bypass:
    return Bypass(Reason.STATE_MUTATED, f"the forward fills the cache of {path}, {why}")


def _answers(function: Any) -> Answers:
    if not function.cache_info().currsize:
        return {}
    is_typed, answers = function.cache_parameters()["typed"], Answers()
    for key, answer in answers_of(function):
        asked, digest = _asked(key, is_typed), _digest(answer)
        known, _ = answers.setdefault(_digest(asked), (digest, asked))
        if known != digest:  # an open size is a key of its own: a trial may get another answer than eager got
            answers[_digest(asked)] = (_OPAQUE, asked)
    return answers


def _asked(key: Any, is_typed: bool) -> Asked:
    """Returns the arguments that a key of a cache stands for.

    A key is the one argument itself, or a tuple: positional ones, a mark and named ones, then all types.
    """
    if type(key) is not tuple:
        return (key,), {}
    mark = next((i for i, item in enumerate(key) if type(item) is object), None)
    if mark is None:
        return key[: len(key) // 2 if is_typed else len(key)], {}
    names = (len(key) - 2 * mark - 1) // 3 if is_typed else (len(key) - mark - 1) // 2
    named = key[mark + 1 : mark + 1 + 2 * names]
    return key[:mark], dict(zip(named[::2], named[1::2], strict=True))


def _digest(value: Any) -> str:
    walker = _walked(value)
    return _OPAQUE if walker is None else digest_leaves(walker.leaves)


def _walked(value: Any) -> Walker | None:
    """Returns a walk over a question or an answer; None if it cannot be digested."""
    from rekindle.sizes.traced_sizes import CLOSED, contains_traced, swapped

    walker = Walker()
    walker.excluded = frozenset({f"torch.Tensor.{CLOSED}"})
    walker.content_limit = _LARGEST_ANSWER
    try:
        walker.walk("", swapped(value, int) if contains_traced(value) else value)
    except Bypass:
        return None
    return walker


# Of an answer that is too large for a comparison of its bytes at each call.
_VERSION = seen_only(lambda tensor: (sys.intern(str(tensor._version)), sys.intern(str(tensor.data_ptr()))))


def cells_in(function: Any) -> Iterator[tuple[Any, Cells]]:
    """Yields what to watch in the answers that a cached function has ready: values with the cells that show a change."""
    for _, answer in answers_of(function):
        walker = _walked(answer)
        for value, cells in [] if walker is None else walker.cells:
            is_large = cells is TENSOR and value.numel() * value.element_size() > CONTENT_LIMIT
            yield value, _VERSION if is_large else cells
