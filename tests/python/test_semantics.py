"""Everyday behaviour: every case does the same in eager, with a cold cache and with a warm one."""

from __future__ import annotations

import pytest
import semantics_autograd  # noqa: F401
import semantics_calls  # noqa: F401
import semantics_containers  # noqa: F401
import semantics_forwards  # noqa: F401
import semantics_parameters  # noqa: F401
import semantics_state  # noqa: F401
from semantics_support import CASES, compared


@pytest.mark.parametrize("name", sorted(CASES))
def test_behaviour_is_that_of_eager(name: str) -> None:
    compared(*CASES[name])
