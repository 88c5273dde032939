"""Tells of Python code that starts and of C functions that are called, on the current thread, but for what an import runs."""

from __future__ import annotations

import dis
import importlib._bootstrap as _bootstrap  # type: ignore[import-not-found]
import sys
import threading
from collections.abc import Callable
from types import BuiltinFunctionType, CodeType, FrameType, MethodDescriptorType
from typing import Any

from rekindle import _native
from rekindle.key.code.stack_depth import depths_at
from rekindle.process.origin import Origin, origin_of
from rekindle.process.process_state import changed
from rekindle.reasons import Bypass, Reason

StartHandler = Callable[[FrameType], bool]
Judge = Callable[[Any], int]  # of a function of C: the bits of those sides whose calls of it are to be told
Sides = Callable[[FrameType], int]  # the bit of the side that code that runs is on, 0 for none
CallHandler = Callable[[FrameType, Any], None]
OrderHandler = Callable[[Any, FrameType], None]
_LIST_EXTEND = dis.opmap["LIST_EXTEND"]
_OF_C = (BuiltinFunctionType, MethodDescriptorType)
_IMPORT: CodeType = _bootstrap._find_and_load.__code__  # runs around every import of a module that is not loaded
_ANY_SET = frozenset((object(), object()))  # stands for what may be one


class MonitoringHook:
    """Watches by sys.monitoring, from Python 3.12 on, which costs nothing once a place was seen.

    Before: _native.ProfileHook, which has the same methods and puts the one that was there aside.
    """

    def __init__(self, on_start: StartHandler, on_call: CallHandler, judge: Judge, side: Sides, on_list: OrderHandler) -> None:
        """Takes the handlers; `start` begins to call them.

        on_start: called with frames that start, until it returns true for their code object
        on_call: called before a C function is called of which `judge` says so, and for no other
        judge: gives the sides whose calls of a C function are to be told
        side: gives the side that running code is on
        on_list: called with what is unpacked into a list, from Python 3.13 on, where that uses no iterator of a set
        """
        self._on_start = on_start
        self._on_call = on_call
        self._judge = judge
        self._side = side
        self._on_list = on_list
        self._sides: dict[int, tuple[int, CodeType]] = {}
        self._unpacking: dict[int, tuple[CodeType, dict[int, int]]] = {}  # by identity: code, and where it does, how deep
        self._imports = 0  # that run, each within the one before

    def start(self) -> None:
        """Begins to watch; raises Bypass if every tool id is taken."""
        monitoring = sys.monitoring  # type: ignore[attr-defined]
        free = [tool for tool in range(6) if monitoring.get_tool(tool) is None]
        if not free:
            raise Bypass(Reason.EXPORT_FAILED, "all tool ids of sys.monitoring are taken; end one of the tools")
        self._tool = free[-1]
        self._changed = changed(self._end)
        self._changed.__enter__()
        self._thread = threading.get_ident()  # events are those of all threads
        events = monitoring.events
        monitoring.use_tool_id(self._tool, "rekindle")
        monitoring.register_callback(self._tool, events.PY_START, self._started)
        monitoring.register_callback(self._tool, events.CALL, self._called)
        monitoring.register_callback(self._tool, events.INSTRUCTION, self._unpacks)
        for event in (events.PY_RETURN, events.PY_UNWIND):
            monitoring.register_callback(self._tool, event, self._ended)
        monitoring.restart_events()
        monitoring.set_events(self._tool, events.PY_START | events.CALL)
        monitoring.set_local_events(self._tool, _IMPORT, events.PY_START | events.PY_RETURN)

    def stop(self) -> None:
        """Ends watching, and frees the tool id."""
        self._changed.__exit__(None, None, None)

    def _end(self) -> None:
        monitoring = sys.monitoring  # type: ignore[attr-defined]
        events = monitoring.events
        monitoring.set_events(self._tool, 0)
        for code, _ in self._unpacking.values():
            monitoring.set_local_events(self._tool, code, 0)
        self._unpacking.clear()
        monitoring.set_local_events(self._tool, _IMPORT, 0)
        for event in (events.PY_START, events.CALL, events.INSTRUCTION, events.PY_RETURN, events.PY_UNWIND):
            monitoring.register_callback(self._tool, event, None)  # a tool that is freed keeps what was registered
        monitoring.free_tool_id(self._tool)

    def _started(self, code: CodeType, offset: int) -> Any:
        if threading.get_ident() != self._thread:
            return None
        if code is _IMPORT:
            self._imports += 1
            if self._imports == 1:  # it may run millions of functions: nothing is told until it ends
                monitoring = sys.monitoring  # type: ignore[attr-defined]
                monitoring.set_events(self._tool, monitoring.events.PY_UNWIND)
            return None
        done = self._on_start(sys._getframe(1))
        if sys.version_info >= (3, 13) and origin_of(code.co_filename) in (Origin.USER, Origin.STDLIB):
            self._watch_unpacking(code)
        return sys.monitoring.DISABLE if done else None  # type: ignore[attr-defined]

    def _ended(self, code: CodeType, offset: int, result: Any) -> None:
        """Handles a function that returns or raises."""
        if code is not _IMPORT or self._imports == 0 or threading.get_ident() != self._thread:
            return
        self._imports -= 1
        if self._imports == 0:
            monitoring = sys.monitoring  # type: ignore[attr-defined]
            monitoring.set_events(self._tool, monitoring.events.PY_START | monitoring.events.CALL)

    def _called(self, code: CodeType, offset: int, function: Any, first: Any) -> Any:
        if threading.get_ident() != self._thread:
            return None
        frame = sys._getframe(1)
        side, _ = self._sides.get(id(code)) or self._sides.setdefault(id(code), (self._side(frame), code))
        if side and isinstance(function, _OF_C):
            if isinstance(function, MethodDescriptorType) and first is not sys.monitoring.MISSING:  # type: ignore[attr-defined]
                function = function.__get__(first, type(first))  # what the profile hook is given
            if self._judge(function) & side:
                self._on_call(frame, function)
        # Another function may be called here the next time.
        return None if side else sys.monitoring.DISABLE  # type: ignore[attr-defined]

    def _watch_unpacking(self, code: CodeType) -> None:
        """Has Python tell before the code extends a list that it builds, as `[*items]` and `f(1, *items)` do."""
        if id(code) in self._unpacking or _LIST_EXTEND not in code.co_code[::2]:
            return
        self._unpacking[id(code)] = (code, depths_at(code, _LIST_EXTEND))
        monitoring = sys.monitoring  # type: ignore[attr-defined]
        monitoring.set_local_events(self._tool, code, monitoring.events.INSTRUCTION)

    def _unpacks(self, code: CodeType, offset: int) -> Any:
        _, depths = self._unpacking.get(id(code), (code, {}))
        if offset not in depths:
            return sys.monitoring.DISABLE  # type: ignore[attr-defined]
        if threading.get_ident() == self._thread:
            frame = sys._getframe(1)
            items = _native.stack_item(frame, depths[offset] - 1) if hasattr(_native, "stack_item") else _ANY_SET
            self._on_list(items, frame)
        return None


def call_hook(on_start: StartHandler, on_call: CallHandler, judge: Judge, side: Sides, on_list: OrderHandler) -> Any:
    """Returns the hook that this Python has: its `start` and `stop` begin and end it. For the arguments, see MonitoringHook."""
    if sys.version_info >= (3, 12):
        return MonitoringHook(on_start, on_call, judge, side, on_list)
    return _native.ProfileHook(on_start, on_call, judge, side)
