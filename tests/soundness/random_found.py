"""Programs that failed once, by a name for what was wrong."""

from __future__ import annotations

from random_program import Program

FOUND: dict[str, Program] = {}
