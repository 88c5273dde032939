"""A process that a rank has forked is no rank: it asks nothing of the job's store, whatever of the rank's it has inherited."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
import torch.distributed as dist
from rekindle.lookup import job_store, ranks
from rekindle.lookup.agreed_switch import Following, Leading, Switch
from rekindle.lookup.background import Background
from rekindle.process.helper import Helper
from torch.testing._internal.distributed import fake_pg as _fake  # noqa: F401  (which registers the backend)


def start() -> None:
    """Makes this process rank 0 of a job of two, in which nobody else has to take part."""
    dist.init_process_group("fake", rank=0, world_size=2, store=dist.HashStore())


@pytest.fixture(autouse=True)
def job() -> Iterator[None]:
    start()
    yield
    dist.destroy_process_group()


class Counting:
    """Stands for the store of a job, and counts what it is asked."""

    def __init__(self) -> None:
        self.asked = 0

    def add(self, key: str, amount: int) -> int:
        self.asked += 1
        return 1

    def check(self, keys: list[str]) -> bool:
        self.asked += 1
        return False

    def get(self, key: str) -> bytes:
        self.asked += 1
        return b"open"

    def set(self, key: str, value: str | bytes) -> None:
        self.asked += 1


def holds_in_child(told: Callable[[], bool]) -> bool:
    """Returns what `told` does in a forked process; False where it raises."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = 0 if told() else 1
        finally:
            os._exit(status)
    return os.waitpid(child, 0)[1] == 0


def share_of(store: Counting) -> ranks.Share:
    share = ranks.Share(job_store.Connection(store), "rekindle/key/1/", 2)
    share.call_off()  # so that it sends no sign of life meanwhile
    return share


def test_a_forked_process_takes_no_part_in_decisions() -> None:
    assert job_store.is_rank()
    assert ranks.share("key") is not None
    assert holds_in_child(lambda: not job_store.is_rank() and ranks.share("key") is None)
    assert holds_in_child(lambda: holds_in_child(lambda: ranks.share("key") is None))
    assert ranks.share("key") is not None


def test_a_forked_process_that_joins_a_job_is_a_rank_of_it() -> None:
    def joined() -> bool:
        dist.destroy_process_group()
        start()
        return job_store.is_rank() and ranks.share("key") is not None

    assert ranks.share("key") is not None
    assert holds_in_child(joined)


def test_a_share_that_a_forked_process_inherits_asks_nobody() -> None:
    store = Counting()
    share = share_of(store)
    before = store.asked

    def asked_nobody() -> bool:
        share.has_none()
        share.offer(b"entry")
        share.let_others_go_on()
        share.switch(b"entry", 1, 2)
        nothing = (share.receive(1, "Net"), share.given(), share.held_elsewhere())
        share.tell_of_other_keys("Net", "key", [])
        return nothing == (None, None, None) and share.followed(3, 1, "Net") == 3 and store.asked == before

    assert holds_in_child(asked_nobody)
    assert not share.receive(1, "Net")
    assert store.asked > before


def switch_of(kind: type[Switch], share: ranks.Share) -> Switch:
    if kind is Following:
        return Following(share, 60, "Net")
    leading, read = Leading(share), os.pipe()
    leading.wait_for(Helper.start(lambda: os.read(read[0], 1)), True)
    return leading


@pytest.mark.parametrize("kind", [Following, Leading])
def test_calls_of_a_forked_process_wait_for_no_helper(kind: type[Switch]) -> None:
    store = Counting()
    switch = switch_of(kind, share_of(store))
    assert holds_in_child(lambda: (before := store.asked) >= 0 and not switch.check() and store.asked == before)


def test_a_forked_process_forgets_helpers_and_agreements() -> None:
    background = Background()
    background._switches["led"] = Leading(share_of(Counting()))
    background._switches["followed"] = Following(share_of(Counting()), 60, "Net")
    background._helpers["made here"] = Helper.start(lambda: b"")
    keys = ("led", "followed", "made here")
    assert holds_in_child(lambda: not any(map(background.began, keys)))
    assert all(map(background.began, keys))
