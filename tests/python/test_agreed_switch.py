"""A rank that waits for another one's helper acts by itself once its process group is gone, and so does a forked child."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch.distributed
from rekindle.lookup.agreed_switch import Following, Leading
from rekindle.lookup.background import Background
from rekindle.lookup.ranks import Share


@pytest.fixture
def group() -> Iterator[torch.distributed.Store]:
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=store)
    store.add("rekindle/asked", 1)  # by the rank that leads
    yield store
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


def test_a_rank_acts_by_itself_once_its_group_is_gone(group: torch.distributed.Store) -> None:
    switch = Following(Share(group, "rekindle/", 2), 60, "Net")
    assert switch.check()
    torch.distributed.destroy_process_group()
    assert not switch.check()
    assert switch.entry() is None


def test_a_forked_child_waits_for_no_other_rank_and_tells_none(group: torch.distributed.Store) -> None:
    switch = Following(Share(group, "rekindle/", 2), 60, "Net")
    assert switch.check()
    asked: list[int] = []
    switch._agreed = lambda: asked.append(1)  # type: ignore[method-assign,func-returns-value]
    child = os.fork()
    if child == 0:
        os._exit(0 if not switch.check() and not asked else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert switch.check()


def test_a_rank_that_gets_no_further_helper_lets_the_others_go_on() -> None:
    store, background = torch.distributed.HashStore(), Background()
    torch.distributed.init_process_group("gloo", rank=0, world_size=1, store=store)
    try:
        share = Share(store, "rekindle/", 2)
        share.defer()
        background._switches["key"] = Leading(share)
        background.give_up("key")
        assert store.get("rekindle/switch") == b"open"
        assert not background.leads("key")
        background.give_up("key")
    finally:
        torch.distributed.destroy_process_group()
