"""Programs that failed once when numbers at the edges came, made small, by what was wrong."""

from __future__ import annotations

import dataclasses
from typing import Any

from programs import Line
from values_program import Input, Program, Step


def plain(operation: str, *steps: Step, arguments: tuple[Any, ...] = (), of: tuple[int, ...] = (0,), **special: Any) -> Program:
    """Makes a program of one operation.

    of: what it is of: 0 is an input of [3, 4], 1 a weight of [4]; special: what is special of the input
    """
    given = dataclasses.replace(Input("float32", (4,), gradient=True), **special)
    return Program((Line(operation, [*of], arguments),), (2,), (given,), steps, dtype=given.dtype)


def _with_whole(operation: str, dtype: str) -> Program:
    """Makes a program of an operation of an input of [3, 4] and one of integers, which are the largest."""
    inputs = (Input("float32", (4,), gradient=True), Input(dtype, (4,)))
    return Program((Line(operation, [0, 1], ()),), (3,), inputs, (Step(integers="all largest"),))


_LIMITS = tuple(Step(cotangent="limits", seed=seed) for seed in range(12))
FOUND: dict[str, Program] = {
    "a sum with a multiple that only the result's dtype holds": plain("half with alpha", Step("large spike"), of=(0, 0)),
    "a sum with a multiple of integers": _with_whole("whole with alpha", "int8"),
    "the gradient of a multiple that is broadcast": plain("sum with alpha", *_LIMITS, of=(0, 1), dtype="float16"),
    "the gradient of a square whose double overflows": plain("square", Step("limits", cotangent="zeros"), dtype="float16"),
    "the gradient of a factor beside a number below 1": plain("addcmul", *_LIMITS, of=(0, 0)),
    "the gradient of an exponent of 0": plain("itself to itself", Step("zeros", cotangent="all inf"), positive=True),
    "the gradient of a cumulated sum in another dtype": plain("half cumsum in single", *_LIMITS, arguments=(0,), dtype="float16"),
}
