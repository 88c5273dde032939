"""Says where ranks of a job ask for one model under different keys, so that each makes a graph of its own.

An example: rank 1 trains with another rate of dropout than rank 0. Once rank 1 is about to export, `differing` returns the text

    rank 0 has another key: model.dropout.attributes.p  0.1 -> 0.2

What a rank that makes a graph has asked under lies in the job's store:

    rekindle/of <model>/count   counter
    rekindle/of <model>/<i>     JSON: [rank, prekey, leaves]
"""

from __future__ import annotations

import json
from collections.abc import Callable

from rekindle.key.values.ingredients import Parts
from rekindle.lookup.job_store import Connection

_MOST = 64  # keys of a model that are compared
_MOST_BYTES = 4 << 20  # of one of them; TCPStore takes at most 8 MB a value


def differing(store: Connection, rank: int, model: str, prekey: str, leaves: Parts, asked: Callable[[str], bool]) -> str | None:
    """Notes the key of a rank in the job's store; says which other rank has another, and what differs least from it.

    model: qualified class of the module
    asked: tells whether this rank has asked under a key, too

    Returns None where no other rank is known to have another key. Raises RuntimeError where the store does not answer.
    """
    place = f"rekindle/of {model}/"
    text = json.dumps([rank, prekey, leaves])
    if len(text) > _MOST_BYTES:
        return None
    from rekindle.lookup.explanation import differences_of  # which no hit needs

    number = store.add(place + "count", 1)
    store.set(f"{place}{number}", text)
    best: tuple[int, str] | None = None
    for i in range(max(1, number - _MOST), number):
        if not store.check([f"{place}{i}"]):  # not there yet
            continue
        other, key, others_leaves = json.loads(store.get(f"{place}{i}"))
        if other == rank or key == prekey or asked(key):
            continue
        found = differences_of(model, [tuple(leaf) for leaf in others_leaves], leaves)
        if found and (best is None or len(found) < best[0]):
            best = len(found), f"rank {other} has another key: {found[0]}"
    return None if best is None else best[1]
