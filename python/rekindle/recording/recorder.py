"""Records what an export observes; `verify` tells, as the second half of a lookup, whether it still holds.

A `Recorder` is active while the export runs the forward. It notes the Python code that ran, and the globals, imports and
environment variables that this code reads, each with a text that stands for the value: ["global", "app", "RATE", "0.1"] for
`RATE` in the module `app`. `verify` compares the texts with the present; it resolves names in loaded modules only, and runs no
user code but what modules do as they are imported.
"""

from __future__ import annotations

import contextlib
import inspect
import itertools
import logging
import sys
import types
import warnings
from typing import Any

from rekindle import _native
from rekindle.key.fingerprint import Fingerprint
from rekindle.key.values.classes import one_pass
from rekindle.process import world
from rekindle.process.origin import Origin, installed, origin_of_frame
from rekindle.process.process_state import changed
from rekindle.reasons import Bypass, Reason
from rekindle.recording import imports, observations, opaque_calls, pure_calls, queries, stream_writes
from rekindle.recording.asides import Asides
from rekindle.recording.code_reads import CodeReads
from rekindle.recording.copied_objects import IsCopied, may_be_copied, nothing, refuse_copied
from rekindle.recording.frames import apart, beyond, frames_from, is_user, place_of, read_is_no_forwards
from rekindle.recording.interpreter_events import call_hook
from rekindle.recording.library_code import LibraryCode, replaced_by
from rekindle.recording.logger_reads import LoggerReads
from rekindle.recording.notes import Notes
from rekindle.recording.observations import Observation, with_identity
from rekindle.recording.set_orders import SetOrders
from rekindle.recording.undo import Undo
from rekindle.recording.warnings_shown import as_their_user_has_them, filters_now
from rekindle.sizes.lengths import LENGTH

_WRITES = logging.Logger.callHandlers.__code__


class Recorder:
    """Records a forward that runs in its context, on its thread; `observations` holds when it left without an exception.

    Raises Bypass where the forward begins what cannot be checked later or would be missed; again at its end if it caught that.

    fingerprint: of the same call; code that it covers needs no observation of its own
    undo: is told of what the forward reads before it runs
    is_copied: tells which objects the forward has copies of; no other way may lead to these
    """

    def __init__(self, fingerprint: Fingerprint | None = None, undo: Undo | None = None, is_copied: IsCopied = nothing) -> None:
        self.observations: list[Observation] = []
        self.bypass: Exception | None = None  # what was raised, or is about to be
        self.refused_while: list[Observation] | None = None  # what a refused forward had read; None where that is not known
        self.is_copied = is_copied
        self._fingerprint = fingerprint
        self._ended = False
        self._ran: dict[int, types.CodeType] = {}  # of the user's, by identity
        self._notes = Notes(set(), undo) if fingerprint is None else Notes.beside(fingerprint, undo)
        self._library = LibraryCode()
        self._filters = filters_now()

    def __enter__(self) -> Recorder:
        self._outside = {id(frame): frame for frame in frames_from(sys._getframe(1))}
        self._asides = Asides(self._outside)
        self._random = world.interpreter_random_states()
        self._environment = world.EnvironmentReads(read_is_no_forwards)
        has_unread = self._fingerprint is not None and bool(self._fingerprint.unread)
        self._code = CodeReads(self._notes, self._notes.covered, self._environment, has_unread)
        self._probe = imports.Probe(self._on_search)
        orders = SetOrders(self._notes, self._asides)
        self._hook = call_hook(self._on_start, self._on_watched, opaque_calls.judge, opaque_calls.side_of, orders.on_list)
        with contextlib.ExitStack() as entered:
            entered.enter_context(self._environment)
            entered.enter_context(self._probe)
            entered.enter_context(LoggerReads(self._on_logger))
            entered.enter_context(stream_writes.written(self._on_watched))
            entered.enter_context(self._asides.watched())
            entered.enter_context(as_their_user_has_them(self._filters, self._on_filters))
            entered.enter_context(changed(_native.unwatch_sets))
            _native.watch_sets(orders.on_order)
            entered.enter_context(changed(lambda: _native.set_audit(None)))
            _native.set_audit(self._on_audit)
            self._entered = entered.pop_all()
        try:
            self._hook.start()
        except Bypass:
            self._entered.close()
            raise
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self._hook.stop()
        self._entered.close()
        self._outside.clear()
        del self._probe  # which holds this object: garbage for the collector would keep what was looked at
        if self.bypass is None and error is None:
            apart(self._finish, self._refuse)
        if self.bypass is not None or isinstance(error, Bypass):
            apart(self._keep_what_held, lambda _: None)  # a refusal of which not all can be told is not stored
        if self.bypass is not None and error is not self.bypass:
            raise self.bypass from error

    def _refuse(self, error: Exception) -> None:
        self.bypass = self.bypass or error

    def _keep_what_held(self) -> None:
        """Keeps what was read before the forward was refused, and is still so: other values might not lead to the refusal."""
        with one_pass():
            read = self._notes.unchanged()
            self.refused_while = None if read is None else read + self._of_the_process()

    def _of_the_process(self) -> list[Observation]:
        """Returns what the forward's libraries and code read of the process: settings, functions that differ, the environment."""
        read = self._library.settings()
        read += [[*key, observations.present_text(*key)] for key in self._library.keys(self._notes.covered)]
        return read + [["env", "", name, text] for name, text in self._environment.texts.items()]

    def _end_if_refused(self, frame: types.FrameType, function: Any = None) -> None:
        """Raises the bypass in the forward, once: what it has yet to do would be done again in eager. Does not if `function`, of
        C and about to be called, is the end of a `with`: what that puts back would stay changed."""
        if self.bypass is None or self._ended or getattr(function, "__name__", None) == "__exit__" or self._asides.has(frame):
            return
        inside = itertools.takewhile(lambda one: id(one) not in self._outside, frames_from(frame))
        if all(one.f_code.co_name != "__exit__" for one in inside):
            self._ended = True
            raise self.bypass

    def _refuse_question(self, frame: types.FrameType, what: str) -> None:
        """Refuses a question, but for what the graph calls at each run: it may ask what it likes."""
        if not world.called_back.active:
            remedy = "do it outside the forward and pass the result as an input or attribute"
            self._refuse(Bypass(Reason.NONDETERMINISTIC, f"{place_of(frame)} {what}; {remedy}"))

    def _on_start(self, frame: types.FrameType) -> bool:
        """Handles code that starts; returns whether it need not be seen again."""
        seen = self._on_code(frame)
        self._end_if_refused(frame)
        return seen

    def _on_code(self, frame: types.FrameType) -> bool:
        code = frame.f_code
        if self.bypass is not None:
            return True
        origin = origin_of_frame(frame)
        if origin is not Origin.USER:
            return self._on_library(frame, origin)
        self._ran[id(code)] = code
        if self._asides.has(frame):
            return False  # the forward may still call it
        if (question := queries.asked(code)) is not None:
            apart(lambda: self._notes.add(("query", *question)), self._refuse)
            self._asides.add(code)
        else:
            apart(lambda: self._record(frame), self._refuse)
        return True

    def _record(self, frame: types.FrameType) -> None:
        for key in replaced_by(frame):
            self._notes.add(key)
        self._code.record(frame)

    def _on_library(self, frame: types.FrameType, origin: Origin) -> bool:
        code, caller = frame.f_code, frame.f_back
        if opaque_calls.is_collective(code):
            if self._asides.has(frame):  # an import, maybe of torch's own, which only defines it
                return False
            self._on_collective(frame)
            return True
        if origin is Origin.REKINDLE or code is LENGTH:
            if (read := queries.read_by_ours(code)) is not None:
                apart(lambda: self._notes.add(("global", *read)), self._refuse)
            return True
        caller = caller.f_back if caller is not None and caller.f_code is LENGTH else caller
        if self._library.is_known(frame):
            return False
        if opaque_calls.writes_log(code):
            self._on_log(frame)
            return False
        question = queries.asked(code)
        imported = imports.searched(frame)
        is_opaque = origin is Origin.STDLIB and not pure_calls.is_pure_module(str(frame.f_globals.get("__name__")))
        if question is None and imported is None and not is_opaque and not queries.differs(code):
            # Code that runs aside is to be seen: the forward may call it yet.
            return not self._asides.has(frame) and apart(lambda: self._library.add(frame, origin), self._refuse) is True
        if caller is None or not is_user(caller) or self._asides.has(frame):
            return False  # the user's own call is to be seen
        if imported is not None:
            self._notes.imported(*imported)
        elif question is not None:
            self._notes.add(("query", *question))
        else:
            self._refuse_question(caller, f"calls {code.co_qualname}(), which differs from run to run or between processes")
        return False

    def _refuse_effect(self, frame: types.FrameType, what: str) -> None:
        """Refuses an effect, in what the graph calls at each run, too: the runs that try a graph would do it as well."""
        if is_user(frame):
            message = f"{place_of(frame)} {what}, which a graph would leave out; do it outside the forward"
            self._refuse(Bypass(Reason.SIDE_EFFECT, message))

    def _on_log(self, frame: types.FrameType) -> None:
        caller = beyond(frame, (Origin.STDLIB,), ("warnings",))
        if caller is None or self._asides.has(frame) or opaque_calls.runs_for_function(caller):
            return  # it is called back, or inlined at its user's wish
        if not installed(caller.f_code.co_filename):  # libraries log once
            self._refuse_effect(caller, "writes to a logger")

    def _on_logger(self, owner: logging.Filterer, frame: types.FrameType) -> None:
        """Handles a logger, or a handler, of whose state something is asked."""
        caller = beyond(frame, (Origin.STDLIB,))
        is_asked_anew = world.called_back.active  # by the graph, at each run
        if self.bypass is not None or caller is None or not is_user(caller) or self._asides.has(frame) or is_asked_anew:
            return
        if isinstance(owner, logging.Logger):
            apart(lambda: self._notes.add(("logger", "logging", owner.name)), self._refuse)
        elif is_user(frame) and all(asking.f_code is not _WRITES for asking in frames_from(frame)):
            self._refuse(Bypass(Reason.OPAQUE_VALUE, f"{place_of(frame)} reads the state of a {type(owner).__qualname__}"))

    def _on_collective(self, frame: types.FrameType) -> None:
        """Refuses a collective that no graph would run again. One of an autograd Function, the graph runs."""
        if opaque_calls.runs_for_function(frame):
            return
        asking = beyond(frame, (Origin.STDLIB, Origin.TORCH, Origin.LIBRARY))
        who = "the forward" if asking is None else place_of(asking)
        message = f"{who} runs a collective, which a graph would leave out; do it in an autograd Function, or outside the forward"
        self._refuse(Bypass(Reason.SIDE_EFFECT, message))

    def _on_watched(self, frame: types.FrameType, function: Any) -> None:
        self._on_function(frame, function)
        self._end_if_refused(frame, function)

    def _on_function(self, frame: types.FrameType, function: Any) -> None:
        if opaque_calls.is_collective_call(function):
            self._on_collective(frame)
        elif self.bypass is not None or self._asides.has(frame):
            return
        elif function is warnings.warn or function is warnings.warn_explicit:
            self._on_warning(frame)
        elif function is hash or (function is id and installed(frame.f_code.co_filename)):
            if is_user(frame):
                self._notes.add(("order", "sets", "texts" if function is hash else "objects"))
        else:
            self._on_opaque(frame, function.__name__, function)

    def _on_opaque(self, frame: types.FrameType, name: str, function: Any = None) -> None:
        """Handles a call of what is not on the list of pure functions."""
        caller = opaque_calls.caller_of(frame, name)
        if caller is None or not is_user(caller):
            return
        if (question := queries.behind(frame, caller)) is not None:
            self._notes.add(("query", *question))
            return
        what = opaque_calls.what_is_done(name, function)
        if name in opaque_calls.EFFECTS or (world.called_back.active and name not in opaque_calls.ASKS_ONLY):
            self._refuse_effect(caller, what)
        else:
            self._refuse_question(caller, what)

    def _on_warning(self, frame: types.FrameType) -> None:
        """Refuses a user's warning, given at each call; a library's is given where it would be shown: see torchscript.py."""
        asking = beyond(frame, (Origin.STDLIB,))
        if asking is not None and is_user(asking) and not installed(asking.f_code.co_filename):
            self._refuse_effect(asking, "warns")
        else:
            self._notes.add(("query", "warnings", "filters"))

    def _on_filters(self) -> None:
        message = "the forward changes the filters of warnings, which a graph would not; do it outside the forward"
        self._refuse(Bypass(Reason.SIDE_EFFECT, message))

    def _on_audit(self, event: str) -> None:
        """Handles what Python audits, as opening a file: what types and functions do that no event shows otherwise."""
        frame = sys._getframe(1)
        if self.bypass is None and not self._asides.has(frame):
            self._on_opaque(frame, event)
            self._end_if_refused(frame)

    def _on_search(self, name: str) -> None:
        """Handles a module that is looked for: for the forward, not for another module or for a library."""
        frame = beyond(sys._getframe(2), (Origin.STDLIB,))
        is_function = frame is not None and is_user(frame) and frame.f_code.co_flags & inspect.CO_OPTIMIZED
        if is_function and not self._asides.has(frame):
            self._notes.searched(name)

    def _finish(self) -> None:
        if world.interpreter_random_states() != self._random:
            message = "the forward drew from Python's or NumPy's global random generator; use torch's generators instead"
            raise Bypass(Reason.NONDETERMINISTIC, message)
        walks, known = self._notes.walks, self._fingerprint
        with one_pass():
            read = self._notes.observations() + self._of_the_process()
            self.observations = with_identity(read, None if known is None else known.places)
            if known is not None and may_be_copied(walks, known.classes, self.is_copied):
                with one_pass(known.modules):
                    refuse_copied(walks, known.classes, self._ran, self.is_copied)
