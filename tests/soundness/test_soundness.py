"""A change of anything that an export depends on is a miss or a bypass in the next process; a harmless one still hits."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from case import Case
from suite import CASES, Suite, explained_rate


@pytest.fixture(scope="session")
def suite(request: pytest.FixtureRequest) -> Iterator[Suite]:
    parameters = [item.callspec.params for item in request.session.items if hasattr(item, "callspec")]
    running = Suite([given["case"] for given in parameters if isinstance(given.get("case"), Case)])
    yield running
    running.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_pair(suite: Suite, case: Case) -> None:
    wrong = [f"[{verdict.mode}] {verdict.wrong}" for verdict in suite.verdicts(case) if verdict.wrong]
    assert not wrong, "\n".join(wrong)


def test_explanations_name_what_changed(suite: Suite) -> None:
    verdicts = [verdict for case in suite.cases if not case.harmless for verdict in suite.verdicts(case)]
    unexplained = sorted({verdict.case.id for verdict in verdicts if not verdict.wrong and not verdict.is_explained})
    assert explained_rate(verdicts) >= 0.95, f"not explained: {', '.join(unexplained)}"


def test_the_cases_are_many_and_have_names_of_their_own() -> None:
    assert len({case.id for case in CASES}) == len(CASES)
    mutations = [case for case in CASES if not case.harmless]
    assert len(mutations) >= 100 and len(CASES) - len(mutations) >= 40
    assert sum(case.modes == ("train", "eval") for case in mutations) >= 100
