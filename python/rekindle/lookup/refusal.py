"""Keeps in the cache why calls run in eager, so that the next process does not try in vain to export them.

An example: a forward branches on the value of a tensor. The first process that calls the module tries an export, which takes
0.4 s and ends with Bypass(value_specialized). That is stored like an entry, under the same key and with what the trace had read
by then, but with the one section "refusal" in the place of a graph. The next process finds it within milliseconds, and runs in
eager for the same reason. Once something that was read is another, or the code, or a version, the export is tried again.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rekindle.errors import ran_out_of_memory
from rekindle.lookup.entry import InvalidEntry
from rekindle.reasons import Bypass, ReadsAttribute, Reason, SetsAttributes

if TYPE_CHECKING:
    from rekindle.lookup.entry import StoredEntry

SECTION = "refusal"
# Reasons that code and values in the key, and what the trace has read, bring about again in every process. Of the others, some
# pass by themselves, some are seen before anything is traced, and some end when the user registers something, as messages say.
_LASTING = frozenset({
    Reason.VALUE_SPECIALIZED, Reason.NONDETERMINISTIC, Reason.STATE_MUTATED, Reason.SIDE_EFFECT, Reason.BUFFER_MUTATED,
    Reason.INPUT_MUTATED, Reason.UNSUPPORTED_OP, Reason.UNSUPPORTED_OUTPUT, Reason.GRAD_MODE_REGION, Reason.PYTHON_OP,
    Reason.VERIFICATION_FAILED, Reason.EXPORT_FAILED,
})  # fmt: skip
# Of these, those that the numbers of one call may bring about: a second process has to find the same.
_OF_NUMBERS = frozenset({Reason.VERIFICATION_FAILED, Reason.EXPORT_FAILED})


@dataclass(frozen=True)
class Refusal:
    """Says why the calls of an entry run in eager.

    tries: exports that had failed under one key, in one process, when it was stored: so many calls it holds for
    processes: how many found the same
    attribute: of a ReadsAttribute its name; None for another bypass
    paths: of SetsAttributes its paths; None for another bypass
    """

    reason: Reason
    message: str
    tries: int = 1
    processes: int = 1
    attribute: str | None = None
    paths: list[str] | None = None

    @property
    def holds(self) -> bool:
        """Tells whether it has been found often enough to be believed."""
        return self.reason not in _OF_NUMBERS or self.processes > 1

    def bypass(self) -> Bypass:
        """Returns the reason as a call that runs in eager is given it."""
        if self.paths is not None:
            return SetsAttributes(self.message, self.paths)
        return Bypass(self.reason, self.message) if self.attribute is None else ReadsAttribute(self.attribute)

    @staticmethod
    def made(bypass: Bypass, tries: int, processes: int) -> Refusal:
        """Returns what is to be kept of a bypass."""
        attribute = bypass.name if isinstance(bypass, ReadsAttribute) else None
        paths = bypass.paths if isinstance(bypass, SetsAttributes) else None
        return Refusal(bypass.reason, bypass.message, tries, processes, attribute, paths)

    def section(self) -> bytes:
        """Returns it as the bytes of the section."""
        return json.dumps(asdict(self), sort_keys=True).encode()

    @staticmethod
    def of(entry: StoredEntry) -> Refusal | None:
        """Returns the refusal that an entry is; None for a graph. Raises InvalidEntry for a section that is none."""
        section = entry.sections.get(SECTION)
        return None if section is None else Refusal.parse(section)

    @staticmethod
    def parse(section: bytes) -> Refusal:
        """Returns what a section says; raises InvalidEntry for what is none."""
        try:
            found = json.loads(section)
            counts = found["tries"], found["processes"]
            made = Refusal(Reason(found["reason"]), found["message"], *counts, found.get("attribute"), found.get("paths"))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise InvalidEntry(f"its section {SECTION} cannot be read: {error}") from error
        types = [type(value) for value in (made.message, made.tries, made.processes)]
        if types != [str, int, int] or not isinstance(made.attribute, str | None) or not _are_texts(made.paths):
            raise InvalidEntry(f"its section {SECTION} has values of other types")
        return made


def _are_texts(found: Any) -> bool:
    return found is None or (type(found) is list and all(type(one) is str for one in found))


def is_lasting(bypass: Bypass) -> bool:
    """Tells whether another process would be refused for the same, as far as its key and what was read are the same."""
    lasts = type(bypass) in (ReadsAttribute, SetsAttributes) or (type(bypass) is Bypass and bypass.reason in _LASTING)
    return lasts and bypass.observations is not None and not ran_out_of_memory(bypass)
