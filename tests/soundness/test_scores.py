"""A few random models that return scores beside a loss, and all that failed once, do what their unwrapped twins do."""

from __future__ import annotations

import ast
import collections
import pathlib
import subprocess
import sys

import pytest
import torch
from scores_found import FOUND, plain
from scores_program import PARTS, draw
from scores_run import run
from scores_suite import SUITE
from stepwise_compare import differences
from suite_checks import assert_mended

_SEEDS = range(16)
_WARM = 2  # programs of a second process


def test_programs_do_what_their_twins_do_in_graphs(tmp_path: pathlib.Path) -> None:
    torch.set_num_threads(1)
    outcomes = {seed: run(draw(seed), tmp_path / str(seed)) for seed in _SEEDS}
    wrong = [SUITE.text_of(draw(seed), outcome) for seed, outcome in outcomes.items() if outcome.wrong]
    assert not wrong, "\n\n".join(wrong)
    sources = collections.Counter(source for outcome in outcomes.values() for source in outcome.sources)
    assert sources["eager"] < 0.25 * (sources.total() - sources["raised"])
    assert sum(outcome.joined for outcome in outcomes.values()) > 2


def test_a_second_process_finds_the_graphs_of_the_first(tmp_path: pathlib.Path) -> None:
    suite = [str(pathlib.Path(__file__).with_name("scores_suite.py")), "--programs", str(_WARM), "--keep", str(tmp_path)]
    runs = [subprocess.run([sys.executable, *suite], capture_output=True, text=True, check=False) for _ in range(2)]
    for process in runs:
        assert process.returncode == 0, process.stdout + process.stderr
    assert "'export'" in runs[0].stdout
    assert "'local'" in runs[1].stdout and "'export'" not in runs[1].stdout


@pytest.mark.parametrize("name", FOUND)
def test_what_failed_once_does_no_more(name: str) -> None:
    assert "eager" not in assert_mended(SUITE, FOUND[name]).sources


def test_what_differs_is_told_and_rounding_is_not() -> None:
    x = torch.randn(8, generator=torch.Generator().manual_seed(3))
    seen = {"result 0": x, "gradient of w": 1 / x, "gradient of b": None, "same": []}
    exact = {**seen, "gradient of w": 1 / x.double()}
    for name, other in (("result 0", x * (1 + 1e-4)), ("gradient of w", 1 / x + 1e-3), ("gradient of b", x), ("same", [(1, 0)])):
        (told,) = differences(seen | {name: other}, seen, exact, 2.0**-23)
        assert told.startswith(f"{name}: ")
    assert not differences(seen | {"gradient of w": 1 / x * (1 + 2.0**-23)}, seen, exact, 2.0**-23)
    infinite = torch.where(x > 0, torch.inf, x)
    assert differences({"result 0": x}, {"result 0": infinite}, {"result 0": infinite}, 2.0**-23)
    assert differences(seen | {"error": ValueError()}, seen | {"error": TypeError()}, exact, 2.0**-23)


def test_a_program_is_made_plainer_while_it_fails() -> None:
    program = next(draw(seed) for seed in range(1000) if draw(seed).parts["bias"] == "scalar")
    small = SUITE.shrink(program, lambda each: each.parts["bias"] == "scalar")
    assert small.parts == plain(bias="scalar").parts and len(small.steps) == 1 and small.arguments == ""


def test_every_program_is_valid_and_every_way_is_drawn() -> None:
    drawn: dict[str, set[str]] = collections.defaultdict(set)
    for seed in range(3000):
        program = draw(seed)
        source = program.source()
        ast.parse(source)
        assert "$" not in source
        for part, way in program.parts.items():
            drawn[part].add(way)
    assert {part: len(ways) for part, ways in drawn.items()} == {part: len(table) for part, (table, _) in PARTS.items()}
