"""Stores why a call has no graph, as refusal.py says."""

from __future__ import annotations

import time

from rekindle.lookup.refusal import Refusal, is_lasting
from rekindle.lookup.store import Store, StoredEntry
from rekindle.lookup.wanted import Wanted
from rekindle.reasons import Bypass


def keep_refusal(store: Store, wanted: Wanted, bypass: Bypass) -> StoredEntry | None:
    """Lets later processes know why a call has no graph, where they would find the same; returns what they find."""
    if not is_lasting(bypass):
        return None
    before = [
        refusal
        for found in store.find(wanted)
        if (refusal := Refusal.of(found)) is not None and refusal.bypass().cause == bypass.cause
    ]
    processes = max((refusal.processes for refusal in before), default=0) + (wanted.tries == 0)
    refusal = Refusal.made(bypass, wanted.tries + 1, max(1, processes))
    seconds = time.perf_counter() - wanted.start
    entry = store.new_refusal(wanted.fingerprint, wanted.shapes_of(bypass), refusal, bypass, seconds)
    store.publish(wanted.prekey, entry)
    return entry
