"""Helper processes: what they report, and what they leave alone."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from rekindle.process import helper as helpers
from rekindle.process.helper import Helper, why_no_helper
from shared_memory_support import after_a_helper_that_writes


def ended(work: Callable[[], bytes]) -> Helper:
    helper, start = Helper.start(work), time.monotonic()
    while helper.check():
        assert time.monotonic() - start < 60
        time.sleep(0.005)
    return helper


def fail() -> bytes:
    raise RuntimeError("no report")


def kill() -> bytes:
    os.kill(os.getpid(), signal.SIGKILL)
    return b"late"


@pytest.mark.parametrize("size", [0, 1, 10_000_000])
def test_a_report_has_any_size(size: int) -> None:
    assert ended(lambda: b"x" * size).report() == (b"x" * size or None)


@pytest.mark.parametrize("work", [fail, kill])
def test_there_is_no_report_of_work_that_failed(work: Callable[[], bytes]) -> None:
    assert ended(work).report() is None


def test_a_helper_reports_though_somebody_else_waited_for_it() -> None:
    helper = Helper.start(lambda: b"done")
    assert os.waitpid(helper.number, 0)[0] == helper.number
    assert not helper.check()
    assert helper.report() == b"done"


def test_it_works_on_the_memory_of_the_start_and_changes_none() -> None:
    tensor = torch.zeros(1000)
    assert (after_a_helper_that_writes(tensor), tensor.sum().item()) == (b"0.0", 2000)


def test_it_differentiates_after_this_process_has() -> None:
    x = torch.randn(64, 64, requires_grad=True)
    (x @ x).square().sum().backward()

    def work() -> bytes:
        y = x.detach().clone().requires_grad_()
        (y @ y).square().sum().backward()
        return str(bool(torch.equal(y.grad, x.grad))).encode()

    assert ended(work).report() == b"True"


def test_it_has_no_file_terminal_or_handler_of_this_process(tmp_path: object) -> None:
    read, written = os.pipe()
    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:

        def work() -> bytes:
            print("to nowhere")
            places = {os.readlink(f"/proc/self/fd/{one}") for one in (0, 1, 2, read, written)}
            return repr((sorted(places), signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL, os.nice(0))).encode()

        assert ended(work).report() == b"(['/dev/null'], True, 19)"
    finally:
        signal.signal(signal.SIGUSR1, before)
        os.close(read)
        os.close(written)


def test_in_another_process_it_has_ended() -> None:
    helper = Helper.start(lambda: time.sleep(60) or b"")
    assert helper.check()
    child = os.fork()
    if child == 0:
        os._exit(1 if helper.check() else 0)
    assert os.waitpid(child, 0)[1] == 0
    os.kill(helper.number, signal.SIGKILL)
    while helper.check():
        time.sleep(0.005)


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="a number is all that this system has of a process")
def test_it_waits_for_no_other_process_that_has_its_number_by_now() -> None:
    helper = Helper.start(lambda: b"done")
    os.waitpid(helper.number, 0)  # as a handler of SIGCHLD may
    with subprocess.Popen(["sh", "-c", "exit 3"]) as other:
        os.waitid(os.P_PID, other.pid, os.WEXITED | os.WNOWAIT)
        helper.number = other.pid
        assert not helper.check()
        assert other.wait() == 3
    assert helper.report() == b"done"


def test_it_has_no_status_of_its_own_where_it_had_been_waited_for_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(number: int) -> int:
        raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))

    monkeypatch.setattr(os, "pidfd_open", gone, raising=False)
    helper = Helper.start(lambda: b"done")
    assert not helper.check()
    assert os.waitpid(helper.number, 0)[0] == helper.number
    assert helper.report() == b"done"


@pytest.mark.parametrize("call", ["pidfd_open", "waitid"])
def test_a_system_without_descriptors_of_processes_has_helpers(call: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> int:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))

    monkeypatch.setattr(os, call, refuse, raising=False)
    assert ended(lambda: b"done").report() == b"done"


def test_it_leaves_no_descriptor_open() -> None:
    before = os.listdir("/proc/self/fd")
    ended(lambda: b"done")
    assert os.listdir("/proc/self/fd") == before


def test_reading_a_report_leaves_the_position_alone_that_forked_processes_share() -> None:
    helper = ended(lambda: b"done")
    os.lseek(helper._file, 3, os.SEEK_SET)
    assert helper.report() == b"done"
    assert os.lseek(helper._file, 0, os.SEEK_CUR) == 3


def test_one_that_cannot_draw_random_numbers_ends_and_after_two_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    here, is_held = os.getpid(), [True]

    def wait() -> None:
        if os.getpid() != here and is_held[0]:  # as where a thread that is not in the helper has the lock
            signal.pause()

    monkeypatch.setattr(Helper, "_stuck", 0)
    monkeypatch.setattr(helpers, "_FIRST_LIMIT", 1)
    monkeypatch.setattr(helpers, "_wait_for_generator", wait)
    for is_held[0], often in [(True, False), (False, False), (True, False), (True, True)]:
        found = ended(lambda: b"done")
        assert (found.report(), found.was_stuck) == ((None, True) if is_held[0] else (b"done", False))
        assert Helper.is_often_stuck() == often
    assert "random numbers" in str(why_no_helper())


def test_it_draws_though_a_thread_draws_all_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    stop, numbers = threading.Event(), torch.empty(4_000_000)
    monkeypatch.setattr(Helper, "_stuck", 0)
    monkeypatch.setattr(helpers, "_FIRST_LIMIT", 1)

    def draw() -> None:
        while not stop.is_set():
            numbers.normal_()

    thread = threading.Thread(target=draw)
    thread.start()
    try:
        found = (ended(lambda: b"%d" % torch.randn(5).numel()).report() for _ in range(8))
        assert next(filter(None, found), None) == b"5"
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGALRM])
def test_one_that_was_killed_later_could_draw(number: signal.Signals) -> None:
    found = ended(lambda: os.kill(os.getpid(), number) or b"late")
    assert (found.report(), found.was_stuck) == (None, False)
