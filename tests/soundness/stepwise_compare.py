"""Finds what differs between a step of a wrapped model and the same step in eager, beyond what rounding explains."""

from __future__ import annotations

from typing import Any

import torch

Seen = dict[str, Any]
ERROR = "error"
_LEAST = 2.0**-80  # of gradients: where all are smaller, probabilities are, of which an exponential has few digits


def differences(ours: Seen, eager: Seen, exact: Seen, eps: float) -> list[str]:
    """Says what differs. exact: the step of a float64 twin, from which ours may be twice as far as eager; eps: how finely the
    program rounds."""
    if type(ours.get(ERROR)) is not type(eager.get(ERROR)):
        return [f"{ours.get(ERROR)!r} instead of {eager.get(ERROR)!r}"]
    if list(ours) != list(eager):
        return [f"{list(ours)} instead of {list(eager)}"]
    raised, known = ERROR in eager, ERROR not in exact
    reference = exact if known else eager  # the twin fails where a forward mixes dtypes
    largest = max([_size(value) for name, value in reference.items() if _is_gradient(name)], default=0.0)
    largest = max(largest, _LEAST)
    found = []
    for name, theirs in eager.items():
        if name == ERROR or (raised and _is_gradient(name)):  # a backward that raises may have left some
            continue
        floor = 8 * eps * (largest if _is_gradient(name) else 1.0) * (1 if known else 4)
        told = _difference(ours[name], theirs, reference.get(name), (8 * eps, floor))
        found += [f"{name}: {told}"] if told else []
    return found


def _is_gradient(name: str) -> bool:
    return name.startswith("gradient")


def _size(value: Any) -> float:
    if not isinstance(value, torch.Tensor) or value.numel() == 0:
        return 0.0
    return float(value.double().nan_to_num(0, 0, 0).abs().max())


def _difference(ours: Any, theirs: Any, exact: Any, tolerance: tuple[float, float]) -> str:
    if not isinstance(theirs, torch.Tensor) or not isinstance(ours, torch.Tensor):
        same = ours is theirs if isinstance(ours, torch.Tensor) or isinstance(theirs, torch.Tensor) else ours == theirs
        return "" if same else f"{_short(ours)} instead of {_short(theirs)}"
    if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
        return f"{ours.dtype} {tuple(ours.shape)} instead of {theirs.dtype} {tuple(theirs.shape)}"
    if not theirs.is_floating_point():
        return "" if torch.equal(ours, theirs) else f"{_short(ours)} instead of {_short(theirs)}"
    mine, other = ours.double(), theirs.double()
    right = exact.double() if isinstance(exact, torch.Tensor) and exact.shape == theirs.shape else other
    finite = other.isfinite()
    if not torch.equal(mine.isfinite(), finite) or not torch.equal(mine[~finite].nan_to_num(0), other[~finite].nan_to_num(0)):
        return f"infinite elsewhere: {_short(ours)} instead of {_short(theirs)}"
    counts = finite & right.isfinite()
    errors = [_size((x - right)[counts]) for x in (mine, other)]
    relative, floor = tolerance
    limit = 2 * errors[1] + relative * _size(right[counts]) + floor
    return "" if errors[0] <= limit else f"error {errors[0]:.3g}, eager's {errors[1]:.3g}, admitted {limit:.3g}"


def _short(value: Any) -> str:
    return " ".join(repr(value).split())[:120]
