"""Checks that what an entry says can be true: its observations, and what of its contract only Python can tell.

An entry's content is not trusted. What passes here can be used without further care; what does not is no entry: a miss.
"""

from __future__ import annotations

from typing import Any

import torch

from rekindle import _native
from rekindle.export.request import Call
from rekindle.key.module_tree import is_attribute
from rekindle.lookup.entry import InvalidEntry, StoredEntry
from rekindle.lookup.refusal import Refusal
from rekindle.modules.module_tables import named_modules
from rekindle.results.call_device import OF_CALL
from rekindle.sizes.shapes import Shapes


def check_observations(observations: Any) -> None:
    """Raises InvalidEntry for what are no observations."""
    if type(observations) is not list or not all(map(_is_observation, observations)):
        raise InvalidEntry("they are no list of [kind, module, name, text]")
    try:
        Shapes.observed(observations)
    except IndexError as error:
        raise InvalidEntry("an observation of kind 'shape' is no list of dimensions") from error


def _is_observation(one: Any) -> bool:
    return (
        type(one) is list and len(one) == 4 and all(type(text) is str for text in one[:3]) and type(one[3]) in (str, type(None))
    )


def check_entry(entry: StoredEntry) -> None:
    """Raises InvalidEntry for an entry that was read and is none."""
    if Refusal.of(entry) is not None:
        check_observations(entry.observations)
        return
    if missing := {"exported", "joint", "contract"} - entry.sections.keys():
        raise InvalidEntry(f"it has no section {min(missing)}")
    check_observations(entry.observations)
    try:
        contract = entry.contract
    except _native.RekindleError as error:
        raise InvalidEntry(str(error)) from error
    for kind, name in contract.torch_names:
        if not _is_torchs(kind, name):
            raise InvalidEntry(f"the contract's structure has a {kind} {name[:80]!r}, which torch does not have")


def _is_torchs(kind: str, name: str) -> bool:
    if kind == "dtype":
        return isinstance(getattr(torch, name, None), torch.dtype)
    if name == OF_CALL:
        return True
    try:
        torch.device(name)
    except RuntimeError:
        return False
    return True


def check_fit(contract: _native.Contract, session: Any, call: Call) -> None:
    """Raises RekindleError, or InvalidEntry, where a contract is not about this graph and this call.

    session: the _native.Session of the graph
    """
    contract.check_fit(
        inputs=session.inputs,
        outputs=session.outputs,
        cotangents=len(session.cotangent_of),
        arguments=len(call.arguments),
        state=list(call.state),
    )
    modules = named_modules(call.module) if contract.attributes else {}
    for module, name in contract.attributes:
        if module not in modules or not is_attribute(name):
            raise InvalidEntry(
                f"the contract sets the attribute {name[:80]!r} of {module[:80]!r}, which the module does not have"
            )
