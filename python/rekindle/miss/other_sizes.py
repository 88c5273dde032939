"""Chooses the sizes at which eager is tried: cheap ones, at which much that a graph may have frozen shows.

An example: of {"s0": 32, "s1": 128} with s1 growing come {"s0": 5, "s1": 145} as the least sizes, {"s0": 9, "s1": 145} otherwise.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping


def other_sizes(before: Mapping[str, int], growing: set[str], ways: Callable[[int], list[int]]) -> dict[str, int]:
    """Returns other sizes of symbols, no two of them the same; those that cannot shrink are left out.

    before: the symbols' sizes
    growing: those that become larger; the others become what `ways` lists, the first that is free
    """
    found: dict[str, int] = {}
    for name, size in before.items():
        if choice := grown(size) if name in growing else ways(size):
            taken = {size, *found.values()}
            found[name] = next(way for way in itertools.chain(choice, itertools.count(max(taken) + 1)) if way not in taken)
    return found


def least(size: int) -> list[int]:
    """Returns smaller sizes, beginning with one that makes a large call tiny, where nearly every forward runs."""
    others = shrunk(size)
    return [size // 16 + 3, *others] if others and size // 16 + 3 < others[0] else others


def shrunk(size: int) -> list[int]:
    """Returns smaller sizes, the cheapest first; halves are for those that must be even."""
    return [other for other in (size // 4 + 1, size // 2, size // 2 + 1, size - 1) if 2 <= other < size]


def grown(size: int) -> list[int]:
    """Returns larger sizes, of another parity first; of images that are cut into patches; twice the size."""
    return [size + size // 8 + 1, *([size // 32 * 32 + 32] if size >= 32 else []), size + 2, 2 * size]
