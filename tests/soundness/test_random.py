"""A few random programs, and all that failed once, do what their unwrapped twins do."""

from __future__ import annotations

from random_found import FOUND
from random_program import draw
from random_programs import CONSTRUCTS
from random_shrink import shrink
from random_suite import Programs, job_of, text_of

_PROGRAMS = {**FOUND, **{str(seed): draw(seed, calls=6) for seed in (3, 4, 8)}}


def test_programs_do_what_their_twins_do_and_most_calls_run_in_graphs() -> None:
    running = Programs(2)
    try:
        outcomes = dict(running.outcomes(_PROGRAMS))
    finally:
        running.close()
    wrong = [text_of(_PROGRAMS[name], outcome["wrong"]) for name, outcome in outcomes.items() if outcome["wrong"]]
    assert not wrong, "\n\n".join(wrong)
    ran = [source for outcome in outcomes.values() for source in outcome["sources"] if source != "raised"]
    assert sum(source != "eager" for source in ran) > 0.6 * len(ran)


def test_what_differs_is_found() -> None:
    running = Programs(1)
    job = job_of(draw(3, calls=6, only="instance attribute"))
    try:
        assert running.run({**job, "source": job["source"].replace("self.a1 = 1.5", "self.a1 = len(__name__)")})["wrong"]
    finally:
        running.close()


def test_a_program_is_made_smaller_while_it_fails() -> None:
    program = draw(3, only="instance attribute")
    change = next(step for step in program.steps if not step.is_call)
    small = shrink(program, lambda each: change in each.steps)
    assert small.steps == (change,) and len(small.pieces) == bool(change.number) and small.second is None


def test_every_program_has_a_second_process_if_asked_to() -> None:
    assert any(draw(seed).second is None for seed in range(20))
    assert all(draw(seed, processes=True).second is not None for seed in range(20))
    assert draw(3, calls=1, processes=True).second is not None  # without a change


def test_every_program_is_valid_and_every_construct_is_drawn() -> None:
    drawn: set[str] = set()
    for seed in range(600):
        program = draw(seed)
        compile(program.source(), str(seed), "exec")
        for step in program.steps:
            compile(str(step).removeprefix("world: "), str(seed), "exec")
        drawn |= {piece.name for piece in program.pieces}
    assert len(drawn) > 0.9 * len(CONSTRUCTS)
