"""Remembers for calls of one signature which graphs serve them, or why they run in eager.

An example: a module is called with a tensor of shape [4, 16], then with one of [8, 16]. These are two kinds of calls in one
family. The export for the first leaves the batch size open, so its graph serves the second kind, too: the CallKinds count
2, and `graphs()` has one graph. Were the second call refused, its kind alone would run in eager.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from rekindle import _native
from rekindle.calls.refusal_guards import TryAgain, guard_of, is_of_tables, passes_by_itself
from rekindle.graphs.call_key import is_told_by_class
from rekindle.graphs.ready_graph import ReadyGraph
from rekindle.reasons import Bypass, InBackground, Reason, Waiting
from rekindle.sizes.shapes import Dims, Shapes

# After so many exports or refusals under one call signature, the module is not tried again under it: something in it
# changes at every call. Nor is it after so many sets of plain values in one layout of a call.
MAX_ATTEMPTS = 8
_ENOUGH_REFUSED = 2  # kinds that differ in sizes only, after which no other is tried
_MOST_VALUES = 64  # sets of plain values in layouts that differ in open sizes only
_MOST_KINDS_OF_A_PART = 16
# What a module remembers: what was not used for longest is forgotten, and made anew when it returns, from what else is known.
_MOST_KINDS = 1024
_MOST_LAYOUTS = 1024
_MOST_FAMILIES = 256
_MOST_VARIANTS = 256

_lock = threading.Lock()  # of all tables below; nothing else is locked, and no code of the user's runs, under it


def _renew_lock() -> None:
    """Replaces the lock in a forked child, where the thread that held it may not be."""
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_renew_lock)


@dataclass
class CallKind:
    """Holds what is known about calls of one signature: graphs that serve them, or why they run in eager."""

    graphs: tuple[ReadyGraph, ...] = ()  # most recently used first; exchanged as a whole, so that it can be read at any time
    refusal: Bypass | None = None  # why they run in eager; `is_refused` tells whether it still stands
    refused_while: Any = None  # guard under which the refusal stands; None: for good
    attempts: int = 0  # exports and refusals so far; from MAX_ATTEMPTS on, no export is tried
    ran_in_eager: bool = False  # whether a call did without an error, since the refusal
    family: Family | None = None  # those that differ in sizes only, once a graph was wanted
    prekey: str = ""  # under which an export was tried last
    tries: int = 0  # exports in a row that failed under it
    is_used: bool = True  # whether a call was of it, since its table last looked for a kind to forget

    @property
    def is_refused(self) -> bool:
        """Tells whether the reason to run in eager still stands."""
        refused_while = self.refused_while  # another thread may let go of it
        return self.refusal is not None and (refused_while is None or bool(refused_while.check()))

    def ready(self, arguments: list[torch.Tensor]) -> ReadyGraph | None:
        """Returns a graph that is right now for a call, and makes it the first that is asked; None without one."""
        for graph in (graphs := self.graphs):
            if graph.ready(arguments):
                if graph is not graphs[0]:
                    self.add(graph)
                return graph
        return None

    def add(self, graph: ReadyGraph) -> None:
        """Makes a graph the first that is asked."""
        with _lock:
            self.graphs = (graph, *(other for other in self.graphs if other is not graph))

    def leave(self, graph: ReadyGraph) -> None:
        """Runs a graph no more for this kind of calls, nor lets another be made."""
        with _lock:
            self.graphs = tuple(other for other in self.graphs if other is not graph)
        self.attempts = MAX_ATTEMPTS

    def is_refused_at_other_sizes(self, bypass: Bypass) -> bool:
        """Tells whether calls of other sizes were refused for the same cause, too, so that it is none of a first call."""
        return self.family is not None and len(self.family.refused.get(bypass.cause, ())) >= _ENOUGH_REFUSED

    def try_under(self, prekey: str) -> None:
        """Notes that a graph is wanted under a key."""
        if prekey != self.prekey:
            self.prekey, self.tries = prekey, 0

    def refuse(self, bypass: Bypass, refused_while: Any) -> None:
        """Lets calls run in eager, for `bypass`, as long as the guard `refused_while` passes; None: for good."""
        self.attempts += 1
        self.tries += 1
        if self.family is not None:
            self.family.note(self, bypass)
        self.ran_in_eager = False
        self.refused_while = None if self.attempts >= MAX_ATTEMPTS else refused_while
        self.refusal = bypass

    def wait(self, bypass: Waiting) -> None:
        """Lets calls run in eager as long as their graph has to wait; this is no attempt that failed."""
        self.refusal, self.refused_while = bypass, bypass.until


@dataclass
class Family:
    """Holds what is known about calls that differ in the sizes of their tensors only."""

    graphs: tuple[ReadyGraph, ...] = ()  # newest first
    # Why no size is left open where an export has tried in vain, by the dims of its shapes, in which equal ones are one symbol.
    closed: dict[tuple[Dims, ...], str] = field(default_factory=dict)
    # Kinds that were refused, by the cause; several with one cause stand for the kinds that were not called yet.
    refused: dict[tuple[Reason, str], list[CallKind]] = field(default_factory=dict)
    waiting: InBackground | None = None  # since a helper was last asked for

    def note(self, kind: CallKind, bypass: Bypass) -> None:
        """Notes that a kind of calls is refused."""
        with _lock:
            others = [other for other in self.refused.pop(bypass.cause, []) if other is not kind]
            _put(self.refused, bypass.cause, [*others, kind][-_ENOUGH_REFUSED:], MAX_ATTEMPTS)

    def refusal(self) -> Bypass | None:
        """Returns why any further kind of calls runs in eager, too: what stands for several, where none has a graph."""
        if self.graphs:
            return None
        for kinds in list(self.refused.values()):
            if len(kinds) >= _ENOUGH_REFUSED and all(kind.is_refused for kind in kinds):
                return kinds[-1].refusal
        return None

    def was_refused(self, bypass: Bypass) -> bool:
        """Tells whether another kind of calls was refused for the same cause."""
        return bypass.cause in self.refused

    def add(self, graph: ReadyGraph, wanted: Shapes) -> None:
        """Keeps a graph and, where it has no open sizes though its export was to leave those of `wanted` open, the reason."""
        with _lock:
            self.graphs = (graph, *self.graphs)
        if wanted.symbols and not graph.shapes.symbols:
            for _, why in graph.contract.shapes.fixed[:1]:
                self.closed[wanted.dims] = why


class CallKinds:
    """Keeps the kinds of calls of one module, by key. Thread-safe; `find` and `get` take no lock."""

    def __init__(self, is_part: bool) -> None:
        self._is_part = is_part
        self._kinds: dict[Any, CallKind] = {}
        self._calls = _native.CallTable()  # the same kinds, found without a key where that can be
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

    def get(self, key: tuple[Any, ...]) -> CallKind | None:
        """Returns the kind of a call seen before, by its key; None for a new one."""
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

        key: that of kind_key
        open_layout: the first two items of a kind_key without the sizes that may be open
        """
        with _lock:
            if self._is_part and self._tried() >= _MOST_KINDS_OF_A_PART:
                # What data decides about may have new sizes at every call.
                message = f"it was called with {_MOST_KINDS_OF_A_PART} layouts of inputs so far, and is not exported for more"
                return self._of_all_further_calls((), message)
            layout, values = key[:2], hash(key[2:])
            for known, most in ((layout, MAX_ATTEMPTS), (("open", open_layout), _MOST_VALUES)):
                seen = self._values.pop(known, set())
                _put(self._values, known, seen, _MOST_LAYOUTS)
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
        with _lock:
            family = self._families.pop(key, None) or Family()
            _put(self._families, key, family, _MOST_FAMILIES)
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
        with _lock:
            for one in (*self._kinds.values(), *self._families.values()):
                if graph in one.graphs:
                    one.graphs = tuple(other for other in one.graphs if other is not graph)

    def refuse(self, kind: CallKind, bypass: Bypass, module: nn.Module) -> None:
        """Lets calls of a kind run in eager from now on, as long as trying again is of no use."""
        guard: Any = None
        if passes_by_itself(bypass, kind.attempts < 2 and not kind.is_refused_at_other_sizes(bypass)):
            guard = TryAgain()
        elif kind.attempts + 1 < MAX_ATTEMPTS:
            about, known = self._refused_while
            if known is None or about != is_of_tables(bypass) or not known.check():
                known = guard_of(bypass, module)
            self._refused_while, guard = (is_of_tables(bypass), known), known
        kind.refuse(bypass, guard)


def _put(table: dict[Any, Any], key: Any, value: Any, most: int) -> None:
    """Makes an item the newest of a table, which forgets the oldest beyond `most`."""
    table[key] = value
    while len(table) > most:
        del table[next(iter(table))]
