"""Serves the calls of a wrapped module, from guard to result. Example: "One call, followed through" in docs/architecture.md."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from rekindle import _native
from rekindle.calls.call_kind import MAX_ATTEMPTS, CallKind
from rekindle.calls.call_kinds import CallKinds
from rekindle.calls.failures import Failure, forbidden, why_no_graph, why_not_described
from rekindle.calls.finder import Finder
from rekindle.calls.memory_printer import MemoryPrinter
from rekindle.calls.subject import Subject
from rekindle.errors import PythonOpError, ran_out_of_memory
from rekindle.graphs.ready_graph import ReadyGraph
from rekindle.key.values.standard_values import type_only
from rekindle.key.values.walker import IMMUTABLE, handles
from rekindle.lookup.source import GraphSource, OnGraph
from rekindle.modules.partial_capture import Call, Part, Parts, allows_parts, run_eager
from rekindle.modules.status import Status
from rekindle.options import Options
from rekindle.process import process_state
from rekindle.process.cuda_graphs import is_capturing
from rekindle.process.exporting import exporting
from rekindle.process.random_states import RandomStates, random_states, set_random_states
from rekindle.process.torch_internals import tracing_state
from rekindle.reasons import Busy, Bypass, InBackground, Passing, Reason, SharedMemory, SizedByData, Waiting

if TYPE_CHECKING:
    from rekindle.lookup.explanation import Explanation

_CAPTURED = Bypass(Reason.MODE_STACK, "a CUDA graph is captured around the call; a session's memory is no part of it")


class Runtime:
    """Serves the calls of one wrapped module. Thread-safe: graphs are made under a lock, runs need none."""

    def __init__(self, module: nn.Module, options: Options, is_part: bool = False) -> None:
        self._module = module
        self._options = options
        self._forbids_eager = options.forbids_eager
        self._is_part = is_part  # whether the module around it runs in eager
        self._runtimes: dict[str, Runtime] = {}  # of the parts, by name
        self._parts: Parts | None = None  # made by the first eager call that may have them
        self._why_eager: Bypass | None = None  # of the last eager call
        self._kinds = CallKinds(is_part)  # what is known about its calls
        self._subject = Subject(module, options)
        self._lock = threading.RLock()  # held while a graph is made, or the parts are in place
        process_state.renewed_in_children(self)
        self._status = Status()
        self._finder = Finder(module, self._subject, self._kinds, self._status)
        self._source: GraphSource | None = None  # made at the first look-up
        # Called with (mode, ONNX bytes) of each graph that is exported or found; see NewEntry.mode of miss/pipeline.py.
        self.on_graph: OnGraph | None = None
        _native.set_log_level(options.log)
        if options.print_memory and not is_part:
            self.call = MemoryPrinter(module, self, options.print_memory)  # type: ignore[method-assign]

    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Returns the result of the module's forward, from a graph or eager; hooks of the module are left to the caller."""
        if exporting.active or exporting.repeating or torch.compiler.is_compiling():
            return run_eager(self._module, args, kwargs)
        if is_capturing():  # a replay would find other memory in an arena, and the same random numbers
            self._note(_CAPTURED)
            self._leave_to_eager(_CAPTURED)
            return run_eager(self._module, args, kwargs)
        arguments: list[torch.Tensor] = []
        kind = self._kinds.find(args, kwargs, arguments)
        if kind is None and tracing_state() is not None:
            return run_eager(self._module, args, kwargs)
        kind = kind or self._kind_of(args, kwargs, arguments)
        graph = kind.ready(arguments)
        if graph is None and not kind.is_refused:
            graph = self._prepare(kind, args, kwargs)
        if graph is None:
            return self._eager(kind, args, kwargs)
        if self._status.source == "eager":
            self._status.source = graph.source
        before = random_states() if graph.keeps_random_state else []
        failure: Failure | None = None
        of_call: Bypass | None = None
        try:
            return self._run(graph, arguments, before)
        except Bypass as bypass:  # an operator did otherwise than when it was exported, or inputs that are written share memory
            self._leave(kind, graph, bypass)
            of_call = bypass.forgotten()
        except PythonOpError:
            raise
        except Exception as error:
            failure = Failure.of(error)
        set_random_states(before)  # what the graph drew, eager draws again
        if failure is None:
            return self._eager(kind, args, kwargs, of_call)
        return self._eager_instead(kind, graph, failure, args, kwargs)

    @staticmethod
    def _run(graph: ReadyGraph, arguments: list[torch.Tensor], before: RandomStates) -> Any:
        """Runs a graph; once more, from the random states `before`, where idle arenas have taken the memory that it needs."""
        try:
            return graph.run(arguments)
        except Exception as error:
            if not ran_out_of_memory(error) or _native.release_idle_arenas() == 0:
                raise
        set_random_states(before)
        return graph.run(arguments)

    def _kind_of(self, args: tuple[Any, ...], kwargs: dict[str, Any], arguments: list[torch.Tensor]) -> CallKind:
        """Returns the kind of a call, a refused one if it cannot be described; adds the call's tensors to `arguments`."""
        try:
            key = self._kinds.key(args, kwargs, arguments)
            kind = self._kinds.get(key)
            return self._new_kind(key, args, kwargs) if kind is None else self._kinds.keep(kind, args, kwargs)
        except Exception as error:  # a container that holds itself, a hash that raises
            why = why_not_described(error)
        kind = CallKind(attempts=MAX_ATTEMPTS)
        self._refuse(kind, why)
        return kind

    def current_status(self) -> Status:
        """Returns a copy of the status with the sessions' figures, and those of the parts, added. Waits for nobody."""
        whole = self._status.with_sessions([graph.session.stats() for graph in self._kinds.graphs()])
        whole.kept_bytes = _native.kept_bytes()
        found = {name: (runtime, runtime.current_status()) for name, runtime in self._runtimes.copy().items()}
        if found:
            parts = {name: (status, runtime._as_part(status)) for name, (runtime, status) in found.items()}
            whole.add_parts(self._as_part(whole), parts)
        return whole

    def _as_part(self, status: Status) -> Part:
        return Part("", status.source, str(self._why_eager) if status.source == "eager" else None)

    def _new_kind(self, key: tuple[Any, ...], args: tuple[Any, ...], kwargs: dict[str, Any]) -> CallKind:
        kind, bypass = self._kinds.new(key, self._kinds.key(args, kwargs, [], self._subject.dynamic)[:2])
        if bypass is not None:
            self._note(bypass)
        return kind

    def _prepare(self, kind: CallKind, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ReadyGraph | None:
        """Finds or makes the graph for a call; on a bypass, remembers why and returns None."""
        if self._parts is not None and self._parts.in_use:
            return None  # another call has the parts in place: the module is not what its user made it
        try:
            with process_state.locked(self._lock):
                return self._prepare_alone(kind, args, kwargs)
        except Passing as passing:
            self._note(passing.forgotten())
            self._leave_to_eager(passing)
            return None

    def _prepare_alone(self, kind: CallKind, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ReadyGraph | None:
        try:
            graph = self._find_or_export(kind, args, kwargs)
            kind.refusal = None
            return graph
        except Waiting as bypass:
            kind.wait(bypass.forgotten())
            self._note(bypass)
            return None
        except (Passing, PythonOpError):
            raise
        except Exception as error:  # nothing that goes wrong here is an error of the call
            bypass = why_no_graph(error)
            if isinstance(bypass, Passing) and kind.attempts < MAX_ATTEMPTS:
                raise bypass from None
            self._refuse(kind, bypass)
            return None

    def _refuse(self, kind: CallKind, bypass: Bypass) -> None:
        self._kinds.refuse(kind, bypass, self._module)
        self._parts = None
        self._note(bypass)

    def _note(self, bypass: Bypass) -> None:
        """Counts a call that runs in eager, and logs the first with a reason."""
        found = (str(bypass.reason), bypass.message)
        if found not in self._status.bypass:
            self._status.bypass.append(found)
            is_wanted = self._is_part or isinstance(bypass, InBackground)
            log = _native.log_info if is_wanted else _native.log_warning
            log(f"{type(self._module).__name__} runs in eager: {bypass.text()}")
        if self._source is not None:
            self._source.store.record_bypass(str(bypass.reason))

    def _leave(self, kind: CallKind, graph: ReadyGraph, bypass: Bypass) -> None:
        """Drops a graph that is not right for a call; keeps it where only this call's data or memory is why."""
        if isinstance(bypass, SharedMemory):
            self._note(bypass.forgotten())
            return
        with contextlib.suppress(Busy), process_state.locked(self._lock):
            if isinstance(bypass, SizedByData) and bypass.function is not None:
                self._subject.sized_functions |= {bypass.function}
            elif graph.depends_on_data and kind.attempts < MAX_ATTEMPTS:
                self._kinds.leave_if_small(kind, graph)
                self._refuse(kind, bypass.forgotten())
                return
            self._kinds.drop(graph)
            kind.attempts = kind.attempts if isinstance(bypass, SizedByData) else MAX_ATTEMPTS
            self._refuse(kind, bypass.forgotten())

    def _eager_instead(
        self, kind: CallKind, graph: ReadyGraph, failure: Failure, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Returns or raises what eager does for a call whose graph failed; leaves a graph that fails again and again."""
        try:
            result = run_eager(self._module, args, kwargs)
        except Exception as error:
            failure.explain(error)
            raise
        bypass = failure.bypass()
        with contextlib.suppress(Busy), process_state.locked(self._lock):
            graph.failures += not isinstance(bypass, Passing)
            if graph.failures < MAX_ATTEMPTS:
                self._note(bypass)
            else:
                kind.leave(graph)
                self._refuse(kind, bypass)
        self._leave_to_eager(bypass)
        return result

    def _eager(self, kind: CallKind, args: tuple[Any, ...], kwargs: dict[str, Any], of_call: Bypass | None = None) -> Any:
        """Runs a call in eager, or its parts from graphs of their own; `of_call`: why, if it is not the refusal of its kind."""
        refusal = of_call or kind.refusal
        if refusal is None:  # see _prepare
            return run_eager(self._module, args, kwargs)
        self._leave_to_eager(refusal)
        if allows_parts(refusal.reason, kind.ran_in_eager) and self._lock.acquire(blocking=False):
            try:  # no other thread describes the module meanwhile
                if self._parts is None:
                    self._parts = Parts(self._module, self._serving)
                return self._parts.run(self._module, args, kwargs)
            finally:
                self._lock.release()
        result = run_eager(self._module, args, kwargs)
        kind.ran_in_eager = True
        return result

    def _leave_to_eager(self, why: Bypass) -> None:
        """Counts a call that runs in eager; raises FallbackError if none may."""
        if self._forbids_eager:
            raise forbidden(self._module, why) from why
        self._status.source, self._why_eager = "eager", why
        self._status.eager_calls += 1

    def _serving(self, name: str, module: nn.Module) -> Call:
        return self._part(name, module).call

    def _part(self, name: str, module: nn.Module) -> Runtime:
        known = self._runtimes.get(name)
        if known is None or known._module is not module:
            known = self._runtimes[name] = Runtime(module, self._options.of_part(), is_part=True)
        return known

    def serving_graph(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ReadyGraph | Bypass:
        """Returns the graph that would serve a call, found or made if need be, or why the call would run in eager."""
        if is_capturing():
            return _CAPTURED
        arguments: list[torch.Tensor] = []
        kind = self._kinds.find(args, kwargs, arguments) or self._kind_of(args, kwargs, arguments)
        graph = kind.ready(arguments)
        if graph is None and not kind.is_refused:
            graph = self._prepare(kind, args, kwargs)
        why = graph or kind.refusal or self._why_eager
        assert why is not None  # _prepare leaves one
        return why

    def run_refused(self, why: Bypass, args: tuple[Any, ...], kwargs: dict[str, Any], serving: Callable[..., Call]) -> None:
        """Runs a call in eager that is refused for `why`, its parts by what `serving(name, module, runtime)` returns."""
        if allows_parts(why.reason, True):
            with process_state.locked(self._lock):  # no other thread describes the module meanwhile
                parts = Parts(self._module, lambda name, part: serving(name, part, self._part(name, part)))
                parts.run(self._module, args, kwargs)

    def _find_or_export(self, kind: CallKind, args: tuple[Any, ...], kwargs: dict[str, Any]) -> ReadyGraph:
        if self._source is None:
            self._source = GraphSource(self._module, self._options, self._status, self.on_graph)
            self._status.cache_dir = self._source.store.directory
        return self._finder.find(self._source, kind, args, kwargs)

    def explain(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Explanation:
        """Says why `module(*args, **kwargs)` hits or misses; runs nothing of the module and changes nothing."""
        kind = self._kinds.get(self._kinds.key(args, kwargs, []))
        if kind is not None and kind.refusal is not None and kind.is_refused:
            return self._subject.explain_bypass(kind.refusal)
        return self._subject.explain(args, kwargs)

    def renew(self) -> None:
        """Frees the lock and the parts in a forked child, where those that had them are not."""
        if not self._lock._is_owned():  # type: ignore[attr-defined]
            self._lock = threading.RLock()
            if self._parts is not None:
                self._parts.remove()


# A wrapped module in the tree of another is known by its type: what its Runtime has cached changes no result.
handles(Runtime, cells=IMMUTABLE, attributes=False)(type_only)
