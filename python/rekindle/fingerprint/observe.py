"""What an export observed, and whether it still holds: the second half of a lookup.

A `Recorder` is active while the export runs the forward. It notes the Python code that ran, the globals, imports and
environment variables that this code reads, each with a text that stands for the value. `verify` compares the texts
with the present; it resolves names in loaded modules only and runs no user code.
"""

from __future__ import annotations

import inspect
import sys
import types
from typing import Any

from rekindle.fingerprint import Fingerprint, observations, world
from rekindle.fingerprint.classes import one_pass
from rekindle.fingerprint.code import nested_code
from rekindle.fingerprint.observations import Observation, verify
from rekindle.fingerprint.origin import Origin, origin_of
from rekindle.fingerprint.reads import reads_of
from rekindle.fingerprint.resolve import ABSENT, class_codes, find_owner
from rekindle.reasons import Bypass, Reason

__all__ = ["Observation", "Recorder", "verify"]

_TOOL_NAME = "rekindle"


class Recorder:
    """Context manager around an export; `observations` holds when it left without an exception.

    fingerprint: of the same call; code that it covers needs no observation of its own. Leaving raises Bypass if the
    recorded forward did what cannot be checked later, unless the body raised; `bypass` holds it in either case.
    Records the thread it was entered on.
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
        self._seen: set[int] = set()
        self._kept: list[types.CodeType] = []  # keeps the identities in _seen from being reused
        self._texts: dict[tuple[str, str, str], str | None] = {}
        self._imports: set[str] = set()

    def __enter__(self) -> Recorder:
        self._modules_before = frozenset(sys.modules)
        self._random = world.random_states()
        self._environment = world.EnvironmentReads(_read_is_ours)
        self._environment.__enter__()
        if sys.version_info >= (3, 12):
            self._start_monitoring()
        else:
            self._previous_profile = sys.getprofile()
            sys.setprofile(self._on_profile)
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        if sys.version_info >= (3, 12):
            self._stop_monitoring()
        else:
            sys.setprofile(self._previous_profile)
        self._environment.__exit__()
        if self.bypass is None and error is None:
            try:
                self._finish()
            except Bypass as bypass:
                self.bypass = bypass
        if self.bypass is not None and error is None:
            raise self.bypass

    def _on_profile(self, frame: types.FrameType, event: str, argument: Any) -> None:
        if event == "call":
            if id(frame.f_code) not in self._seen:
                self._on_first_call(frame)
        elif event == "c_call" and getattr(argument, "__name__", None) in world.WATCHED:
            self._on_watched(frame, argument)

    def _start_monitoring(self) -> None:
        monitoring = sys.monitoring  # type: ignore[attr-defined]
        for tool in range(6):
            if monitoring.get_tool(tool) is None:
                break
        else:
            raise Bypass(Reason.EXPORT_FAILED, "all ids of sys.monitoring are taken; end one of the tools that hold them")
        self._tool = tool
        monitoring.use_tool_id(tool, _TOOL_NAME)
        events = monitoring.events

        def on_start(code: types.CodeType, offset: int) -> Any:
            if id(code) not in self._seen:
                self._on_first_call(sys._getframe(1))
            return monitoring.DISABLE

        def on_call(code: types.CodeType, offset: int, function: Any, first: Any) -> Any:
            if getattr(function, "__name__", None) in world.WATCHED and not isinstance(function, types.FunctionType):
                self._on_watched(sys._getframe(1), function)
                return None
            return monitoring.DISABLE

        monitoring.register_callback(tool, events.PY_START, on_start)
        monitoring.register_callback(tool, events.CALL, on_call)
        monitoring.restart_events()
        monitoring.set_events(tool, events.PY_START | events.CALL)

    def _stop_monitoring(self) -> None:
        monitoring = sys.monitoring  # type: ignore[attr-defined]
        monitoring.set_events(self._tool, 0)
        monitoring.free_tool_id(self._tool)

    def _on_first_call(self, frame: types.FrameType) -> None:
        code = frame.f_code
        self._seen.add(id(code))
        self._kept.append(code)
        if self.bypass is not None:
            return
        origin = origin_of(code.co_filename)
        if origin is not Origin.USER:
            if code.co_name in ("get_rank", "get_world_size") and code.co_filename.endswith("distributed_c10d.py"):
                self._on_rank_read(frame)
            return
        try:
            self._record(frame, code)
        except Exception as error:  # raised where the recorder is left, not inside the user's forward
            self.bypass = error

    def _on_rank_read(self, frame: types.FrameType) -> None:
        self._seen.discard(id(frame.f_code))
        caller = frame.f_back
        if caller is not None and origin_of(caller.f_code.co_filename) is Origin.USER:
            self.bypass = self.bypass or Bypass(
                Reason.NONDETERMINISTIC,
                f"{_where(caller)} reads the rank or world size; read it in __init__ and keep it as an attribute",
            )

    def _on_watched(self, frame: types.FrameType, function: Any) -> None:
        if self.bypass is not None or not world.is_nondeterministic(function):
            return
        name = function.__name__
        caller: types.FrameType | None = frame
        direct = origin_of(frame.f_code.co_filename)
        if name in world.CLOCKS and direct is not Origin.USER:
            return  # time stamps of loggers and the like never reach a tensor
        while caller is not None and origin_of(caller.f_code.co_filename) is Origin.STDLIB:
            if caller.f_globals.get("__name__") in ("linecache", "tokenize", "logging", "warnings"):
                return
            caller = caller.f_back
        if caller is None or origin_of(caller.f_code.co_filename) is not Origin.USER:
            return
        what = "opens a file" if name in world.FILES else f"calls {name}(), which differs from run to run"
        self.bypass = Bypass(
            Reason.NONDETERMINISTIC,
            f"{_where(caller)} {what}; do it outside the forward and pass the result as an input or attribute",
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
                    "define it at the top level of a module, or keep it as an attribute of the module that calls it",
                )
            self._note(owner)
        self._record_reads(code, namespace)

    def _record_reads(self, code: types.CodeType, namespace: dict[str, Any]) -> None:
        reads = reads_of(code)
        module_name = namespace.get("__name__", "?")
        if reads.chains and vars(sys.modules.get(module_name, object)) is not namespace:
            raise Bypass(
                Reason.OPAQUE_VALUE,
                f"{code.co_qualname} reads globals of {module_name}, which is not a loaded module; import it as a module",
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
                "the forward drew from Python's or NumPy's global random generator; use torch's generators instead",
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


def _first_type(frame: types.FrameType, code: types.CodeType) -> type | None:
    if not code.co_argcount:
        return None
    first = frame.f_locals.get(code.co_varnames[0], ABSENT)
    return first if isinstance(first, type) else type(first)


def _is_user(frame: types.FrameType) -> bool:
    return origin_of(frame.f_code.co_filename) is Origin.USER


def _read_is_ours() -> bool:
    """Whether the environment is read by Rekindle itself: the frame above the patched method and the mapping's own."""
    frame: types.FrameType | None = sys._getframe(2)
    while frame is not None and origin_of(frame.f_code.co_filename) is Origin.STDLIB:
        frame = frame.f_back
    return frame is not None and origin_of(frame.f_code.co_filename) is Origin.REKINDLE


def _where(frame: types.FrameType) -> str:
    code = frame.f_code
    return f"{frame.f_globals.get('__name__', '?')}.{code.co_qualname}"
