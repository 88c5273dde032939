"""A few random modules that apply autograd Functions, and all that failed once, do what their unwrapped twins do."""

from __future__ import annotations

import ast
import collections
import pathlib
from dataclasses import dataclass

import pytest
from functions_found import EAGER, FOUND, plain
from functions_frame import HEADER
from functions_program import Program, Step, draw
from functions_steps import BACKWARDS, CHANGES, LAYOUTS
from functions_suite import SUITE
from functions_text import FUNCTION_PARTS, NET_PARTS
from suite_checks import assert_mended, assert_right

_SEEDS = range(1, 5)
_TABLES = {part: table for part, (table, _) in (FUNCTION_PARTS | NET_PARTS).items()}
_TABLES |= {"change": CHANGES, "backward": BACKWARDS, "layout": LAYOUTS}


def test_programs_do_what_their_twins_do_in_graphs() -> None:
    assert_right(SUITE, map(draw, _SEEDS), most_in_eager=0.3)


@pytest.mark.parametrize("name", FOUND)
def test_what_failed_once_does_no_more(name: str) -> None:
    outcome = assert_mended(SUITE, FOUND[name])
    assert (outcome.sources[0] == "eager") == (name in EAGER)


@dataclass(frozen=True)
class _Planted(Program):
    """Makes the two sides of a program differ: the names of their Python modules have different lengths."""

    place: tuple[str, str] = ("", "")

    def source(self) -> str:
        text, other = self.place
        assert text in super().source()
        return super().source().replace(text, other)


@pytest.mark.parametrize(
    ("told", "text", "other"),
    [
        ("result 1", "t = a * 1.5", "t = a * len(__name__)"),
        ("gradient of linear.weight", "return g\n", "return g * len(__name__)\n"),
        ("log", "t = a * 1.5", "t = a * 1.5; note(len(__name__))"),
        ("random state", "t = a * 1.5", "t = a * 1.5; torch.rand(len(__name__))"),
        ("buffer", "first = h", "self.buffer.add_(len(__name__)); first = h"),
        ("lists", "self.notes = []", "self.notes = [__name__]"),
        ("input afterwards", "first = h", "x.mul_(len(__name__)); first = h"),
    ],
)
def test_what_differs_is_told(tmp_path: pathlib.Path, told: str, text: str, other: str) -> None:
    program = plain()
    outcome = SUITE.attempt(_Planted(program.functions, program.net, (Step(),), (text, other)), tmp_path)
    assert any(each.startswith(f"{told}: ") for each in outcome.wrong)


def test_a_program_is_made_plainer_while_it_fails() -> None:
    program = next(draw(seed) for seed in range(1000) if draw(seed).functions[-1]["value"] == "square")
    small = SUITE.shrink(program, lambda each: any(parts["value"] == "square" for parts in each.functions))
    expected = plain(value="square")
    assert small.functions == expected.functions and small.net == expected.net and len(small.steps) == 1


def test_every_program_is_valid_and_every_way_is_drawn() -> None:
    drawn: dict[str, set[str]] = collections.defaultdict(set)
    ast.parse(HEADER)
    for seed in range(1000):
        program = draw(seed)
        body = program.body()
        ast.parse(body)
        assert "$" not in body
        for parts in (*program.functions, program.net):
            for part, way in parts.items():
                drawn[part].add(way)
        for step in program.steps:
            for part in ("change", "backward", "layout"):
                drawn[part].add(getattr(step, part))
    assert {part: drawn[part] for part in _TABLES} == {part: set(table) for part, table in _TABLES.items()}
