"""Notes what Python code that ran depends on: where it is found, and the globals and imports that it reads."""

from __future__ import annotations

import decimal
import inspect
import os
import sys
import types
from typing import Any

from rekindle.key.code.module_names import read_names
from rekindle.key.code.reads import reads_of
from rekindle.key.left_out import reads_all, refuse_unkept
from rekindle.key.values.names import ABSENT, find_owner, follow, takes_class
from rekindle.process import world
from rekindle.process.origin import installed
from rekindle.reasons import Bypass, ReadsAttribute, Reason
from rekindle.recording import observations
from rekindle.recording.frames import first_type, is_user, place_of
from rekindle.recording.notes import Notes


class CodeReads:
    """Notes what code depends on.

    noted: takes the notes
    covered: identities of code that is in the key already
    environment: is told where code may read any environment variable
    has_unread: whether there are attributes that no code may read
    """

    def __init__(self, noted: Notes, covered: set[int], environment: world.EnvironmentReads, has_unread: bool = False) -> None:
        self._notes, self._covered, self._environment, self._has_unread = noted, covered, environment, has_unread

    def record(self, frame: types.FrameType) -> None:
        """Notes the code that a frame of the user's runs, unless it is covered, and what the code reads.

        Raises Bypass for code that cannot be found again.
        """
        code, caller = frame.f_code, frame.f_back
        if _is_of_namedtuple(code, frame.f_globals):
            return
        if not code.co_flags & inspect.CO_OPTIMIZED and not (caller and code in caller.f_code.co_consts):
            self._notes.is_incomplete = True
            where = place_of(caller) if caller and is_user(caller) else place_of(frame)
            raise Bypass(Reason.OPAQUE_VALUE, f"{where} runs code made by exec, eval or compile; define a function instead")
        namespace = frame.f_globals
        if code.co_flags & inspect.CO_OPTIMIZED and id(code) not in self._covered:
            owner = find_owner(code, namespace, first_type(frame, code)) or _file_of(code, namespace)
            if owner is None:
                self._notes.is_incomplete = True
                raise Bypass(
                    Reason.OPAQUE_VALUE,
                    f"{place_of(frame)} ran, but no name in a loaded module leads to it; "
                    "define it at the top level of a module, or keep it as an attribute of its caller",
                )
            self._notes.add(owner)
        if self._has_unread and reads_all(code):
            raise ReadsAttribute("", f", at {place_of(frame)}")
        refuse_unkept(code, place_of(frame))
        self._add_reads(code, namespace)

    def _add_reads(self, code: types.CodeType, namespace: dict[str, Any]) -> None:
        reads = reads_of(code)
        module_name = namespace.get("__name__", "?")
        if reads.chains and not _is_read(namespace, module_name):
            raise Bypass(
                Reason.OPAQUE_VALUE,
                f"{code.co_qualname} reads globals of {module_name}, which is not a loaded module; import it as a module",
            )
        for chain in reads.chains:
            self._add_chain(code, module_name, namespace, chain)
        targets = [observations.absolute_name(name, level, namespace) for name, level, _ in reads.imports]
        for target, (_, _, names) in zip(targets, reads.imports, strict=True):
            self._notes.searched(target)
            for part in names or ():
                if part != "*":
                    self._notes.named(target, part)
        self._notes.taken(reads, targets, code.co_names)

    def _add_chain(self, code: types.CodeType, module: str, namespace: dict[str, Any], chain: tuple[str, ...]) -> None:
        if "__dict__" in chain:  # all of what it is taken from
            chain = chain[: chain.index("__dict__")]
        value, used = follow(namespace, chain)
        if value is sys.modules:
            raise Bypass(Reason.OPAQUE_VALUE, f"{module}.{code.co_qualname} reads sys.modules; import what it needs by name")
        if value is globals or value is locals or value is vars or value is dir:
            self._notes.add(("module", module, ""))
        if (value is os.environ or value is os.environb) and "_data" in chain[used:]:
            self._environment.note(world.ALL_VALUES)
        self._notes.add(("global", module, ".".join(chain[:used])))
        # Of what is made when it is asked for, as __dict__ is, or is given its class, the class counts as a whole.
        owner = follow(namespace, chain[: used - 1])[0] if used > 1 else None
        if used > 1 and (value is ABSENT or (isinstance(owner, type) and takes_class(value))):
            self._notes.add(("global", module, ".".join(chain[: used - 1])))
        if type(value) is decimal.Decimal or getattr(value, "__name__", None) == "decimal" or value is decimal.Decimal:
            self._notes.add(("query", "decimal", "context"))
        self._notes.version_of(value)


def _is_of_namedtuple(code: types.CodeType, namespace: dict[str, Any]) -> bool:
    """Tells whether collections.namedtuple has made the code: it reads tuple.__new__ only, and is what its caller's names say."""
    if not code.co_filename.startswith("<string>") or not str(namespace.get("__name__")).startswith("namedtuple_"):
        return False
    return namespace.keys() <= {"_tuple_new", "__builtins__", "__name__"}


def _is_read(namespace: dict[str, Any], module: str) -> bool:
    """Tells whether a dict is what the functions of a loaded module read."""
    loaded = sys.modules.get(module)
    return loaded is not None and (vars(loaded) is namespace or read_names(loaded) is namespace)


def _file_of(code: types.CodeType, namespace: dict[str, Any]) -> tuple[str, str, str] | None:
    """Returns the file observation of installed code that no name leads to, as of kernels that a library calls `_`."""
    module = sys.modules.get(str(namespace.get("__name__")))
    if module is None or read_names(module) is not namespace or namespace.get("__file__") != code.co_filename:
        return None
    return ("file", module.__name__, "") if installed(code.co_filename) else None
