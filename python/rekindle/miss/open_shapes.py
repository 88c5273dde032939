"""Finds the sizes an export may leave open: those at which eager runs, too, and the graph answers the forward's questions alike.

An example: in the call the symbols are {s0: 4, s1: 16}. Eager is tried with {s0: 2, s1: 19}, then with {s0: 5, s1: 8}: each
symbol is larger once, smaller once, and no two are equal. If eager runs at both, and the answers to size questions stay what they
were, both symbols stay open, and the graph is compared with eager at both. If not, symbols are tried one by one, and closed,
merged or paired.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from rekindle.export.request import ExportRequest
from rekindle.export.traced import Traced, without_autograd_graph
from rekindle.export.unchecked import Allowed
from rekindle.functions.registry import declaration_of
from rekindle.functions.result_sizes import observed, rules
from rekindle.miss.coincidences import without_coincidences
from rekindle.miss.other_sizes import grown, least, other_sizes, shrunk
from rekindle.miss.perturbation import SecondCall, call_again, call_lightly, perturbed_state, resized, resized_metas
from rekindle.miss.size_questions import SizeQuestions
from rekindle.miss.sized import LeftOpen, Sized, elements, is_differentiated_once
from rekindle.results.views import has_places
from rekindle.sizes.shapes import Shapes

_MOST_PAIRS = 8  # of sizes that change together: eager runs once or twice for each


def try_sizes(request: ExportRequest, traced: Traced, alone: str | None) -> Sized:
    """Finds out which of the sizes that a request wants open may stay so.

    alone: why eager must not run again, if it must not
    """
    shapes = request.plan.shapes
    if (why := _why_closed(traced, alone)) is not None:
        return Sized(_not_fixed(request, traced, shapes).close(why), (), None, traced.graph.functions)
    changed: dict[str, torch.Tensor] = {}
    while True:
        left = _not_fixed(request, traced, shapes)
        if not left.shapes.symbols:
            return Sized(left, (), None, traced.graph.functions)
        changed = changed or perturbed_state(request.call)
        search = _Search(request, traced, left, changed)
        sized = search.run()
        if not (request.plan.apart and sized.left.tied):
            return sized
        if (parted := without_coincidences(request, traced, shapes, sized.left.tied, search.questions, changed)) is None:
            return sized
        shapes = parted


def _not_fixed(request: ExportRequest, traced: Traced, shapes: Shapes) -> LeftOpen:
    """Returns what of these shapes the forward did not fix."""
    left = LeftOpen.all_of(shapes, request.call.arguments)
    for (i, axis), where in traced.sizes.fixed.items():
        if (name := shapes.dims[i][axis]) in left.shapes.symbols:
            left = left.close(f"{where} asks for its value", [name])
    if (why := request.plan.closed_because) is not None:
        left = replace(left, closed={**left.closed, "*": why})
    return left


def _why_closed(traced: Traced, alone: str | None) -> str | None:
    """Says why no size is left open, whatever eager does at others."""
    if traced.sizes.strides is not None:
        return f"{traced.sizes.strides} asks for strides of what is not contiguous"
    if has_places(traced.result.structure):
        return "it returns views that are not followed at other sizes"
    return alone


class _Search:
    """Finds one or two calls at other sizes, small enough to be cheap, in which each symbol is larger once where eager allows it.

    What a trace froze at a size may do for all smaller ones, as a slice that ends there does, but not for larger ones.
    """

    def __init__(self, request: ExportRequest, traced: Traced, left: LeftOpen, changed: Mapping[str, torch.Tensor]) -> None:
        self._request, self._call, self._traced, self._left = request, request.call, traced, left
        self._once = self._call.grad and is_differentiated_once(traced, None)
        self.questions = SizeQuestions(request.call, traced, left)
        self._assume([])
        self._changed = changed
        self._functions = {call.function for call in traced.graph.function_sizes}
        self._seen: list[list[Any]] = []
        self._last: tuple[list[torch.Size], SecondCall] | None = None  # the sizes of arguments that eager last ran at

    def run(self) -> Sized:
        """Returns what may stay open, and calls to compare the graph with."""
        calls = self._learn_sizes_of_functions(self._calls())
        return Sized(self._left, calls, self.questions.graph, self._sized)

    def _calls(self) -> tuple[SecondCall, ...]:
        """Makes calls first with the largest of the sizes grown and the others shrunk, then the other way round."""
        first = (
            self._all_but_one_shrunk()
            or self._equal_together(self._symbols, self._all_but_one_shrunk)
            or self._one_by_one(self._symbols)
        )
        if first is None:
            return ()
        second = self._grown_and_shrunk({*self._symbols} - {self._largest}, self._symbols)
        if second is None:
            second = self._one_by_one([name for name in self._symbols if name not in first.sizes])
        return (first,) if second is None or second.sizes == first.sizes else (first, second)

    @property
    def _symbols(self) -> list[str]:
        return self._left.shapes.symbols

    @property
    def _largest(self) -> str:
        return self._largest_of(self._symbols)

    def _largest_of(self, names: Iterable[str]) -> str:
        return max(names, key=lambda name: self._left.sizes[name])

    def _all_but_one_shrunk(self) -> SecondCall | None:
        return self._grown_and_shrunk({self._largest}, self._symbols)

    def _grown_and_shrunk(self, growing: set[str], names: Iterable[str]) -> SecondCall | None:
        """Makes a call in which some of the symbols `names` grow; the others shrink as far as eager lets them."""
        before = {name: self._left.sizes[name] for name in names}
        first, second = (other_sizes(before, growing, ways) for ways in (self._least, self._shrunk))
        return self._try(first) or (self._try(second) if second != first else None)

    def _equal_together(self, names: Iterable[str], call: Callable[[], SecondCall | None]) -> SecondCall | None:
        """Makes `call` with one symbol for those of `names` that have one size at the export, which stays so if eager runs."""
        before, names = self._left, {*names}
        coinciding = [equal for equal in before.coinciding() if names.issuperset(equal)]
        for equal in coinciding:
            self._left = self._left.merge(equal)
        found = call() if coinciding else None
        if found is None:
            self._left = before
        return found

    def _one_by_one(self, names: list[str]) -> SecondCall | None:
        """Closes the symbols among `names` that eager, or a guard, does not let have another size.

        Those that may only have another together become one.
        """
        call = self._without_one(names)
        known = {} if call is None else call.sizes
        found = {name: known[name] if name in known else self._other_size([name]) for name in names}
        self._merge_stuck(found)
        stuck = [name for name in self._symbols if name in found and found[name] is None]
        together, pair = self._in_pairs(stuck, self._known(found))
        if fixed := [name for name in stuck if name not in pair]:
            self._left = self._left.close("no other size was found that eager and the branches taken allow", fixed)
        if call is not None and self._known(found) == call.sizes:
            return call
        return (
            together
            or self._together(found)
            or self._equal_together(found, lambda: self._together(found))
            or self._one_after_another(self._known(found))
        )

    def _without_one(self, names: list[str]) -> SecondCall | None:
        """Makes a call in which all of the symbols but one have another size; None if that is not what keeps eager from it."""
        for name in names if len(names) > 1 else ():
            rest = [other for other in names if other != name]
            growing = {self._largest_of(rest), *(other for other in rest if not self._shrunk(self._left.sizes[other]))}
            if (call := self._grown_and_shrunk(growing, rest)) is not None:
                return call if call.sizes.keys() == {*rest} else None
        return None

    def _one_after_another(self, found: Mapping[str, int]) -> SecondCall | None:
        """Closes those that may not change beside what may before them, as a height beside a batch in `view(-1, 12)`."""
        call, kept = None, dict[str, int]()
        for name, size in found.items():
            if (more := self._try({**kept, name: size})) is None:
                self._left = self._left.close("eager does not run when it changes together with others", [name])
            else:
                call, kept[name] = more, size
        return call

    def _merge_stuck(self, found: dict[str, int | None]) -> None:
        """Makes one symbol of equal ones that have no other size alone, but together; found: by symbol."""
        for equal in self._left.coinciding():
            stuck = [name for name in equal if name in found and found[name] is None]
            for names in [equal, *itertools.combinations(stuck, 2)] if stuck else ():
                merged = set(names) <= {*self._symbols} and (size := self._other_size(names)) is not None
                if merged:
                    self._left = self._left.merge(names)
                    found[names[0]] = size

    def _in_pairs(self, names: list[str], others: Mapping[str, int]) -> tuple[SecondCall | None, tuple[str, ...]]:
        """Makes a call in which two sizes change together, and returns it with the two; (None, ()) if eager runs in none.

        They change as those of an image and of a map of it do, or those of a text and of the same with its end: by what is
        little for the smaller one, as a large one may be a thousand times that.
        """
        pairs = itertools.chain(itertools.combinations(names, 2), itertools.product(names, others))
        for pair in itertools.islice(pairs, _MOST_PAIRS):
            sizes = [self._left.sizes[name] for name in pair]
            more = min(sizes) // 8 + 1
            for way in ([2 * size for size in sizes], [size + more for size in sizes]):
                call = self._try({**others, **dict(zip(pair, way, strict=True))})
                if call is not None:
                    return call, pair
        return None, ()

    def _other_size(self, names: Sequence[str]) -> int | None:
        """Returns a size that eager lets these symbols have while all others stay; None if it lets them have no other."""
        size = self._left.sizes[names[0]]
        tried = (*grown(size), *self._shrunk(size))
        return next((other for other in tried if self._try(dict.fromkeys(names, other)) is not None), None)

    def _together(self, found: Mapping[str, int | None]) -> SecondCall | None:
        return self._try(self._known(found))

    def _known(self, found: Mapping[str, int | None]) -> dict[str, int]:
        return {name: size for name in self._symbols if (size := found.get(name)) is not None}

    def _try(self, sizes: Mapping[str, int]) -> SecondCall | None:
        """Returns what eager makes of the call at these sizes, if it runs there and the graph is for them."""
        numbers = self._numbers_at(sizes) if sizes else None
        if numbers is None:
            return None
        found = self._run(self._at(sizes))
        return found and replace(found, sizes=sizes, numbers=numbers)

    def _run(self, arguments: list[torch.Tensor]) -> SecondCall | None:
        """Runs eager on these arguments, unless it last ran on the same sizes; returns what it made of them."""
        shapes = [tensor.shape for tensor in arguments]
        if self._last is not None and self._last[0] == shapes:
            return self._last[1]
        # What the forward would save is more than a step of training holds.
        is_light = self._once and elements(arguments) >= elements(self._call.arguments)
        with observed(self._functions) as seen:
            call = call_lightly if is_light and not self._functions else call_again  # whose calls are counted
            found = call(self._request, self._traced.effects, self._changed, arguments)
        if found is not None:
            if is_light:
                found = replace(found, outputs=without_autograd_graph(found.outputs), is_light=True)
            self._last = shapes, found
            self._seen.append(seen)
        return found

    def _at(self, sizes: Mapping[str, int]) -> list[torch.Tensor]:
        return resized(self._call.arguments, self._left.shapes, sizes)

    def _learn_sizes_of_functions(self, found: tuple[SecondCall, ...]) -> tuple[SecondCall, ...]:
        """Learns what the calls of autograd Functions return at any size from what they returned at others.

        If nothing follows from that, all is fixed, and of the calls `found` none is left.
        """
        if not self._functions or not self._symbols:
            return found
        self._assume(self._seen)
        calls = zip(self._sized, self._traced.graph.function_sizes, strict=True)
        unknown = [
            seen.function for call, seen in calls if call.sizes is None and declaration_of(seen.function).infer_shape is None
        ]
        followed = self._request.plan.sized_functions.issuperset(unknown)
        if followed and all(self._numbers_at(call.sizes) == call.numbers for call in found):
            return found
        why = "the sizes of what autograd Functions return do not follow from those of what they are given"
        self._left = self._left.close(why)
        return ()

    def _assume(self, seen: list[list[Any]]) -> None:
        """Lets the graph's autograd Functions return tensors of the sizes that calls elsewhere suggest."""
        graph = self._traced.graph
        found = zip(graph.functions, rules(graph.function_sizes, seen), strict=True)
        self._sized = [replace(call, sizes=rule) for call, rule in found]
        self.questions.set_functions(self._sized)

    def _shrunk(self, size: int) -> list[int]:
        return [] if self._traced.run.allowed is Allowed.LARGER else shrunk(size)

    def _least(self, size: int) -> list[int]:
        return [] if self._traced.run.allowed is Allowed.LARGER else least(size)

    def _numbers_at(self, sizes: Mapping[str, int]) -> list[int] | None:
        """Returns the numbers in the graph's result at other sizes; None where the graph is not for them."""
        return self.questions.numbers(resized_metas(self._call.arguments, self._left.shapes, sizes))
