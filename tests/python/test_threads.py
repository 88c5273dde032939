"""Threads that export, run, ask and fork at once: what a process has once has one owner."""

from __future__ import annotations

import copy
import logging
import threading
import time
import types
from collections.abc import Callable
from typing import Any

import pytest
import rekindle
import threads as suite
import torch
from module_support import Twins, assert_same, mlp, rows
from rekindle.lookup import store
from thread_support import Held, child_of, in_thread
from torch import nn


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> Held:
    export = Held(torch.onnx.export)
    monkeypatch.setattr(torch.onnx, "export", export.export)
    return export


def test_modules_that_threads_export_at_once_all_run_from_graphs() -> None:
    names = list(suite.MODELS)[:4]
    expected = suite.alone(names)
    rekindle.cache.clear()
    before = suite._namespaces()
    assert suite.one_round(names, expected) == []
    assert suite._left(before) == []


def test_soundness_of_threads() -> None:
    assert suite.rounds(1, len(suite.MODELS)) == []


def test_what_an_export_replaces_is_not_seen_by_other_threads(held: Held) -> None:
    known = Twins(mlp())
    known.call(rows())
    lookups, asks = known.status.lookup_seconds, nn.functional.has_torch_function
    result = held.start(rekindle.Module(mlp(), rekindle.Options(cache="refresh")))
    assert nn.functional.has_torch_function is not asks  # the export is under way
    for step in range(3):
        known.call(rows(step))
    fresh = Twins(mlp())  # has to be found in the cache, under the key that it has when nobody exports
    rekindle.lookup.store.flush()
    fresh.call(rows())
    held.go.set()
    result()
    known.call(rows())
    assert nn.functional.has_torch_function is asks
    assert known.status.lookup_seconds == lookups and known.status.bypass == []
    assert fresh.status.source == "local" and fresh.status.bypass == []


def test_an_export_that_waits_for_a_thread_which_exports_does_not_wait_for_ever(held: Held) -> None:
    module = mlp()
    first = held.start(rekindle.Module(module))
    second = Twins(nn.Sequential(nn.Linear(4, 3), nn.ReLU()))
    second.call(rows())
    assert second.reasons() == ["busy"] and second.status.eager_calls == 1
    second.call(rows())  # it is known to wait
    held.go.set()
    assert_same(first(), module(rows()))
    second.call(rows())
    assert second.status.source == "export"


def test_a_second_thread_that_calls_the_module_under_export_is_not_stuck_either(held: Held) -> None:
    module = mlp()
    wrapped = rekindle.Module(module)
    first = held.start(wrapped)
    assert_same(in_thread(lambda: wrapped(rows(1, 7)))(), module(rows(1, 7)))
    held.go.set()
    assert_same(first(), module(rows()))


def test_status_answers_while_a_module_is_exported(held: Held) -> None:
    wrapped = rekindle.Module(mlp())
    first = held.start(wrapped)
    assert in_thread(lambda: rekindle.status(wrapped))().source == "none"
    held.go.set()
    first()


def call_in_child(twins: Twins) -> Callable[[], None]:
    def body() -> None:
        with torch.no_grad():
            assert_same(twins.wrapped(rows()), twins.eager(rows()))
        assert rekindle.status(twins.wrapped) is not None

    return body


def test_children_forked_while_threads_export_run_on() -> None:
    done = threading.Event()

    def export() -> None:
        count = 0
        while not done.is_set():
            count += 1
            rekindle.Module(nn.Sequential(nn.Linear(4, 4 + count % 7), nn.ReLU()), rekindle.Options(cache="refresh"))(rows())

    threads = [in_thread(export) for _ in range(2)]
    twins = Twins(mlp())
    try:
        assert [child_of(call_in_child(twins)) for _ in range(6)] == [0] * 6
    finally:
        done.set()
    for thread in threads:
        thread()


def test_a_child_of_a_fork_in_the_middle_of_an_export_has_torch_and_python_as_they_were(held: Held) -> None:
    asks, level = nn.functional.has_torch_function, logging.getLogger("torch.onnx").level
    wrapped = rekindle.Module(mlp(), rekindle.Options(wait_seconds=0))
    first = held.start(wrapped)
    assert nn.functional.has_torch_function is not asks
    twins = Twins(nn.Sequential(nn.Linear(4, 3), nn.ReLU()))

    def body() -> None:
        assert nn.functional.has_torch_function is asks and logging.getLogger("torch.onnx").level == level
        call_in_child(twins)()
        assert rekindle.status(twins.wrapped).source == "export" and rekindle.status(twins.wrapped).bypass == []
        assert_same(wrapped(rows()), mlp()(rows()))  # the lock of which the parent's thread has

    assert child_of(body) == 0
    held.go.set()
    first()
    assert nn.functional.has_torch_function is asks


def test_threads_that_call_one_module_get_eagers_results() -> None:
    twins = Twins(mlp())
    expected = [copy.deepcopy(twins.eager)(rows(step, 3 + step % 4)) for step in range(12)]
    barrier = threading.Barrier(4)

    def run(first: int) -> list[torch.Tensor]:
        barrier.wait(30)
        return [twins.wrapped(rows(step, 3 + step % 4)) for step in range(first, 12, 4)]

    threads = [in_thread(lambda first=first: run(first)) for first in range(4)]
    for first, thread in enumerate(threads):
        for step, result in zip(range(first, 12, 4), thread(), strict=True):
            assert_same(result, expected[step])
    assert twins.status.eager_calls == 0 and twins.status.exports == 1


def test_an_export_that_another_thread_may_have_disturbed_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    from rekindle.miss import pipeline

    export, go, tries = pipeline._entry, threading.Event(), []

    def disturbed(*args: Any) -> Any:
        tries.append(args)
        if len(tries) == 1:
            go.set()
            time.sleep(0.2)
        if len(tries) != 2:
            raise rekindle.reasons.Bypass(rekindle.reasons.Reason.VERIFICATION_FAILED, "other numbers")
        return export(*args)

    def work() -> int:
        go.wait(30)
        end = time.monotonic() + 0.1
        return sum(1 for _ in iter(lambda: time.monotonic() > end, True))

    monkeypatch.setattr(pipeline, "_entry", disturbed)
    other = in_thread(work)
    twins = Twins(mlp(), dynamic="static")  # with open sizes, it would be made for the call's sizes first
    twins.call(rows())
    other()
    assert len(tries) == 2 and twins.status.source == "export" and twins.status.bypass == []
    alone = Twins(nn.Linear(4, 2), dynamic="static")
    alone.call(rows())
    assert len(tries) == 3 and alone.reasons() == ["verification_failed"]


@pytest.mark.parametrize("name", [name for name in suite.MODELS if name != "buffers"])
def test_threads_that_share_a_module_get_eagers_results(name: str) -> None:
    twins = Twins(suite.MODELS[name]())
    calls = [rows(step, 3 + step % 3) for step in range(6)]
    with torch.no_grad():
        expected = [twins.eager(x) for x in calls]
    barrier = threading.Barrier(3)

    def run(order: list[int]) -> list[tuple[int, torch.Tensor]]:
        barrier.wait(30)
        with torch.no_grad():
            return [(i, twins.wrapped(calls[i])) for i in order]

    threads = [
        in_thread(lambda order=order: run(order)) for order in ([0, 1, 2, 3, 4, 5], [3, 0, 4, 1, 5, 2], [5, 4, 3, 2, 1, 0])
    ]
    for thread in threads:
        for i, result in thread():
            assert_same(result, expected[i])


def test_verify_does_not_wait_for_a_thread_that_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from rekindle.compare import compared_runs
    from rekindle.lookup import local_source

    take_turn, run = local_source.take_turn, compared_runs._run
    took, results = threading.Event(), []

    def take(*args: Any) -> Any:
        turn = take_turn(*args)
        took.set()
        return turn

    def then_another_exports(callee: Any, *args: Any) -> Any:
        if callee is model and not results:  # eager has run
            results.append(in_thread(lambda: rekindle.Module(mlp())(rows())))
            assert took.wait(30)
        return run(callee, *args)

    monkeypatch.setattr(local_source, "take_turn", take)
    monkeypatch.setattr(compared_runs, "_run", then_another_exports)
    model = rekindle.Module(mlp())
    found = in_thread(lambda: rekindle.verify(model, rows()))()
    assert found and found.source == "export"
    assert_same(results[0](), mlp()(rows()))


def test_verify_does_not_wait_for_the_first_call_of_another_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    from rekindle.compare import compared_runs
    from rekindle.miss import pipeline

    owned, run = pipeline.owned, compared_runs._run
    came, results = threading.Event(), []

    def come() -> Any:
        came.set()
        return owned()

    def then_another_calls(callee: Any, *args: Any) -> Any:
        if callee is model and not results:
            results.append(in_thread(lambda: model(rows())))
            assert came.wait(30)
        return run(callee, *args)

    monkeypatch.setattr(pipeline, "owned", come)
    monkeypatch.setattr(compared_runs, "_run", then_another_calls)
    model = rekindle.Module(mlp())
    assert in_thread(lambda: rekindle.verify(model, rows()))()
    assert_same(results[0](), mlp()(rows()))
    assert rekindle.status(model).source in ("export", "local")


class _SlowToTell(threading.Thread):
    """Lets other threads run while it is asked whether it lives."""

    def is_alive(self) -> bool:
        time.sleep(0.001)
        return super().is_alive()


def test_a_flush_waits_for_what_any_thread_has_submitted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "threading", types.SimpleNamespace(Thread=_SlowToTell))
    writer, written = store._Writer(), []

    def submit() -> None:
        for i in range(10):
            writer.submit(lambda i=i: (time.sleep(0.02), written.append(i)))

    threads = [threading.Thread(target=submit) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    writer.flush()
    assert len(written) == 40
