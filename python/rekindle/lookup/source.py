"""Supplies the graphs of a module: from the cache, another rank, a helper process, or an export of this process.

An example: the ranks of a job call their model for the first time, with empty caches. `obtain` finds no entry on any rank. The
rank that asked first exports: it publishes the entry, and the source of its graph is "export". The others are given the entry:
their source is "remote". With start="background", a helper of that rank exports, and all ranks raise InBackground meanwhile.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from torch import nn

from rekindle import _native
from rekindle.graphs.ready_graph import ReadyGraph
from rekindle.lookup import ranks, store
from rekindle.lookup.local_source import LocalSource, OnGraph
from rekindle.lookup.refusal import Refusal
from rekindle.lookup.store import model_label
from rekindle.lookup.wanted import Wanted
from rekindle.modules.status import Status
from rekindle.options import Options

if TYPE_CHECKING:
    from rekindle.lookup.background import Background, Ended, Offer
    from rekindle.lookup.local_source import Shared


class GraphSource:
    """Finds or makes the graphs of one module, and counts that in its status. Not thread-safe.

    on_graph: as of LocalSource
    """

    def __init__(self, module: nn.Module, options: Options, status: Status, on_graph: OnGraph | None) -> None:
        self._name = type(module).__name__
        self._module = module
        self._options = options
        self._status = status
        self._background = _background() if options.start == "background" and not options.forbids_eager else None
        self._local = LocalSource(module, options, status, on_graph)
        self.store = self._local.store

    def obtain(self, wanted: Wanted) -> ReadyGraph:
        """Returns a graph from the cache, from the rank that leads, or by an export. Raises Bypass when none can be had."""
        graph = None
        if self._background is not None and self._background.began(wanted.prekey):
            graph = self._from_rank(wanted, functools.partial(self._background.switched, wanted.prekey))
        elif self.store.mode != "off" and (share := ranks.share(wanted.prekey)) is not None:
            graph = self._lead(wanted, share) if share.leads else self._follow(wanted, share)
        return graph or self._from_background(wanted) or self._local.load_or_export(wanted)

    def _lead(self, wanted: Wanted, share: ranks.Share) -> ReadyGraph:
        """Returns the graph of an entry that is there, or is made here, and gives the entry to the other ranks.

        Raises InBackground where a helper makes it.
        """
        try:
            graph = self._local.load(wanted, share) or self._from_rank(wanted, share.held_elsewhere, share)
            if graph is None:
                from rekindle.lookup.explanation import key_leaves  # which no hit needs

                share.tell_of_other_keys(model_label(wanted.fingerprint), wanted.prekey, key_leaves(wanted.fingerprint.fields))
                self._begin_beside(wanted, share)
            return graph or self._local.make(wanted, share)
        finally:
            share.let_others_go_on()

    def _follow(self, wanted: Wanted, share: ranks.Share) -> ReadyGraph | None:
        """Returns the graph of an entry of this rank's cache, or of the leader's; None where there is none for this rank.

        Raises InBackground while a helper of the leader makes it.
        """
        graph = None
        try:
            graph = self._local.load(wanted, share)
        finally:
            if graph is None:
                share.has_none()
        wait = functools.partial(share.receive, self._options.wait_seconds, self._name)
        graph = graph or self._from_rank(wanted, wait)
        if graph is None and share.is_deferred and self._background is not None:
            from rekindle.lookup.agreed_switch import Following

            self._background.follow(wanted.prekey, Following(share, self._options.wait_seconds, self._name))
        return graph

    def _from_rank(self, wanted: Wanted, ask: Callable[[], bytes | None], *shares: Shared) -> ReadyGraph | None:
        """Returns the graph of the entry that another rank gives, and offers it to `shares`; None where it is of no use here.

        Raises Bypass where the entry says why there is no graph.
        """
        offered = ask()
        found = self.store.adopt(wanted, offered) if offered is not None else None
        if found is None or offered is None:
            return None
        if (refusal := Refusal.of(found)) is not None:
            self._local.raise_known(wanted, refusal, found, *shares)
            return None
        graph = self._local.hit(wanted, found, "remote")
        for share in shares if graph is not None else ():
            share.offer(offered)
        return graph

    def _from_background(self, wanted: Wanted) -> ReadyGraph | None:
        """Returns the graph of a cached entry, or of a helper's; None where this process is to make one.

        Raises InBackground while a helper makes it.
        """
        if self._background is None:
            return None
        ended = self._background.ended(wanted.prekey)
        if ended is not None and (graph := self._made_beside(wanted, ended)) is not None:
            return graph
        if not self._background.leads(wanted.prekey) and (graph := self._local.load(wanted)) is not None:
            return graph  # who leads has the helper find it, so that all ranks go over to it at one call
        self._begin_beside(wanted)
        return None

    def _begin_beside(self, wanted: Wanted, share: ranks.Share | None = None) -> None:
        """Has a helper make an entry, and raises InBackground; returns where this process is to make it.

        share: of the rank that leads; None where this process decides alone, or the ranks know that a helper is at work
        """
        if self._background is None:
            return
        from rekindle.lookup.background import why_here

        why = why_here(wanted.call.device.type)
        if why is None:
            try:
                self._background.begin(wanted.prekey, lambda offer: self._make_beside(wanted, offer), share)
            except OSError as error:
                why = f"no helper can be started: {error.strerror}"
        self._background.give_up(wanted.prekey)
        _native.log_info(f"{self._name} is not exported in the background: {why}")

    def _make_beside(self, wanted: Wanted, offer: Offer) -> Status:
        """Makes the entry of a call in a helper process, for another process; returns what there is to count."""
        status = Status()
        LocalSource(self._module, replace(self._options, start="wait"), status, None).load_or_export(wanted, offer)
        store.flush()
        return status

    def _made_beside(self, wanted: Wanted, ended: Ended) -> ReadyGraph | None:
        """Returns the graph of the entry that a helper has made, None if the call is another by now; raises why there is none."""
        ended.count(self._status)
        if ended.error is not None:
            raise ended.error
        entry = self.store.adopt(wanted, ended.packed)
        graph = None if entry is None else self._local.ready(wanted, entry, "background")
        if graph is None or not graph.admits(wanted.call.arguments, wanted.state):
            return None
        _native.log_info(f"{self._name} runs from the graph that was made in the background{self._local.sloppiness()}")
        return graph


def _background() -> Background:
    from rekindle.lookup.background import Background  # which is for this one start

    return Background()
