"""Keeps the states of PyTorch's default generators: of the CPU, and of each device of the accelerator.

An example, on a machine with one GPU, which the process has used:

    before = random_states()    # [of the CPU, of cuda:0]
    torch.randn(2, device="cuda")
    random_states_equal(before, random_states())    # False
    set_random_states(before)   # the same numbers come again
"""

from __future__ import annotations

import torch

from rekindle import _native

# One state for each generator, uint8 on the CPU; None for a device that nothing has used yet.
RandomStates = list[torch.Tensor | None]


def random_states() -> RandomStates:
    """Returns the states as they are now."""
    return _native.random_states()


def set_random_states(states: RandomStates) -> None:
    """Sets the generators whose state is known, and leaves the others."""
    _native.set_random_states(states)


def seed_random_states(seed: int) -> None:
    """Seeds the generators that are in use."""
    _native.seed_random_states(seed)


def drawn_between(some: RandomStates, others: RandomStates) -> set[int]:
    """Returns the positions of the generators, of those in use at both times, whose states differ."""
    both = enumerate(zip(some, others, strict=False))
    return {i for i, (a, b) in both if a is not None and b is not None and not torch.equal(a, b)}


def random_states_equal(some: RandomStates, others: RandomStates) -> bool:
    """Tells whether no generator that was in use at both times has drawn in between."""
    return not drawn_between(some, others)


def position_of(device: torch.device) -> int:
    """Returns where the state of a device's generator is among the states."""
    return 0 if device.type == "cpu" else 1 + (device.index or 0)
