"""Has graphs made by helper processes, so that no call waits for an export: Options(start="background").

An example: the first call finds no entry. `begin` starts a helper, which exports and publishes, and raises InBackground: the call
runs in eager, and so do the next ones, which ask the helper only whether it is at work. Once it is not, `ended` has the entry, or
the Bypass that the export ended with.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NoReturn

from rekindle import _native
from rekindle.errors import PythonOpError, first_line, ran_out_of_memory
from rekindle.lookup.agreed_switch import Following, Leading
from rekindle.lookup.ranks import Share
from rekindle.modules.status import Status
from rekindle.process.helper import Helper, why_no_helper
from rekindle.process.process_state import owned, renewed_in_children
from rekindle.reasons import (
    Busy,
    Bypass,
    Disturbed,
    InBackground,
    OutOfMemory,
    ReadsAttribute,
    Reason,
    SetsAttributes,
    SizedByData,
    SmallByData,
)

_COUNTED = ("exports", "export_seconds", "build_seconds", "verify_seconds")
_TRIED_AGAIN = (Disturbed, SmallByData)  # the next call begins another helper
_KINDS = {kind.__name__: kind for kind in (Bypass, Busy, OutOfMemory, ReadsAttribute, SetsAttributes, SizedByData, *_TRIED_AGAIN)}


class Offer:
    """Takes the entry that an export makes, as the other ranks of a job would."""

    def __init__(self) -> None:
        self.packed = b""

    def offer(self, packed: bytes) -> None:
        """Keeps an entry as Store.pack gives it."""
        self.packed = packed

    def let_others_go_on(self) -> None:
        """Does nothing: nobody waits for a helper."""


@dataclass(frozen=True)
class Ended:
    """Holds what a helper has left."""

    packed: bytes  # the entry, as of Store.pack; empty without one
    counted: dict[str, float]  # of its status, by field
    error: Exception | None  # why there is no entry: a Bypass, or a PythonOpError for the user

    def count(self, status: Status) -> None:
        """Counts what the helper did in the status of the module."""
        for name, value in self.counted.items():
            setattr(status, name, getattr(status, name) + value)


class Background:
    """Remembers the helpers that make graphs of one module. Not thread-safe. One helper is at work at a time, in a process.

    Where several ranks train, it remembers what they agree on, too: the helper is of the rank that leads. A forked process, which
    can ask neither the helper nor those ranks, begins with none.
    """

    _at_work: Helper | None = None  # of any module

    def __init__(self) -> None:
        self._helpers: dict[str, Helper] = {}  # by prekey
        self._switches: dict[str, Leading | Following] = {}  # by prekey
        renewed_in_children(self)

    def renew(self) -> None:
        """Forgets, in a forked process, what is its parent's: see process_state.py."""
        self._helpers.clear()
        self._switches.clear()

    def began(self, prekey: str) -> bool:
        """Tells whether a helper of this process or of another rank is to make the graph for a key."""
        return prekey in self._helpers or prekey in self._switches

    def leads(self, prekey: str) -> bool:
        """Tells whether other ranks wait for the helper of this one."""
        return isinstance(self._switches.get(prekey), Leading)

    def give_up(self, prekey: str) -> None:
        """Tells other ranks, where they wait for a helper of this one that there will not be, to act by themselves."""
        if isinstance(switch := self._switches.get(prekey), Leading):
            switch.call_off()
            del self._switches[prekey]

    def switched(self, prekey: str) -> bytes | None:
        """Returns the entry that another rank's helper has made, once; None without one."""
        switch = self._switches.get(prekey)
        if not isinstance(switch, Following):
            return None
        del self._switches[prekey]
        return switch.entry()

    def follow(self, prekey: str, switch: Following) -> NoReturn:
        """Has calls wait for the helper of another rank; raises InBackground."""
        self._switches[prekey] = switch
        raise InBackground(switch, "another rank of the job makes its graph in the background")

    def ended(self, prekey: str) -> Ended | None:
        """Returns what the helper for a key has left, once; None without one. Raises InBackground while it is at work."""
        helper = self._helpers.get(prekey)
        if helper is None:
            return None
        if helper.check():
            raise InBackground(helper)
        del self._helpers[prekey]
        found = _ended(helper)
        switch = self._switches.get(prekey)
        if isinstance(switch, Leading) and not isinstance(found.error, _TRIED_AGAIN):
            switch.call_off()
            del self._switches[prekey]
        return found

    def begin(self, prekey: str, export: Callable[[Offer], Status], share: Share | None) -> NoReturn:
        """Starts a helper that runs `export`, or leaves that for when another is done; raises InBackground.

        share: of this rank, where it leads a job and has not begun before

        Raises Busy where another thread's export does not end, OSError where no process can be had.
        """
        with owned():
            working = Background._at_work
            if working is None or not working.check():
                working = Background._at_work = self._helpers[prekey] = Helper.start(lambda: _reported(export))
                _native.log_debug(f"process {working.number} makes a graph in the background")
        if share is not None:
            share.defer()
            self._switches[prekey] = Leading(share)
        if (switch := self._switches.get(prekey)) is None:
            raise InBackground(working)
        assert isinstance(switch, Leading)
        switch.wait_for(working, self._helpers.get(prekey) is working)
        raise InBackground(switch)


def _reported(export: Callable[[Offer], Status]) -> bytes:
    """Returns what is to be known of an export in the process that waits for it: a line of JSON, and the entry."""
    offer = Offer()
    try:
        status = export(offer)
        report: dict[str, Any] = {"counted": {name: getattr(status, name) for name in _COUNTED}}
    except Bypass as bypass:
        kind = type(bypass).__name__ if type(bypass).__name__ in _KINDS else "Bypass"
        report = {
            "kind": kind, "reason": str(bypass.reason), "message": bypass.message,
            "attribute": bypass.attribute, "name": getattr(bypass, "name", None),
            "paths": getattr(bypass, "paths", None),
        }  # fmt: skip
    except PythonOpError as error:
        report = {"kind": "PythonOpError", "message": str(error)}
    except Exception as error:
        kind = "OutOfMemory" if ran_out_of_memory(error) else "Bypass"
        message = f"{type(error).__name__}: {first_line(error)}"
        report = {"kind": kind, "reason": str(Reason.EXPORT_FAILED), "message": message, "attribute": None}
    return json.dumps(report).encode() + b"\n" + offer.packed


def _ended(helper: Helper) -> Ended:
    report = helper.report()
    if report is None:
        cause = "a thread drew random numbers when it was forked" if helper.was_stuck else "was it killed?"
        why = f"process {helper.number}, which was to make the graph in the background, ended without one: {cause}"
        return Ended(b"", {}, Disturbed(Reason.EXPORT_FAILED, why))
    head, _, packed = report.partition(b"\n")
    found = json.loads(head)
    return Ended(packed, found["counted"], None) if "counted" in found else Ended(b"", {}, _error(found))


def _error(found: dict[str, Any]) -> Exception:
    """Returns the error of an export as it was, without what led to it."""
    if found["kind"] == "PythonOpError":
        return PythonOpError(found["message"])
    kind = _KINDS[found["kind"]]
    bypass = kind.__new__(kind)
    Bypass.__init__(bypass, Reason(found["reason"]), found["message"])
    bypass.attribute = found["attribute"]
    named, listed = {"name": found.get("name")}, {"paths": found.get("paths")}
    further = {ReadsAttribute: named, SetsAttributes: listed, SizedByData: {"function": None}}
    vars(bypass).update(further.get(kind, {}))
    return bypass


def why_here(device: str) -> str | None:
    """Says why an export for tensors on a device of this type is made in this process; None where a helper may make it."""
    return f"a helper cannot use {device}" if device != "cpu" else why_no_helper()
