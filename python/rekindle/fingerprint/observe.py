"""What an export observed, and whether it still holds: the second half of a lookup.

A `Recorder` is active while the export runs the forward. It notes the Python code that ran, the globals,
imports and environment variables that this code reads, each with a text that stands for the value. `verify`
compares the texts with the present; it resolves names in loaded modules only and runs no user code.
"""

from __future__ import annotations

import gc
import inspect
import sys
import types
from collections.abc import Iterator
from typing import Any

import torch

from rekindle import single_flight
from rekindle.fingerprint import Fingerprint, observations, world
from rekindle.fingerprint.calls import CallHook
from rekindle.fingerprint.classes import one_pass
from rekindle.fingerprint.code import nested_code
from rekindle.fingerprint.observations import Observation, verify
from rekindle.fingerprint.origin import Origin, origin_of_frame
from rekindle.fingerprint.reads import reads_of
from rekindle.fingerprint.resolve import ABSENT, class_codes, codes_of, find_owner
from rekindle.reasons import Bypass, Reason

__all__ = ["Observation", "Recorder", "verify"]

_RANK_READS = ("get_rank", "get_world_size")


class Recorder:
    """Context manager around an export; `observations` holds when it left without an exception.

    fingerprint: of the same call; code that it covers needs no observation of its own. Leaving raises Bypass
    if the recorded forward did what cannot be checked later, unless the body raised; `bypass` holds it in
    either case. Records the thread it was entered on.
    """

    def __init__(self, fingerprint: Fingerprint | None = None) -> None:
        self.observations: list[Observation] = []
        self.bypass: Exception | None = None
        self._covered: set[int] = set()
        if fingerprint is not None:
            for function in fingerprint.functions:
                self._covered.update(map(id, nested_code(function.__code__)))
            for cls in fingerprint.classes:
                self._covered.update(map(id, class_codes(cls)))
        self._texts: dict[tuple[str, str, str], str | None] = {}
        self._imports: set[str] = set()

    def __enter__(self) -> Recorder:
        self._modules_before = frozenset(sys.modules)
        self._outside = {id(frame): frame for frame in _frames(sys._getframe(1))}
        self._collector_codes = {id(code) for callback in gc.callbacks for code in codes_of(callback)}
        self._random = world.random_states()
        self._environment = world.EnvironmentReads(_read_is_ours)
        self._hook = CallHook(self._on_start, self._on_watched, world.WATCHED)
        self._hook.start()
        self._environment.__enter__()
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._hook.stop()
        self._environment.__exit__()
        self._outside.clear()
        if self.bypass is None and error is None:
            try:
                self._finish()
            except Bypass as bypass:
                self.bypass = bypass
        if self.bypass is not None and error is None:
            raise self.bypass

    def _on_start(self, frame: types.FrameType) -> bool:
        """Handle code that starts; returns whether it need not be seen again."""
        code = frame.f_code
        if self.bypass is not None and not world.is_collective(code):
            return True
        origin = origin_of_frame(frame)
        if origin is not Origin.USER:
            if world.is_collective(code):
                single_flight.let_others_go_on()
                return True
            if code.co_name not in _RANK_READS or not code.co_filename.endswith("distributed_c10d.py"):
                return True
            self._on_rank_read(frame)
            return False
        if self._is_aside(frame):
            return False  # the forward may still call it
        state = torch._C._get_tracing_state()
        torch._C._set_tracing_state(None)  # the content of a tensor may be read here, which is not part of the forward
        try:
            with torch._C.DisableTorchFunction():
                self._record(frame, code)
        except Exception as error:  # raised where the recorder is left, not inside the user's forward
            self.bypass = error
        finally:
            torch._C._set_tracing_state(state)
        return True

    def _is_aside(self, frame: types.FrameType | None) -> bool:
        """Whether the frame runs for the garbage collector, which may start anywhere, or for an import."""
        while frame is not None and id(frame) not in self._outside:
            code = frame.f_code
            if code.co_name == "__del__" or id(code) in self._collector_codes:
                return True
            if code.co_filename.startswith("<frozen importlib"):
                return True  # a module loaded by the forward is observed by its file
            frame = frame.f_back
        return False

    def _on_rank_read(self, frame: types.FrameType) -> None:
        caller = frame.f_back
        if caller is not None and _is_user(caller):
            self.bypass = Bypass(
                Reason.NONDETERMINISTIC,
                f"{_where(caller)} reads the rank or world size; "
                "read it in __init__ and keep it as an attribute",
            )

    def _on_watched(self, frame: types.FrameType, function: Any) -> None:
        if world.is_collective_call(function):
            single_flight.let_others_go_on()
            return
        if self.bypass is not None or not world.is_nondeterministic(function) or self._is_aside(frame):
            return
        name = function.__name__
        caller: types.FrameType | None = frame
        direct = origin_of_frame(frame)
        if name in world.CLOCKS and direct is not Origin.USER:
            return  # time stamps of loggers and the like never reach a tensor
        while caller is not None and origin_of_frame(caller) is Origin.STDLIB:
            if caller.f_globals.get("__name__") in ("linecache", "tokenize", "logging", "warnings"):
                return
            caller = caller.f_back
        if caller is None or origin_of_frame(caller) is not Origin.USER:
            return
        what = "opens a file" if name in world.FILES else f"calls {name}(), which differs from run to run"
        self.bypass = Bypass(
            Reason.NONDETERMINISTIC,
            f"{_where(caller)} {what}; "
            "do it outside the forward and pass the result as an input or attribute",
        )

    def _record(self, frame: types.FrameType, code: types.CodeType) -> None:
        if not code.co_flags & inspect.CO_OPTIMIZED:  # the body of a module or class
            if code.co_filename.startswith("<") and frame.f_back and _is_user(frame.f_back):
                raise Bypass(
                    Reason.OPAQUE_VALUE,
                    f"{_where(frame.f_back)} runs code made by exec or eval; define a function instead",
                )
            return
        namespace = frame.f_globals
        if id(code) not in self._covered:
            owner = find_owner(code, namespace, _first_type(frame, code))
            if owner is None:
                raise Bypass(
                    Reason.OPAQUE_VALUE,
                    f"{_where(frame)} ran, but no name in a loaded module leads to it; "
                    "define it at the top level of a module, or keep it as an attribute of its caller",
                )
            self._note(owner)
        self._record_reads(code, namespace)

    def _record_reads(self, code: types.CodeType, namespace: dict[str, Any]) -> None:
        reads = reads_of(code)
        module_name = namespace.get("__name__", "?")
        if code.co_filename.startswith("<string>") and module_name.startswith("namedtuple_"):
            return  # made by collections.namedtuple, whose namespace holds tuple.__new__ only
        if reads.chains and vars(sys.modules.get(module_name, object)) is not namespace:
            raise Bypass(
                Reason.OPAQUE_VALUE,
                f"{code.co_qualname} reads globals of {module_name}, which is not a loaded module; "
                "import it as a module",
            )
        for chain in reads.chains:
            self._note(("global", module_name, ".".join(observations.used_chain(namespace, chain))))
        for name, level, names in reads.imports:
            target = observations.absolute_name(name, level, namespace)
            self._imports.add(target)
            for part in names or ():
                if part != "*":
                    self._texts.setdefault(("from", target, part), None)

    def _note(self, key: tuple[str, str, str]) -> None:
        if key not in self._texts:
            with one_pass():
                self._texts[key] = observations.present_text(*key)

    def _finish(self) -> None:
        if world.random_states() != self._random:
            raise Bypass(
                Reason.NONDETERMINISTIC,
                "the forward drew from Python's or NumPy's global random generator; "
                "use torch's generators instead",
            )
        with one_pass():
            for (kind, module, name), before in self._texts.items():
                after = observations.present_text(kind, module, name)
                if kind != "from" and after != before:
                    raise Bypass(
                        Reason.STATE_MUTATED,
                        f"the forward changed {observations.title(kind, module, name)}: "
                        f"{before or 'absent'} -> {after or 'absent'}; keep state in buffers",
                    )
                if kind == "from" and module not in sys.modules:
                    continue  # in a branch that was not taken; whether it could be imported is noted below
                self.observations.append([kind, module, name, after])
        for target in sorted(self._imports):
            self.observations.append(["import", target, "", observations.present_text("import", target, "")])
        for name, text in self._environment.texts().items():
            self.observations.append(["env", "", name, text])
        for module in sorted({key[1] for key in self._texts} - self._modules_before):
            if module in sys.modules:
                self.observations.append(["file", module, "", observations.present_text("file", module, "")])


def _frames(frame: types.FrameType | None) -> Iterator[types.FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back


def _first_type(frame: types.FrameType, code: types.CodeType) -> type | None:
    if not code.co_argcount:
        return None
    first = frame.f_locals.get(code.co_varnames[0], ABSENT)
    return first if isinstance(first, type) else type(first)


def _is_user(frame: types.FrameType) -> bool:
    return origin_of_frame(frame) is Origin.USER


def _read_is_ours() -> bool:
    """Whether the environment is read by Rekindle itself: the frame above the patched method and the
    mapping's own."""
    frame: types.FrameType | None = sys._getframe(2)
    while frame is not None and origin_of_frame(frame) is Origin.STDLIB:
        frame = frame.f_back
    return frame is not None and origin_of_frame(frame) is Origin.REKINDLE


def _where(frame: types.FrameType) -> str:
    code = frame.f_code
    return f"{frame.f_globals.get('__name__', '?')}.{code.co_qualname}"
