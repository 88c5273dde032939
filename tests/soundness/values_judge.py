"""Tells whether a step of a graph is eager's, where eager's own numbers are not a matter of chance.

An element has a class: nan, inf, -inf or finite. It is judged where eager gives it the same class with other rounding errors and
in the ways of values_ways.py; a finite one then may be as far from eager's as these runs are, some times over.

An example: the sum of [3e38, 3e38, -3e38] is inf in eager's order and 3e38 in another. It is not judged. exp(1000) is.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from rekindle.compare.rounding import Noise
from stepwise_compare import ERROR, Seen
from values_ways import Apart, Gathered, wide

Again = Callable[[AbstractContextManager[Any]], Seen]
_SAMPLES = 4  # of eager's rounding errors
_WIDER = 16.0  # times what these differ by
_PLACES = 64.0  # in units of the last place, where they differ by nothing
_LEAST = 64.0  # in units of the smallest number


def differences(ours: Seen, eager: Seen, again: Again) -> list[str]:
    """Says what differs. again: runs eager's step once more in a context, which makes it round otherwise."""
    told = _differences(ours, eager, [])
    if not told:
        return []
    ways: list[AbstractContextManager[Any]] = [nullcontext(), wide(), Apart(), Gathered()]
    runs = [again(way) for way in (*ways, *(Noise(seed) for seed in range(_SAMPLES)))]
    if not _raise_alike(ours, eager) and any(_raise_alike(ours, run) for run in runs):
        return []  # eager raises or not as it rounds
    return _differences(ours, eager, [run for run in runs if _raise_alike(run, eager) and list(run) == list(eager)])


def _raise_alike(one: Seen, other: Seen) -> bool:
    return type(one.get(ERROR)) is type(other.get(ERROR))


def _differences(ours: Seen, eager: Seen, others: list[Seen]) -> list[str]:
    if not _raise_alike(ours, eager):
        return [f"{ours.get(ERROR)!r} instead of {eager.get(ERROR)!r}"]
    if list(ours) != list(eager):
        return [f"{list(ours)} instead of {list(eager)}"]
    found = []
    for name, theirs in eager.items():
        if name != ERROR and not (ERROR in eager and name.startswith("gradient")):  # a backward that raises may have left some
            told = _difference(ours[name], theirs, [other[name] for other in others])
            found += [f"{name}: {told}"] if told else []
    return found


def _difference(ours: Any, theirs: Any, others: list[Any]) -> str:
    if not isinstance(theirs, torch.Tensor) or not isinstance(ours, torch.Tensor):
        same = ours is theirs if isinstance(ours, torch.Tensor) or isinstance(theirs, torch.Tensor) else ours == theirs
        return "" if same else f"{_short(ours)} instead of {_short(theirs)}"
    if any(other.shape != theirs.shape for other in others):  # of numbers that a mask chooses
        return ""
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return f"{ours.dtype} {tuple(ours.shape)} instead of {theirs.dtype} {tuple(theirs.shape)}"
    wrong = _wrong_numbers(ours, theirs, others) if theirs.is_floating_point() else _wrong_integers(ours, theirs, others)
    if not bool(wrong.any()):
        return ""
    place = tuple(int(i) for i in wrong.nonzero()[0])
    return f"{ours[place].item()!r} instead of {theirs[place].item()!r} at {place}, {int(wrong.sum())} of {wrong.numel()}"


def _wrong_integers(ours: torch.Tensor, theirs: torch.Tensor, others: list[torch.Tensor]) -> torch.Tensor:
    wrong = ours != theirs
    for other in others:
        wrong &= other == theirs
    return wrong


def _class_of(x: torch.Tensor) -> torch.Tensor:
    """Returns 3 for nan, 2 and -2 for infinities, 0 for what is finite."""
    return torch.where(x.isnan(), 3.0, torch.where(x.isinf(), 2 * x.sign(), 0.0))


def _wrong_numbers(ours: torch.Tensor, theirs: torch.Tensor, others: list[torch.Tensor]) -> torch.Tensor:
    kind = _class_of(theirs)
    judged = torch.ones_like(theirs, dtype=torch.bool)
    info = torch.finfo(theirs.dtype)
    ours, exact = ours.double(), theirs.double()
    spread = torch.zeros_like(exact)
    for other in others:
        judged &= _class_of(other) == kind
        spread = torch.maximum(spread, (other.double() - exact).abs().nan_to_num(0, math.inf))
    limit = _WIDER * spread + _PLACES * info.eps * exact.abs() + _LEAST * info.eps * info.tiny + _usual(spread)
    far = (kind == 0) & ((ours - exact).abs() > limit)
    return judged & ((_class_of(ours) != kind) | far)


def _usual(spread: torch.Tensor) -> float:
    """Returns how far numbers of the tensor usually are from eager's: one of them may be near eager's by chance."""
    known = spread[spread.isfinite() & (spread > 0)]
    return float(known.median()) if known.numel() else 0.0


def _short(value: Any) -> str:
    return " ".join(repr(value).split())[:120]
