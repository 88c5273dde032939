"""Remembers for calls of one signature which graphs serve them, or why they run in eager.

An example: a module is called with a tensor of shape [4, 16], then with one of [8, 16]. These are two kinds of calls in one
family. The export for the first leaves the batch size open, so its graph serves the second kind, too: the CallKinds count
2, and `graphs()` has one graph. Were the second call refused, its kind alone would run in eager.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from rekindle import _native
from rekindle.calls.call_kind import MAX_ATTEMPTS, CallKind, Family, put_newest, tables
from rekindle.calls.refusal_guards import TryAgain, guard_of, is_of_tables, passes_by_itself
from rekindle.graphs.answers import is_for_small_sizes
from rekindle.graphs.call_key import is_told_by_class, kind_key
from rekindle.graphs.ready_graph import ReadyGraph
from rekindle.reasons import Bypass, Reason
from rekindle.sizes.shapes import Shapes

_MOST_VALUES = 64  # sets of plain values in layouts that differ in open sizes only
_MOST_KINDS_OF_A_PART = 16  # layouts of inputs for which a part has graphs or was refused; further ones run in eager
# What a module remembers: what was not used for longest is forgotten, and made anew when it returns, from what else is known.
_MOST_KINDS = 1024
_MOST_LAYOUTS = 1024
_MOST_FAMILIES = 256
_MOST_VARIANTS = 256


class CallKinds:
    """Keeps the kinds of calls of one module, by key. Thread-safe; `find` and `get` take no lock."""

    def __init__(self, is_part: bool) -> None:
        self._is_part = is_part
        self._kinds: dict[Any, CallKind] = {}
        self._calls = _native.CallTable()  # the same kinds, found without a key where that can be
        self._told_apart: set[int] = set()  # ids of containers, as of kind_key
        self._families: dict[Any, Family] = {}
        self._values: dict[Any, set[int]] = {}  # per layout of a call: hashes of the plain values that it had
        # Of the last refusal: whether it is about tables, and its guard, which holds for the next while it passes.
        self._refused_while: tuple[bool, Any] = (False, None)

    def __iter__(self) -> Iterator[CallKind]:
        return iter(self._kinds.copy().values())

    def __len__(self) -> int:
        return len(self._kinds)

    def find(self, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[torch.Tensor]) -> CallKind | None:
        """Returns the kind of a call like one that was kept, and adds the call's distinct tensors to `tensors`.

        None says nothing about the call; `tensors` then gets nothing. While torch.jit traces, it is always None.
        """
        kind: CallKind | None = self._calls.find(args, kwargs, tensors)
        if kind is not None:
            kind.is_used = True
        return kind

    def key(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[torch.Tensor], open_sizes: bool = False
    ) -> tuple[Any, ...]:
        """Returns the kind_key of a call; calls that are given what graphs depend on are told from others."""
        return kind_key(args, kwargs, tensors, open_sizes, self._told_apart)

    def tell_apart(self, graph: ReadyGraph) -> bool:
        """Tells calls that are given a container which a graph that was armed depends on from calls with others like it.

        Returns whether keys may be others than before.
        """
        if graph.containers <= self._told_apart:
            return False
        self._told_apart = set().union(graph.containers, *(known.containers for known in self.graphs()))
        self._calls.tell_apart(list(self._told_apart))
        return True

    def of_key(self, key: tuple[Any, ...]) -> CallKind:
        """Returns the kind of a key, made where there is none."""
        with tables.lock:
            return self._kept(key, CallKind())

    def get(self, key: tuple[Any, ...]) -> CallKind | None:
        """Returns the kind of a call seen before, by its `key`; None for a new one."""
        kind = self._kinds.get(key)
        if kind is not None:
            kind.is_used = True
        return kind

    def keep(self, kind: CallKind, args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallKind:
        """Lets `find` give the kind that `get` gives for a call, and returns the kind."""
        for value in filter(is_told_by_class, (*args, *kwargs.values())):
            self._calls.take_by_class(type(value))
        self._calls.keep(args, kwargs, kind)
        return kind

    def new(self, key: tuple[Any, ...], open_layout: tuple[Any, ...]) -> tuple[CallKind, Bypass | None]:
        """Returns the kind of a call not seen before, and why it is refused, if it is from now on.

        Calls with ever new plain values are of one kind, which is refused.

        key: as of `key`
        open_layout: the first two items of a `key` without the sizes that may be open
        """
        with tables.lock:
            if self._is_part and self._tried() >= _MOST_KINDS_OF_A_PART:
                # What data decides about may have new sizes at every call.
                message = f"it was called with {_MOST_KINDS_OF_A_PART} layouts of inputs so far, and is not exported for more"
                return self._of_all_further_calls((), message)
            layout, values = key[:2], hash(key[2:])
            for known, most in ((layout, MAX_ATTEMPTS), (("open", open_layout), _MOST_VALUES)):
                seen = self._values.pop(known, set())
                put_newest(self._values, known, seen, _MOST_LAYOUTS)
                if values not in seen and len(seen) >= most:
                    message = f"its plain arguments had {most} different values so far; pass what changes as a tensor"
                    return self._of_all_further_calls(known, message)
            for known in (layout, ("open", open_layout)):
                self._values[known].add(values)
            return self._kept(key, CallKind()), None

    def _of_all_further_calls(self, key: tuple[Any, ...], message: str) -> tuple[CallKind, Bypass | None]:
        if (kind := self.get(key)) is not None:
            return kind, None
        bypass = Bypass(Reason.VALUE_SPECIALIZED, message)
        return self._kept(key, CallKind(attempts=MAX_ATTEMPTS, refusal=bypass)), bypass

    def _kept(self, key: tuple[Any, ...], made: CallKind) -> CallKind:
        """Returns the kind that is there or else `made`, which may take the place of the one that was not used for longest."""
        kind = self._kinds.get(key)
        if kind is not None:  # another thread was faster
            return kind
        while len(self._kinds) >= _MOST_KINDS:
            oldest = next(iter(self._kinds))
            one = self._kinds.pop(oldest)
            if one.is_used:
                one.is_used = False
                self._kinds[oldest] = one
            else:
                self._calls.forget(one)
        self._kinds[key] = made
        return made

    def _tried(self) -> int:
        """Counts graphs, of which one may serve many kinds, and kinds that were refused or not served yet."""
        return len(self.graphs()) + sum(not kind.graphs for kind in self)

    def graphs(self) -> list[ReadyGraph]:
        """Lists the graphs that serve a kind, each once."""
        return [*{id(graph): graph for kind in self for graph in kind.graphs}.values()]

    def family(self, key: tuple[Any, ...]) -> Family:
        """Returns the family of calls that differ in sizes only, by its key; a new one if there is none."""
        with tables.lock:
            family = self._families.pop(key, None) or Family()
            put_newest(self._families, key, family, _MOST_FAMILIES)
            return family

    def add(self, kind: CallKind, family: Family, graph: ReadyGraph, wanted: Shapes) -> None:
        """Keeps a new graph, which serves a kind of calls, and may drop another for it; `wanted` is that of Family.add."""
        kind.add(graph)
        family.add(graph, wanted)
        known = self.graphs()
        if len(known) > _MOST_VARIANTS:
            self.drop(next(one for one in known if one is not graph))

    def release(self, module: nn.Module) -> None:
        """Lets go of all that was replaced in the module since it was last described."""
        for graph in self.graphs():
            graph.release(module)
        _, guard = self._refused_while
        if guard is not None and not guard.check():
            self._refused_while = (False, None)
        for kind in self:
            if kind.refused_while is not None and not kind.is_refused:
                kind.refusal = kind.refused_while = None

    def drop(self, graph: ReadyGraph) -> None:
        """Lets no call run from a graph any more."""
        with tables.lock:
            for one in (*self._kinds.values(), *self._families.values()):
                if graph in one.graphs:
                    one.graphs = tuple(other for other in one.graphs if other is not graph)

    def leave_if_small(self, kind: CallKind, graph: ReadyGraph) -> None:
        """Lets no call run from a graph that is for sizes of 0, where a call has others: one may be made for all of these."""
        if is_for_small_sizes(graph.data_guards):
            self.drop(graph)
            if kind.family is not None:
                kind.family.small = 0

    def refuse(self, kind: CallKind, bypass: Bypass, module: nn.Module) -> None:
        """Lets calls of a kind run in eager from now on, as long as trying again is of no use."""
        guard: Any = None
        if passes_by_itself(bypass, kind.attempts < 2 and not kind.is_refused_at_other_sizes(bypass)):
            guard = TryAgain()
        elif kind.attempts + 1 < MAX_ATTEMPTS:
            about, known = self._refused_while
            if known is None or about != is_of_tables(bypass) or not known.check():
                try:
                    known = guard_of(bypass, module)
                except ReferenceError:  # a child is a weak proxy of a module that is gone: the refusal stands for good
                    known = None
            self._refused_while, guard = (is_of_tables(bypass), known), known
        kind.refuse(bypass, guard)
