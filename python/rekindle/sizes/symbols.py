"""Guesses which dimensions of a call's arguments are one size, and which are equal by chance; miss/coincidences.py corrects it.

Dimensions of one argument are different things: height and width, batch and channels. Dimensions of two arguments, as tokens and
their mask, are one where the shapes correspond.
"""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Sequence
from typing import Any

Place = tuple[int, int]  # argument, dimension


def named(
    shapes: Sequence[tuple[int, ...]], places: Sequence[Place], earlier: Sequence[Sequence[Sequence[Any]]]
) -> dict[Place, str]:
    """Names the symbols ("s0") of dimensions, in order of appearance.

    shapes: of all arguments
    places: the dimensions that are symbols
    earlier: the sizes of other calls; dimensions that differ in one are not one symbol
    """
    group = {place: place for place in places}  # -> another one of the same group, or itself

    def first(place: Place) -> Place:
        while group[place] != place:
            place = group[place]
        return place

    for one, other in _corresponding(shapes):
        always = all(sizes[one[0]][one[1]] == sizes[other[0]][other[1]] for sizes in earlier)
        if one in group and other in group and always:
            low, high = sorted((first(one), first(other)))
            group[high] = low
    names: dict[Place, str] = {}
    return {place: names.setdefault(first(place), f"s{len(names)}") for place in places}


def _corresponding(shapes: Sequence[tuple[int, ...]]) -> list[tuple[Place, Place]]:
    """Returns the pairs of equal dimensions of different arguments.

    They are in the order of both, as those of images and a label for each pixel.
    """
    whose: dict[tuple[int, ...], int] = {}
    found: list[tuple[Place, Place]] = []
    for i, shape in enumerate(shapes):
        same = whose.setdefault(shape, i)
        found += [((same, axis), (i, axis)) for axis in range(len(shape)) if same != i]
    for (shape, i), (other, j) in itertools.combinations(whose.items(), 2):
        for block in difflib.SequenceMatcher(None, shape, other, autojunk=False).get_matching_blocks():
            found += [((i, block.a + k), (j, block.b + k)) for k in range(block.size)]
    return found
