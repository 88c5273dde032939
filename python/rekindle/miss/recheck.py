"""Compares a cached entry with what a fresh export of the same call gives; for `Options(cache="verify")`."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import zip_longest
from typing import TYPE_CHECKING

import torch

from rekindle import _native
from rekindle.export.request import ExportRequest
from rekindle.functions.binding import bind
from rekindle.miss.acceptance import verify
from rekindle.miss.sized import LeftOpen
from rekindle.process.collectives import answered_here
from rekindle.process.random_states import set_random_states
from rekindle.reasons import Bypass

if TYPE_CHECKING:
    from rekindle.miss.pipeline import NewEntry

_VALUE = re.compile(r'%(?:"(?:[^"\\]|\\.)*"|\w+)')  # a value in the text form of docs/ir.md


def disagreement(joint: bytes, contract: _native.Contract, made: NewEntry, request: ExportRequest) -> str | None:
    """Says what a cached graph and its contract are that a fresh export of the same call is not; None if they agree.

    Compares the graphs up to the names of values, the contracts, and what the graphs make of this call. Of an export at other
    sizes than the cached one only the last says something.
    """
    names, layouts = _native.Contract.FIELDS, made.contract.output_layouts
    if contract.shapes.sizes != made.contract.shapes.sizes:  # other symbols may be one, and trials end otherwise
        names, layouts = ("structure", "attributes", "used", "state", "writes"), contract.output_layouts
    elif (why := _other_graph(joint, made)) is not None:
        return why
    for name in names:
        cached, fresh = getattr(contract, name), getattr(made.contract, name)
        if cached != fresh:
            return f"the contract says {name}={cached!r}, that of a fresh export {fresh!r}"
    built, call = made.accepted.built, request.call
    states = built.traced.run.random_states[0]
    set_random_states(states)
    module = request.copies.around(built.traced.run.given).module
    session = _native.Session(made.sections["joint"], [], layouts)
    session.set_functions([bind(one, module) for one in built.sized.functions])
    with torch.set_grad_enabled(call.grad), answered_here():
        expected = session.forward(built.traced.inputs, call.grad)
    traced = replace(built.traced, result=replace(built.traced.result, outputs=expected))
    sized = replace(built.sized, left=LeftOpen.all_of(request.plan.shapes, call.arguments))
    try:
        with answered_here():
            verify(request, replace(built, traced=traced, sized=sized, joint=joint), (), again=False, once=False)
    except Bypass as bypass:
        return bypass.message
    finally:
        set_random_states(states)
    return None


def _other_graph(joint: bytes, made: NewEntry) -> str | None:
    try:
        cached = _canonical(joint)
    except _native.RekindleError as error:
        return str(error)
    for ours, fresh in zip_longest(cached, _canonical(made.sections["joint"]), fillvalue="nothing"):
        if ours != fresh:
            return f"the graph has {ours.strip()!r} where a fresh export has {fresh.strip()!r}"
    return None


def _canonical(joint: bytes) -> list[str]:
    """Returns the lines of a graph's text, its values renamed by their order."""
    names: dict[str, str] = {}
    text = _native.joint_text(joint)
    return _VALUE.sub(lambda found: names.setdefault(found.group(), f"%{len(names)}"), text).splitlines()
