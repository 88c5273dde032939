"""Programs with autograd Functions that failed once, made small, by what was wrong."""

from __future__ import annotations

from dataclasses import replace

from functions_program import Program, Step
from functions_text import FUNCTION_PARTS, NET_PARTS, Parts

_LARGE = Step(size=12.0, seed=2)
_STEEP = Step(backward="scaled by 10000", seed=3)


def plain(*steps: Step, net: Parts | None = None, **parts: str) -> Program:
    """Makes a program of one Function, as plain as there is but for some parts, with a plain step before those given."""
    return plain_of([parts], *steps, net=net)


def plain_of(functions: list[Parts], *steps: Step, net: Parts | None = None) -> Program:
    """Makes a program of several Functions, as plain as there are but for the parts that are given for each."""
    known = {part: next(iter(table)) for part, (table, _) in FUNCTION_PARTS.items()}
    around = {part: next(iter(table)) for part, (table, _) in NET_PARTS.items()}
    return Program(tuple(known | parts for parts in functions), around | (net or {}), (Step(), *steps))


# What no graph can do, from the first call on.
EAGER = ("a write to what a Function keeps", "a buffer that a backward writes as well", "hooks on what is saved")
FOUND: dict[str, Program] = {
    "a list of the forward that a backward empties": plain(Step(), extra="list that is emptied by the backward"),
    "a dict of the forward that a backward changes": plain(Step(), extra="dict that the backward changes"),
    "a list of the module that a backward grows": plain(_STEEP, extra="list of the module that grows"),
    "a list of the module that a forward grows later": plain(_LARGE, extra="list of the module that the forward grows"),
    "a list by which one Function tells another": plain_of([{"extra": "list of the forward that grows"}] * 2, _LARGE),
    "autocast that the forward switches off": plain(
        Step(backward="forward in autocast"), **{"value": "products", "place": "autocast off", "forward log": "autocast"}
    ),
    "gradients that are needed, though none goes through": plain(_LARGE, branch="clips for gradients", between="detached"),
    "a tensor beside a dict with it": plain(_LARGE, extra="dict with what it is given"),
    "a backward before an absent gradient": plain_of(
        [{"derivative": "sum with the saved"}, {"turn": "absent"}], _STEEP, net={"loss": "sum"}
    ),
    "a hook on one of two results": plain(
        Step(backward="all, hooked"),
        further="in the place of the first",
        net={"loss": "square", "results": "result of the last Function"},
    ),
    "a view of an input without gradients": plain(_LARGE, result="flat input", place="without gradients", between="product"),
    "a backward that no asked gradient needs": replace(
        plain(derivative="random", net={"loss": "second layer", "results": "mean"}),
        steps=(Step(backward="some", seed=96),),  # of the bias of that layer
    ),
    "a tensor in a default of a lambda": plain(extra="lambda with a tensor"),
    "a write to what a Function keeps": plain(
        _LARGE, saved="attribute", derivative="saved", between="bounds of what it was given"
    ),
    "no gradient of small numbers": plain(_LARGE, context="none of a small first", between="product"),
    "a buffer that large numbers write": plain(_LARGE, extra="buffer, written where numbers are large"),
    "a buffer that the forward writes as well": plain(
        _LARGE, extra="the module, whose buffer is written", between="sum in a buffer"
    ),
    "a buffer that a backward writes as well": plain(_STEEP, extra="buffer, written by the backward", between="sum in a buffer"),
    "hooks on what is saved": plain(_LARGE, place="hooks on what is saved", derivative="saved"),
}
