"""Supplies the graphs of a module to one process that asks nobody: from the cache, or by an export of its own.

An example: a script calls its model for the first time with an empty cache. `load` finds no entry; `make` exports, publishes
the entry and returns a ReadyGraph with the source "export". When the script runs again, `load` finds the entry: the source is
"local", and `hits` of the status is 1.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import nn

from rekindle import _native
from rekindle.errors import PythonOpError, first_line, ran_out_of_memory
from rekindle.export.request import ExportRequest
from rekindle.graphs.answers import is_for_small_sizes
from rekindle.graphs.ready_graph import ReadyGraph
from rekindle.lookup.entry_check import check_fit
from rekindle.lookup.keep_refusal import keep_refusal
from rekindle.lookup.refusal import Refusal
from rekindle.lookup.store import Store, StoredEntry
from rekindle.lookup.trials import Trials
from rekindle.lookup.wanted import Wanted
from rekindle.modules.status import Status
from rekindle.options import Options
from rekindle.process.garbage import collector_paused, no_full_collection
from rekindle.process.single_flight import take_turn
from rekindle.reasons import Bypass, Reason, SmallByData, Waiting

if TYPE_CHECKING:
    from rekindle.lookup.background import Offer
    from rekindle.lookup.ranks import Share
    from rekindle.miss.pipeline import NewEntry

    Shared = Share | Offer  # takes the entry for others

_dice = random.Random()  # the process's own generator belongs to the user

_TRIED_ENOUGH = (
    "further exports of it have taken 5 % of the time that the process has run, so that this call's waits; "
    "call it with fewer sizes, or do what its other reasons say"
)

OnGraph = Callable[[str, bytes], None]


class LocalSource:
    """Finds or makes the graphs of one module, and counts that in its status. Not thread-safe.

    on_graph: called with (mode, ONNX bytes) of each graph that is exported or found; see NewEntry.mode of miss/pipeline.py
    """

    def __init__(self, module: nn.Module, options: Options, status: Status, on_graph: OnGraph | None) -> None:
        self._module = module
        self._options = options
        self._status = status
        self._on_graph = on_graph
        self._trials = Trials()
        self.store = Store.open(options)  # the cache
        if options.cuda_graphs:
            from rekindle.process import cuda_graphs  # of torch.cuda, which few processes need

            cuda_graphs.install()
        if options.fused_kernels:
            from rekindle.process import fused_kernels

            fused_kernels.install()

    def load_or_export(self, wanted: Wanted, *shares: Shared) -> ReadyGraph:
        """Returns the graph of a cached entry, or that of an export; offers its entry to `shares`. Raises Bypass without one."""
        return self.load(wanted, *shares) or self.make(wanted, *shares)

    def make(self, wanted: Wanted, *shares: Shared) -> ReadyGraph:
        """Exports, or returns what another process of this machine has exported meanwhile."""
        turn = take_turn(self.store.shared, wanted.prekey, self._options.wait_seconds, type(self._module).__name__)
        try:
            if turn.waited and (graph := self.load(wanted, *shares)) is not None:
                turn.end()
                return graph
            return self._export(wanted, turn.end, *shares)
        except BaseException:
            turn.let_others_go_on()
            turn.end()
            raise

    def load(self, wanted: Wanted, *shares: Shared) -> ReadyGraph | None:
        """Returns the graph of a cached entry whose observations all hold, or None; offers its entry to `shares`.

        Raises Bypass where there is no graph, and the cache knows why.
        """
        refusals = []
        for found in self.store.find(wanted):
            if (refusal := Refusal.of(found)) is not None:
                refusals.append((refusal, found))
                continue
            if is_for_small_sizes(found.contract.data_guards) and not wanted.plan.small_sizes:
                continue  # another one would serve more calls
            if _dice.random() < self._options.verified_share and (made := self._disproof(wanted, found)) is not None:
                return self._adopt(wanted, made, lambda: None, *shares)
            with collector_paused():
                graph = self.hit(wanted, found, found.source)
            for share in shares if graph is not None else ():
                share.offer(self.store.pack(found))
            if graph is not None:
                return graph
        wanted.withdraw_memory()
        self._status.lookup_seconds += time.perf_counter() - wanted.start
        for refusal, found in refusals:
            self.raise_known(wanted, refusal, found, *shares)
        return None

    def raise_known(self, wanted: Wanted, refusal: Refusal, found: StoredEntry, *shares: Shared) -> None:
        """Raises the Bypass that an entry keeps if it holds for the call, and offers the entry to `shares`."""
        if not refusal.holds or refusal.tries <= wanted.tries:
            return
        for share in shares:
            share.offer(self.store.pack(found))
        self.store.record_hit(found, found.cost_seconds)
        _native.log_info(f"hit {found.id[:12]} ({type(self._module).__name__}): no graph; known for {refusal.reason}")
        raise refusal.bypass()

    def _disproof(self, wanted: Wanted, found: StoredEntry) -> NewEntry | None:
        """Returns None if an entry is what a fresh export makes; else that export. The entry is then removed and counted.

        Of calls in which sizes that depend on data are 0, no general graph can be exported: they tell nothing.
        """
        from rekindle.export.copies.private_copy import PrivateCopies
        from rekindle.miss.pipeline import export_entry
        from rekindle.miss.recheck import disagreement

        if is_for_small_sizes(found.contract.data_guards):
            return None
        wanted.withdraw_memory()  # which the export needs
        try:
            made = export_entry(wanted.call, wanted.plan, wanted.fingerprint, wanted.describe)
            request = ExportRequest(wanted.call, wanted.plan, PrivateCopies(wanted.call), wanted.describe)
            why = disagreement(found.joint, found.contract, made, request)
        except SmallByData:
            return None
        except Bypass as bypass:
            self._disproved(found, f"it cannot be exported any more: {bypass}")
            raise
        if why is None:
            self._count(made)
            return None
        self._disproved(found, why)
        return made

    def _disproved(self, found: StoredEntry, why: str) -> None:
        self._status.verify_failures += 1
        self.store.record_bypass(str(Reason.VERIFICATION_FAILED))
        name = type(self._module).__name__
        _native.log_error(
            f"VERIFICATION FAILED: the entry of {name} in the cache is wrong (see {Reason.VERIFICATION_FAILED.anchor})"
        )
        self.store.reject(found.id, why)

    def hit(self, wanted: Wanted, found: StoredEntry, source: str) -> ReadyGraph | None:
        """Returns the graph of an entry that was found; None if it is not for these sizes, or cannot be run and is removed."""
        graph = self.ready(wanted, found, source)
        if graph is None or not graph.admits(wanted.call.arguments, wanted.state):
            return None
        seconds = time.perf_counter() - wanted.start
        self._status.lookup_seconds += seconds
        self._status.hits += 1
        saved = max(0.0, found.cost_seconds - seconds)
        self._status.saved_seconds += saved
        self.store.record_hit(found, saved)
        _native.log_info(
            f"hit {found.id[:12]} ({type(self._module).__name__}, {found.bytes / 1e6:.2f} MB) "
            f"in {seconds * 1000:.0f} ms, saved {saved:.1f} s{self.sloppiness()}"
        )
        return graph

    def ready(self, wanted: Wanted, entry: StoredEntry, source: str) -> ReadyGraph | None:
        """Returns the graph of an entry; None if it cannot be run, and is removed. Raises Bypass if it is not for this module."""
        made, call = entry.contract, wanted.call
        try:
            options = (
                "expected_cotangents",
                "output_layouts",
                "gradient_layouts",
                "gradient_order",
                "saved_groups",
                "saved_tensors",
                "saved_as_given",
                "saved_both_ways",
                "inner_results",
            )
            given = {name: getattr(made, name) for name in options} | self._options.session
            session = _native.Session(entry.joint, **given, written_results=len(made.writes))
            guards = _native.SizeQuestions(entry.sections["guards"]) if "guards" in entry.sections else None
            check_fit(made, session, call)
            graph = ReadyGraph(wanted.prekey, entry.observations, session, made, source, entry.id, guards)
            graph.bind_functions(self._module, call.device)
        except (Bypass, PythonOpError):
            raise
        except Exception as error:  # whatever is wrong with an entry, there is a fresh one to be had
            if ran_out_of_memory(error):
                raise
            self.store.reject(entry.id, f"{type(error).__name__}: {first_line(error)}")
            return None
        if self._on_graph is not None:
            self._on_graph(entry.meta.mode, entry.sections["exported"])
        return graph

    def _export(self, wanted: Wanted, on_written: Callable[[], None], *shares: Shared) -> ReadyGraph:
        """Exports, differentiates, verifies against eager, publishes; calls `on_written` once others can find the entry."""
        if wanted.is_further and self._trials.check() and not self._options.forbids_eager:
            raise Waiting(Reason.TRIED_ENOUGH, _TRIED_ENOUGH, self._trials)
        self.store.explain_miss(wanted.prekey, wanted.fingerprint, wanted.describe_again, wanted.call.arguments)
        try:
            with self._trials.counted(wanted.is_further), no_full_collection():
                from rekindle.miss.pipeline import export_entry

                made = export_entry(wanted.call, wanted.plan, wanted.fingerprint, wanted.describe)
        except Bypass as bypass:
            if (known := keep_refusal(self.store, wanted, bypass)) is not None:
                for share in shares:
                    share.offer(self.store.pack(known))
            raise
        return self._adopt(wanted, made, on_written, *shares)

    def _adopt(self, wanted: Wanted, made: NewEntry, on_written: Callable[[], None], *shares: Shared) -> ReadyGraph:
        """Publishes a fresh export, and returns its graph; `on_written`: as in _export."""
        self._count(made)
        entry, took = self.store.new_entry(wanted.fingerprint, made), made.seconds
        _native.log_info(
            f"exported {type(self._module).__name__} in {took.export:.2f} s, built in {took.build:.2f} s, "
            f"verified in {took.verify:.2f} s, for {entry.meta.inputs}{self.sloppiness()}"
        )
        graph = self.ready(wanted, entry, "export")
        if graph is None:
            raise Bypass(Reason.EXPORT_FAILED, "the new entry could not be loaded back")
        self.store.publish(wanted.prekey, entry, on_written)
        for share in shares:
            share.offer(self.store.pack(entry))
        return graph

    def _count(self, made: NewEntry) -> None:
        self._status.exports += 1
        self._status.export_seconds += made.seconds.export
        self._status.build_seconds += made.seconds.build
        self._status.verify_seconds += made.seconds.verify

    def sloppiness(self) -> str:
        """Says what the key leaves out by the user's wish, for every line that tells of a graph in use."""
        names = self._options.exclude_attributes
        return f" sloppy={','.join(names)}" if names else ""
