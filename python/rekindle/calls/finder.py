"""Finds the graph of a call that no guard let through: in memory by its key, in the cache, or by an export.

An example: a second script calls a model that a first has trained. `find` describes the call, finds no graph in memory under its
key, and has the source load the entry of the first script. The next call needs no `find`: the guard of that graph passes.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from rekindle import _native
from rekindle.calls.call_kind import MAX_ATTEMPTS, CallKind, Family
from rekindle.calls.call_kinds import CallKinds
from rekindle.calls.subject import Subject
from rekindle.export.request import Call
from rekindle.graphs.ready_graph import ReadyGraph
from rekindle.key.ambient import refuse_modes
from rekindle.key.fingerprint import Fingerprint
from rekindle.lookup.source import GraphSource
from rekindle.lookup.wanted import Wanted
from rekindle.modules.module_tables import named_buffers, named_parameters
from rekindle.modules.status import Status
from rekindle.process.garbage import collector_paused
from rekindle.reasons import Bypass, InBackground, Passing, ReadsAttribute, Reason, SetsAttributes, Waiting
from rekindle.results.contract import flatten_arguments

_MOST_TEXT = 200  # characters of what changed, in a message
_FIRST_GRAPHS = 3  # of calls that differ in sizes only, which are exported whenever they are wanted


@dataclass(frozen=True)
class _Search:
    """Holds what a search begins with."""

    source: GraphSource
    args: tuple[Any, ...]  # of the call
    kwargs: dict[str, Any]
    arguments: list[torch.Tensor]  # the tensors in these, in flattening order
    start: float  # of time.perf_counter
    memory: Any  # the _native.PendingMemory of the module's gradients


@dataclass(frozen=True)
class _Sought:
    """Holds what is known of a call that a graph is sought for."""

    prekey: str  # of the fingerprint, in hexadecimal
    fingerprint: Fingerprint  # of the call
    call: Call
    search: _Search


class Finder:
    """Finds the graphs of one module's calls. Not thread-safe; it and what it is made with belong to one Runtime."""

    def __init__(self, module: nn.Module, subject: Subject, kinds: CallKinds, status: Status) -> None:
        self._module = module
        self._subject = subject
        self._kinds = kinds
        self._status = status

    def find(self, source: GraphSource, kind: CallKind, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ReadyGraph:
        """Returns a graph for the call `module(*args, **kwargs)`, armed for it. Raises Bypass where there is none."""
        refuse_modes()  # before a graph is asked whether it has a plan: to make one is to call operators
        start = time.perf_counter()
        arguments = flatten_arguments(args, kwargs)
        family = kind.family = self._kinds.family(self._kinds.key(args, kwargs, [], self._subject.dynamic))
        state = [*named_parameters(self._module).values(), *named_buffers(self._module).values()]
        admitting = [known for known in family.graphs if known in kind.graphs or known.admits(arguments, state + known.bound)]
        for known in admitting:
            if known.ready(arguments):
                return self._known(kind, known)
        if (waiting := family.waiting) is not None and waiting.until.check():
            raise waiting
        self._kinds.release(self._module)
        if (refusal := family.refusal()) is not None:
            raise refusal
        leaves = state if torch.is_grad_enabled() and self._module.training else []  # a backward is to be expected
        with _native.PendingMemory(leaves) as memory:  # works on another core than what follows
            return self._found(kind, admitting, _Search(source, args, kwargs, arguments, start, memory))

    def _found(self, kind: CallKind, admitting: list[ReadyGraph], search: _Search) -> ReadyGraph:
        """Returns a graph for the call of a search: one of `admitting` that its key fits, or one of the source."""
        args, kwargs = search.args, search.kwargs
        refused: dict[str, Bypass] = {}  # by prekey
        while True:
            with collector_paused():
                fingerprint = self._subject.fingerprint(args, kwargs)
                prekey = search.source.store.prekey(fingerprint)
            if prekey in refused:  # its attributes are read, so that they are part of the key again
                raise refused[prekey]
            found = next((known for known in admitting if known.fits(prekey, fingerprint)), None)
            if found is None and self._subject.unread.leave_out_changed(fingerprint):
                continue
            call = self._subject.call(args, kwargs, search.arguments, fingerprint)
            wanted = _Sought(prekey, fingerprint, call, search)
            try:
                graph = self._obtained(kind, wanted) if found is None else self._armed(kind, found, wanted)
            except (ReadsAttribute, SetsAttributes) as bypass:
                if not self._learns(bypass):
                    raise
                refused[prekey] = bypass.forgotten()
                kind.attempts -= 1  # it was not the module that changed
                continue
            except Bypass as bypass:
                if isinstance(bypass, Waiting | Passing) or not self._subject.unread.take_as_constants():
                    raise
                _native.log_debug(f"numbers of plain tensors stay in the key, as no graph takes them: {bypass.message}")
                continue
            self._subject.unread.keep(fingerprint)
            return graph

    def _learns(self, bypass: ReadsAttribute | SetsAttributes) -> bool:
        """Takes what a forward does with attributes into account; returns False where that was known."""
        unread = self._subject.unread
        return unread.note_read(bypass) if isinstance(bypass, ReadsAttribute) else unread.leave_out_set(bypass)

    def _armed(self, kind: CallKind, known: ReadyGraph, sought: _Sought) -> ReadyGraph:
        known.arm(sought.fingerprint, sought.call)
        if self._kinds.tell_apart(known):
            kind, _ = self._renewed(sought.call)
        return self._known(kind, known)

    def _renewed(self, call: Call) -> tuple[CallKind, Family]:
        """Returns the kind and the family of a call that may be given what its graph depends on, so that its key is another."""
        args, kwargs = call.args, call.kwargs
        kind = self._kinds.of_key(self._kinds.key(args, kwargs, []))
        kind.family = self._kinds.family(self._kinds.key(args, kwargs, [], self._subject.dynamic))
        return kind, kind.family

    def _always_another(self, fingerprint: Fingerprint) -> Bypass:
        """Says that no graph would serve the next call, and what changes."""
        change = self._subject.unread.last_change(fingerprint)
        seen = "" if change is None else f" ({change[:_MOST_TEXT]})"
        remedy = "keep what changes in a buffer, or pass it as a tensor"
        return Bypass(Reason.STATE_MUTATED, f"the module was another at each of {MAX_ATTEMPTS} calls{seen}; {remedy}")

    def _known(self, kind: CallKind, graph: ReadyGraph) -> ReadyGraph:
        """Lets a graph in memory serve a kind of calls, too, and returns it."""
        if graph not in kind.graphs:
            kind.add(graph)
            self._status.source = "memory"
        return graph

    def _obtained(self, kind: CallKind, sought: _Sought) -> ReadyGraph:
        """Returns a graph from the cache or of an export."""
        family, call = kind.family, sought.call
        assert family is not None
        plan = self._subject.plan(call.arguments, [known.contract.shapes.sizes for known in family.graphs], family.small)
        if kind.attempts >= MAX_ATTEMPTS:
            raise self._always_another(sought.fingerprint)
        kind.attempts += 1
        kind.try_under(sought.prekey)
        if (why := family.closed.get(plan.shapes.dims)) is not None:
            plan = plan.closed(call.arguments, why)
        wanted = Wanted(
            sought.prekey, sought.fingerprint, call, plan, self._subject.describe, sought.search.start, kind.tries,
            family.was_refused, sought.search.memory.withdraw,
            is_further=kind.tries > 0 or bool(family.refused) or len(family.graphs) >= _FIRST_GRAPHS,
        )  # fmt: skip
        try:
            graph = sought.search.source.obtain(wanted)
        except Waiting as waiting:
            kind.attempts -= 1
            if isinstance(waiting, InBackground):
                family.waiting = waiting.forgotten()
            raise
        if graph.source == "export":  # which took several times what the model holds
            _native.release_free_memory()
        with collector_paused():
            graph.arm(sought.fingerprint, call)
        graph.session.set_first_touch(sought.search.memory)
        if self._kinds.tell_apart(graph):
            kind, family = self._renewed(call)
        self._kinds.add(kind, family, graph, plan.shapes)
        self._status.source = graph.source
        return graph
