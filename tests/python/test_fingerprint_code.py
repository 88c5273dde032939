"""Digests of code and of leaves tell apart what behaves apart, and nothing else."""

from __future__ import annotations

import types
from typing import Any

import pytest
from rekindle.key.code.code_objects import code_digest
from rekindle.process.digest import digest_leaves


def _compile(text: str) -> Any:
    namespace: dict[str, Any] = {}
    exec(text, namespace)
    return namespace["f"].__code__


CODE_DIFFERS = [
    "def f(x): return x + 1",
    "def f(x): return x + 1.0",
    "def f(x): return x + True",
    "def f(x): return x + -1",
    "def f(x): return x + 1j",
    "def f(x): return x - 1",
    "def f(x): return x + 0.0",
    "def f(x): return x + -0.0",
    "def f(x): return x + '1'",
    "def f(x): return x + b'1'",
    "def f(x): return x + y",
    "def f(x): return x + z",
    "def f(x, /): return x + 1",
    "def f(*, x): return x + 1",
    "def f(*x): return x + 1",
    "async def f(x): return x + 1",
    "def f(x): yield x + 1",
    "def f(x): return x.a",
    "def f(x): return x.b",
    "def f(x): return (1, 2)",
    "def f(x): return (1, 2.0)",
    "def f(x): return (1, (2,))",
    "def f(x): return x in {1, 2}",
    "def f(x): return x in {1, 3}",
    "def f(x): return lambda: x + 1",
    "def f(x): return lambda: x + 2",
    "def f(x):\n try: return 1\n except A: return 2",
    "def f(x):\n try: return 1\n except B: return 2",
    "def f(x):\n global y\n y = x",
    "def f(x): return 'doc'",
    "def f(x): return ...",
    "def f(x): return 1e400 - 1e400",
]


def test_different_code_has_different_digests() -> None:
    digests = {code_digest(_compile(source)): source for source in CODE_DIFFERS}
    assert len(digests) == len(CODE_DIFFERS)


CODE_EQUAL = [
    ("def f(x): return x + 1", "\n\n# moved\ndef f(x):\n    # comment\n    return x + 1"),
    ("def f(x):\n 'a'\n return x + 1", "def f(x):\n 'another'\n return x + 1"),
    ("def f(x: int) -> int: return x", "def f(x): return x"),
    ("def f(x): return x in {'a', 'b', 'c'}", "def f(x): return x in {'c', 'b', 'a'}"),
    ("def f(x): return lambda: x", "def f(x):\n\n return lambda: x"),
]


@pytest.mark.parametrize(("left", "right"), CODE_EQUAL)
def test_code_that_differs_in_writing_only_has_one_digest(left: str, right: str) -> None:
    assert code_digest(_compile(left)) == code_digest(_compile(right))


def test_a_docstring_that_is_also_returned_counts() -> None:
    left = _compile("def f(x):\n 'a'\n return 'a'")
    right = _compile("def f(x):\n 'b'\n return 'b'")
    assert code_digest(left) != code_digest(right)


def test_running_code_does_not_change_its_digest() -> None:
    code = _compile("def f(n):\n t = 0\n for i in range(n): t += i\n return t")
    before = code_digest(code)
    function = types.FunctionType(code, {"range": range})
    for _ in range(200):
        function(50)
    from rekindle.key.code import code_objects as module

    module._digests.clear()
    assert code_digest(code) == before


def test_leaves_are_length_prefixed_and_typed() -> None:
    lists = [
        [("a", "b")],
        [("ab", "")],
        [("", "ab")],
        [("a", b"b")],
        [("a", 1)],
        [("a", True)],
        [("a", 1.0)],
        [("a", None)],
    ]
    lists += [[("a", 0.0)], [("a", -0.0)], [("a", "1"), ("b", "2")], [("a", "1b2")], []]
    assert len({digest_leaves(leaves) for leaves in lists}) == len(lists)
