"""Keeps the notes of one recording: what was read, with its text at that time, and the observations that come of it."""

from __future__ import annotations

import sys
import types
from importlib.util import resolve_name
from typing import Any

from rekindle.key.code.code_objects import nested_code
from rekindle.key.code.reads import Reads
from rekindle.key.fingerprint import Fingerprint
from rekindle.key.values.cells import ARRAY
from rekindle.key.values.classes import one_pass
from rekindle.key.values.names import class_codes
from rekindle.key.values.walker import Walker, walks_kept
from rekindle.key.versions import distribution_version
from rekindle.reasons import Bypass, Reason
from rekindle.recording import cached_functions, imports, observations
from rekindle.recording.observations import Observation
from rekindle.recording.undo import Undo

Key = tuple[str, str, str]  # kind, module, name of an observation


class Notes:
    """Collects the notes of one recording; made where that begins.

    covered: identities of code that the notes, or what is given, stand for
    undo: keeps what is noted
    cached: functions that the forward may ask
    """

    def __init__(self, covered: set[int], undo: Undo | None = None, cached: cached_functions.Met | None = None) -> None:
        self.covered = covered
        self._undo = undo
        self.walks: list[Walker] = []  # over what was noted; a code object that is gone could share its identity with another
        self._modules_before = sys.modules.keys() - observations.LOADED_BY_FORWARDS
        self._texts: dict[Key, str | None] = {}  # at the time of the note
        self._from: set[tuple[str, str]] = set()  # (module, name) of from-imports
        self._searched: set[str] = set()  # modules
        self._taken: list[tuple[Reads, list[str], tuple[str, ...]]] = []  # as of `taken`
        self._whole: set[str] = set()  # modules of which anything may be read
        self._cached: cached_functions.Met = cached or {}
        self.is_incomplete = False  # whether something that ran cannot be noted

    @classmethod
    def beside(cls, fingerprint: Fingerprint, undo: Undo | None) -> Notes:
        """Returns notes of what the fingerprint of the call does not have; `undo`: as above."""
        covered: set[int] = set()
        for function in fingerprint.functions:
            covered.update(map(id, nested_code(function.__code__)))
        for one in fingerprint.classes:
            covered.update(map(id, class_codes(one)))
        notes = cls(covered, undo, cached_functions.met_by(fingerprint))
        if any(cells is ARRAY for _, cells in fingerprint.cells):
            notes.computes_with_arrays()
        return notes

    def add(self, key: Key) -> None:
        """Notes the present text of something, unless that was noted before; raises Bypass if it cannot be digested."""
        if key not in self._texts:
            walks: list[Walker] = []
            with one_pass(), cached_functions.noted_in(self._cached), walks_kept(walks):
                self._texts[key] = observations.present_text(*key)
            self._covers(walks)
            if any(one is ARRAY for walk in walks for _, one in walk.cells):
                self.computes_with_arrays()
            if self._undo is not None:
                for walk in walks:
                    self._undo.keep_walk(walk)
                if key[0] == "global":
                    self._undo.keep_name(*key[1:])

    def _covers(self, walks: list[Walker]) -> None:
        for walk in walks:
            self.walks.append(walk)
            for function in walk.functions:
                self.covered.update(map(id, nested_code(function.__code__)))
            for cls in walk.classes.values():
                self.covered.update(map(id, class_codes(cls)))

    def searched(self, module: str) -> None:
        """Notes a module that was imported or looked for."""
        self._searched.add(module)

    def named(self, module: str, name: str) -> None:
        """Notes a `from module import name` in a function."""
        self._from.add((module, name))

    def taken(self, reads: Reads, modules: list[str], names: tuple[str, ...]) -> None:
        """Notes code with these reads, which imports these modules and has these attribute names.

        modules: absolute names of `reads.imports`, in order
        """
        if reads.imports:
            self._taken.append((reads, modules, names))
            self._add_taken()

    def imported(self, name: str, package: str | None, whole: bool) -> None:
        """Notes a call of importlib's, whose result may be used in any way if it is the module itself.

        package: that the name is relative to, or None
        whole: whether the result is the module itself
        """
        name = resolve_name(name, package) if package else name
        self._searched.add(name)
        if whole:
            self._whole.add(name)

    def version_of(self, value: Any) -> None:
        """Notes the version of the installed package that a value belongs to, and for NumPy what it does about errors."""
        name = value.__name__ if type(value) is types.ModuleType else getattr(value, "__module__", None)
        root = name.partition(".")[0] if isinstance(name, str) else ""
        if root == "numpy":
            self.computes_with_arrays()
        if root and root not in sys.stdlib_module_names and root not in ("torch", "__main__"):
            if distribution_version(root) is not None:
                self.add(("version", root, ""))
            elif type(value) is types.BuiltinFunctionType:  # of an extension that is being worked on
                self.add(("binary", str(name), ""))

    def computes_with_arrays(self) -> None:
        """Notes that the forward may compute with NumPy, which then raises or warns as its user wants."""
        self.add(("query", "numpy", "geterr"))

    def unchanged(self) -> list[Observation] | None:
        """Returns what was noted so far and is so still; None if something that ran was not noted."""
        if self.is_incomplete:
            return None
        found: list[Observation] = [[*key, text] for key, text in self._texts.items() if observations.present_text(*key) == text]
        kinds = [("import", name) for name in sorted(self._searched)]
        kinds += [("file", name) for name in self._first_loaded()]
        return found + [[kind, name, "", observations.present_text(kind, name, "")] for kind, name in kinds]

    def observations(self) -> list[Observation]:
        """Returns all observations; raises Bypass if something changed since it was noted."""
        self._add_taken()
        for name in self._whole & sys.modules.keys():
            self.add(("module", name, ""))
        found: list[Observation] = []
        for key, before in self._texts.items():
            after = observations.present_text(*key)
            if after != before:
                raise Bypass(
                    Reason.STATE_MUTATED,
                    f"the forward changed {observations.title(*key)}: "
                    f"{before or 'absent'} -> {after or 'absent'}; keep state in buffers",
                )
            found.append([*key, after])
        for module, name in sorted(self._from):
            if module in sys.modules:  # not in a branch that was not taken
                found.append(["from", module, name, observations.present_text("from", module, name)])
        found += cached_functions.observations(self._cached)
        kinds = [("import", name) for name in sorted(self._searched)]
        kinds += [("file", name) for name in self._first_loaded()]
        return found + [[kind, name, "", observations.present_text(kind, name, "")] for kind, name in kinds]

    def _first_loaded(self) -> list[str]:
        """Lists modules in the order in which the forward has begun to load them."""
        named = {module for _, module, _ in self._texts} | {module for module, _ in self._from} | self._searched
        first = named - self._modules_before
        found = [name for name in list(sys.modules) if name in first]
        observations.LOADED_BY_FORWARDS.update(found)
        return found

    def _add_taken(self) -> None:
        for reads, modules, names in self._taken:
            for key in imports.reads_from(reads, modules, names):
                self.add(key)
