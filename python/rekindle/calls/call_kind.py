"""Holds what is known about calls of one signature, and about those that differ from it in sizes only; see call_kinds.py."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass, field
from typing import Any

import torch

from rekindle.graphs.ready_graph import ReadyGraph
from rekindle.reasons import Bypass, InBackground, Reason, SmallByData, Waiting
from rekindle.sizes.shapes import Dims, Shapes

# After so many exports or refusals under one call signature, the module is not tried again under it: something in it
# changes at every call. Nor is it after so many sets of plain values in one layout of a call.
MAX_ATTEMPTS = 8
_ENOUGH_REFUSED = 2  # kinds that differ in sizes only, after which no other is tried


class _Tables:
    """Has the lock of all tables of kinds and families; nothing else is locked, and no code of the user's runs, under it."""

    def __init__(self) -> None:
        self.renew()

    def renew(self) -> None:
        """Replaces the lock: in a forked child, the thread that held it may not be."""
        self.lock = threading.Lock()


tables = _Tables()
os.register_at_fork(after_in_child=tables.renew)


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
        with tables.lock:
            self.graphs = (graph, *(other for other in self.graphs if other is not graph))

    def leave(self, graph: ReadyGraph) -> None:
        """Runs a graph no more for this kind of calls, nor lets another be made."""
        with tables.lock:
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
    small: int = 0  # calls without a graph, as sizes that depend on data were 0 in them or in the graph's
    waiting: InBackground | None = None  # since a helper was last asked for

    def note(self, kind: CallKind, bypass: Bypass) -> None:
        """Notes that a kind of calls is refused."""
        with tables.lock:
            self.small += isinstance(bypass, SmallByData)
            others = [other for other in self.refused.pop(bypass.cause, []) if other is not kind]
            put_newest(self.refused, bypass.cause, [*others, kind][-_ENOUGH_REFUSED:], MAX_ATTEMPTS)

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
        with tables.lock:
            self.graphs = (graph, *self.graphs)
        if wanted.symbols and not graph.shapes.symbols:
            for _, why in graph.contract.shapes.fixed[:1]:
                self.closed[wanted.dims] = why


def put_newest(table: dict[Any, Any], key: Any, value: Any, most: int) -> None:
    """Makes an item the newest of a table, which forgets the oldest beyond `most`."""
    table[key] = value
    while len(table) > most:
        del table[next(iter(table))]
