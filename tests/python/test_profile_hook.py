"""The native profile hook: what it tells, and what it leaves behind."""

from __future__ import annotations

import gc
import sys
import time
import weakref
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import rekindle  # noqa: F401  (loads torch's libraries first)
from rekindle import _native
from rekindle.recording.interpreter_events import call_hook


def now() -> float:
    return time.time()


def again() -> float:
    return time.monotonic()


def elsewhere() -> float:
    return time.time()


class Listener:
    """Takes down what a hook tells; never has enough of `again`."""

    def __init__(self) -> None:
        self.starts: list[str] = []
        self.calls: list[tuple[str, str]] = []
        self.judged: list[str] = []
        self.hook = _native.ProfileHook(self.on_start, self.on_call, self.judge, self.side)

    def judge(self, function: Any) -> int:
        self.judged.append(function.__name__)
        return int(function.__name__ == "time")

    def side(self, frame: FrameType) -> int:
        return int(frame.f_code.co_name != "elsewhere")

    def on_start(self, frame: FrameType) -> bool:
        self.starts.append(frame.f_code.co_name)
        return frame.f_code.co_name != "again"

    def on_call(self, frame: FrameType, function: Any) -> None:
        self.calls.append((frame.f_code.co_name, function.__name__))


def test_it_tells_of_code_until_that_is_enough_and_of_watched_functions_always() -> None:
    listener = Listener()
    listener.hook.start()
    now()
    now()
    again()
    again()
    elsewhere()
    listener.hook.stop()
    now()
    assert listener.starts == ["now", "again", "again", "elsewhere"]
    assert listener.calls == [("now", "time"), ("now", "time")]
    assert listener.judged.count("time") == listener.judged.count("monotonic") == 1


def test_it_restores_the_hook_that_was_there_and_may_be_put_aside_itself() -> None:
    def before(*_: Any) -> None:
        pass

    listener = Listener()
    outer = sys.getprofile()
    sys.setprofile(before)
    try:
        listener.hook.start()
        kept = sys.getprofile()
        sys.setprofile(None)
        now()
        sys.setprofile(kept)
        again()
        now()
        listener.hook.stop()
        restored = sys.getprofile()
    finally:
        sys.setprofile(outer)
    assert restored is before
    assert listener.starts == ["again", "now"]
    assert listener.calls == [("now", "time")]


def test_an_exception_of_a_callback_is_raised_where_the_code_starts() -> None:
    def fail(_: FrameType) -> bool:
        raise ValueError("not here")

    hook = _native.ProfileHook(fail, fail, lambda _: 0, lambda _: 0)
    raised = None
    hook.start()
    try:  # pytest.raises would start code of its own
        now()
    except ValueError as error:
        raised = error
    finally:
        hook.stop()
    assert str(raised) == "not here"


def test_a_stopped_hook_holds_nothing() -> None:
    listener = Listener()
    listener.hook.start()
    now()
    listener.hook.stop()
    gone = weakref.ref(listener)
    del listener
    gc.collect()
    assert gone() is None


def test_nothing_that_an_import_runs_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "loads_another.py").write_text("import fails_to_load_it\n")
    (tmp_path / "fails_to_load_it.py").write_text("def call(): pass\ncall()\nraise ValueError\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    listener = Listener()
    hook = call_hook(listener.on_start, listener.on_call, listener.judge, listener.side, lambda *_: None)  # of this Python
    hook.start()
    try:
        import loads_another  # type: ignore[import-not-found]  # noqa: F401
    except ValueError:
        now()
    hook.stop()
    assert [name for name in listener.starts if name in ("call", "now")] == ["now"]
    assert listener.calls == [("now", "time")]
