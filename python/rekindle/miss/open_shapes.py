"""Which sizes an export may leave open: those at which eager runs, too, and the graph answers the forward's questions alike."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from rekindle import _native
from rekindle.export.request import Exported, ExportRequest
from rekindle.export.torchscript import adapter
from rekindle.export.unchecked import Allowed
from rekindle.functions.binding import bind
from rekindle.functions.registry import declaration_of
from rekindle.functions.result_sizes import observed, rules
from rekindle.graphs.ready_graph import numbers_of
from rekindle.miss.coincidences import without_coincidences
from rekindle.miss.perturbation import SecondCall, call_again, perturbed_state, resized
from rekindle.miss.size_trials import Trials
from rekindle.results.views import has_places
from rekindle.sizes.shapes import Shapes, sizes_of

_MOST_PAIRS = 8  # of sizes that change together: eager runs once or twice for each


class WrongElsewhere(Exception):
    """The graph is right for the call and not for other sizes."""


def try_sizes(request: ExportRequest, exported: Exported, alone: str | None) -> Trials:
    """alone: why eager must not run again, if it must not."""
    sizes = request.shapes.bind(sizes_of(request.arguments)) or {}
    trials = Trials(
        request.shapes,
        Shapes.of(request.arguments),
        [],
        None,
        sizes,
        exported.guards,
        sizes_of(request.arguments),
        exported.numbers,
        first=request.shapes,
    )
    for (i, axis), where in exported.fixed.items():
        if (name := request.shapes.dims[i][axis]) in trials.shapes.symbols:
            trials.close(f"{where} asks for its value", [name])
    if request.closed_because is not None:
        trials.closed["*"] = request.closed_because
    if (why := _why_closed(exported, alone)) is not None:
        trials.close(why)
        return trials
    if trials.shapes.symbols:
        search = _Search(request, exported, trials)
        search.run()
        search.learn_sizes_of_functions()
    if request.apart and trials.tied and (shapes := without_coincidences(request, exported, trials.tied)) is not None:
        return try_sizes(replace(request, shapes=shapes), exported, alone)
    return trials


def _why_closed(exported: Exported, alone: str | None) -> str | None:
    """Why no size is left open, whatever eager does at others."""
    if exported.strides is not None:
        return f"{exported.strides} asks for strides of what is not contiguous"
    if has_places(exported.structure):
        return "it returns views that are not followed at other sizes"
    return alone


class _Search:
    """Finds one or two calls at other sizes, small enough to be cheap, in which each symbol is larger once where eager allows it:
    what a trace froze at a size may do for all smaller ones, as a slice that ends there does, but not for larger ones."""

    def __init__(self, request: ExportRequest, exported: Exported, trials: Trials) -> None:
        self._given, self._exported, self._trials = request, exported, trials
        self._questions: Any = None
        self._numbers_at = self._question()
        self._assume([])
        self._changed = perturbed_state(request)
        self._functions = {call.function for call in exported.function_sizes}
        self._seen: list[list[Any]] = []

    @property
    def _request(self) -> ExportRequest:
        return replace(self._given, shapes=self._trials.shapes)

    def run(self) -> None:
        """First with the largest of the sizes grown and the others shrunk, then the other way round."""
        trials = self._trials
        first = (
            self._all_but_one_shrunk()
            or self._equal_together(trials.shapes.symbols, self._all_but_one_shrunk)
            or self._one_by_one(trials.shapes.symbols)
        )
        if first is None:
            return
        trials.calls.append(first)
        second = self._call(self._sizes({*trials.shapes.symbols} - {self._largest}))
        if second is None:
            second = self._one_by_one([name for name in trials.shapes.symbols if name not in first.sizes])
        if second is not None and second.sizes != first.sizes:
            trials.calls.append(second)

    @property
    def _largest(self) -> str:
        return max(self._trials.shapes.symbols, key=lambda name: self._trials.sizes[name])

    def _all_but_one_shrunk(self) -> SecondCall | None:
        return self._call(self._sizes({self._largest}))

    def _equal_together(self, names: Iterable[str], call: Callable[[], SecondCall | None]) -> SecondCall | None:
        """`call` with one symbol for those of `names` that have one size at the export, which stays so if eager runs."""
        trials, names = self._trials, {*names}
        before = trials.shapes, trials.first
        coinciding = [equal for equal in trials.coinciding() if names.issuperset(equal)]
        for equal in coinciding:
            trials.merge(equal)
        found = call() if coinciding else None
        if found is None:
            trials.shapes, trials.first = before
        return found

    def _one_by_one(self, names: list[str]) -> SecondCall | None:
        """Close those of some symbols that eager, or a guard, does not let have another size; make one of those that may only
        have another together."""
        trials = self._trials
        found = {name: self._other_size([name]) for name in names}
        self._merge_stuck(found)
        stuck = [name for name in trials.shapes.symbols if name in found and found[name] is None]
        together, pair = self._in_pairs(stuck, self._known(found))
        if fixed := [name for name in stuck if name not in pair]:
            trials.close("no other size was found that eager and the branches taken allow", fixed)
        return (
            together
            or self._together(found)
            or self._equal_together(found, lambda: self._together(found))
            or self._one_after_another(self._known(found))
        )

    def _one_after_another(self, found: Mapping[str, int]) -> SecondCall | None:
        """Close those that may not change beside what may before them, as a height beside a batch in `view(-1, 12)`."""
        call, kept = None, dict[str, int]()
        for name, size in found.items():
            if (more := self._call({**kept, name: size})) is None:
                self._trials.close("eager does not run when it changes together with others", [name])
            else:
                call, kept[name] = more, size
        return call

    def _merge_stuck(self, found: dict[str, int | None]) -> None:
        """Make one symbol of equal ones that have no other size alone, but together; found: by symbol."""
        for equal in self._trials.coinciding():
            stuck = [name for name in equal if name in found and found[name] is None]
            for names in [equal, *itertools.combinations(stuck, 2)] if stuck else ():
                merged = set(names) <= {*self._trials.shapes.symbols} and (size := self._other_size(names)) is not None
                if merged:
                    self._trials.merge(names)
                    found[names[0]] = size

    def _in_pairs(self, names: list[str], others: Mapping[str, int]) -> tuple[SecondCall | None, tuple[str, ...]]:
        """A call in which two sizes change as those of an image and of a map of it do, or of a text and the same with its end."""
        pairs = itertools.chain(itertools.combinations(names, 2), itertools.product(names, others))
        for pair in itertools.islice(pairs, _MOST_PAIRS):
            sizes = [self._trials.sizes[name] for name in pair]
            more = max(sizes) // 8 + 1
            for way in ([2 * size for size in sizes], [size + more for size in sizes]):
                call = self._call({**others, **dict(zip(pair, way, strict=True))})
                if call is not None:
                    return call, pair
        return None, ()

    def _other_size(self, names: Sequence[str]) -> int | None:
        """One that eager lets these symbols have while all others stay."""
        size = self._trials.sizes[names[0]]
        tried = (*_grown(size), *self._shrunk(size))
        return next((other for other in tried if self._call(dict.fromkeys(names, other)) is not None), None)

    def _together(self, found: Mapping[str, int | None]) -> SecondCall | None:
        return self._call(self._known(found))

    def _known(self, found: Mapping[str, int | None]) -> dict[str, int]:
        return {name: size for name in self._trials.shapes.symbols if (size := found.get(name)) is not None}

    def _call(self, sizes: Mapping[str, int]) -> SecondCall | None:
        numbers = self._numbers_at(sizes) if sizes else None
        if numbers is None:
            return None
        with observed(self._functions) as seen:
            found = call_again(self._request, self._exported.writes, self._changed, sizes)
        if found is None:
            return None
        self._seen.append(seen)
        return replace(found, numbers=numbers)

    def learn_sizes_of_functions(self) -> None:
        """What the calls of autograd Functions returned at other sizes says what they return at any; if not, all is fixed."""
        if not self._functions or not self._trials.shapes.symbols:
            return
        self._assume(self._seen)
        calls = zip(self._exported.functions, self._exported.function_sizes, strict=True)
        unknown = [
            seen.function for call, seen in calls if call.sizes is None and declaration_of(seen.function).infer_shape is None
        ]
        if not self._request.sized_functions.issuperset(unknown) or any(
            self._numbers_at(call.sizes) != call.numbers for call in self._trials.calls
        ):
            self._trials.close("the sizes of what autograd Functions return do not follow from those of what they are given")
            self._trials.calls.clear()

    def _assume(self, seen: list[list[Any]]) -> None:
        """Let the graph's autograd Functions return tensors of the sizes that calls elsewhere suggest."""
        for call, rule in zip(self._exported.functions, rules(self._exported.function_sizes, seen), strict=True):
            call.sizes = rule
        if self._questions is not None:
            self._questions.set_functions([bind(call, self._request.module) for call in self._exported.functions])

    def _sizes(self, growing: set[str]) -> dict[str, int]:
        """Sizes that no two symbols share; those that cannot shrink are left out."""
        found: dict[str, int] = {}
        for name in self._trials.shapes.symbols:
            size = self._trials.sizes[name]
            ways = _grown(size) if name in growing else self._shrunk(size)
            if ways:
                taken = {size, *found.values()}
                found[name] = next(way for way in itertools.chain(ways, itertools.count(max(taken) + 1)) if way not in taken)
        return found

    def _shrunk(self, size: int) -> list[int]:
        return [] if self._exported.allowed is Allowed.LARGER else _shrunk(size)

    def _question(self) -> Callable[[Mapping[str, int]], list[int] | None]:
        """Whether the graph is for arguments of other sizes: the numbers in its result there, else None."""
        if self._exported.answers is None:
            return lambda sizes: []
        model = adapter.with_shapes(self._exported.answers, self._trials.shapes)
        self._trials.answers = _native.build_joint(model, [False] * len(self._exported.used), self._trials.sizes)
        self._questions = questions = _native.SizeQuestions(self._trials.answers)
        expected = [guard.value for guard in self._exported.guards]
        state = [*self._request.parameters.values(), *self._request.buffers.values()]

        def numbers_at(sizes: Mapping[str, int]) -> list[int] | None:
            every = [*resized(self._request, sizes), *state]
            return numbers_of(questions, expected, [every[i] for i in self._exported.used])

        return numbers_at


def _shrunk(size: int) -> list[int]:
    """Smaller sizes, the cheapest first; halves are for those that must be even."""
    return [other for other in (size // 4 + 1, size // 2, size // 2 + 1, size - 1) if 2 <= other < size]


def _grown(size: int) -> list[int]:
    """Larger sizes, of another parity first; of images that are cut into patches; twice the size."""
    return [size + size // 8 + 1, *([size // 32 * 32 + 32] if size >= 32 else []), size + 2, 2 * size]
