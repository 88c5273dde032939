"""Parts dimensions that have one size in a call by chance, such as a batch of 64 samples of 64 features.

Such dimensions need not share a symbol.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping

import torch

from rekindle.export.request import ExportRequest
from rekindle.export.traced import Traced
from rekindle.export.unchecked import Allowed
from rekindle.miss.perturbation import call_again, resized, resized_metas
from rekindle.miss.size_questions import SizeQuestions
from rekindle.sizes.shapes import Place, Shapes, sizes_of

_MOST = 8  # parts of one symbol's dimensions that are tried: eager runs for each, once or twice


def without_coincidences(
    request: ExportRequest,
    traced: Traced,
    asked: Shapes,
    symbols: Iterable[str],
    questions: SizeQuestions,
    changed: Mapping[str, torch.Tensor],
) -> Shapes | None:
    """Returns the shapes `asked` with a further symbol for some of the dimensions of each of `symbols`; None if none gets one.

    questions: those of the forward
    changed: the perturbed_state of the call

    Dimensions get one if eager runs when only these have another size, and the forward's questions have the same answers.
    """
    arguments, shapes = request.call.arguments, asked
    for symbol in symbols:
        size = (shapes.bind(sizes_of(arguments)) or {})[symbol]
        others = [size + size // 8 + 1]
        if traced.run.allowed is not Allowed.LARGER and size > 2:
            others.append(size // 2 + 1 if size > 3 else 2)
        for part in itertools.islice(_parts(shapes.places(symbol)), _MOST):
            name, parted = shapes.parted(part)
            metas = ((other, resized_metas(arguments, parted, {name: other})) for other in others)
            admitted = (other for other, given in metas if questions.numbers(given) is not None)
            elsewhere = (resized(arguments, parted, {name: other}) for other in admitted)
            if any(call_again(request, traced.effects, changed, given) is not None for given in elsewhere):
                shapes = parted
                break
    return shapes if shapes != asked else None


def _parts(places: list[Place]) -> Iterator[frozenset[Place]]:
    """Yields each part beside what is left of all places; the likeliest first: the same dimension of several arguments."""
    every, seen = frozenset(places), set()
    by_axis = [frozenset(place for place in places if place[1] == axis) for axis in dict.fromkeys(axis for _, axis in places)]
    sizes = range(1, len(places) // 2 + 1)
    for part in itertools.chain(by_axis, *(map(frozenset, itertools.combinations(places, size)) for size in sizes)):
        if part != every and part not in seen:
            seen.update((part, every - part))
            yield from (part, every - part)
