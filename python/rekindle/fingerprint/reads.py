"""What a code object may read from outside: chains of global names and attributes, and imports, from its
bytecode."""

from __future__ import annotations

import dis
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

_OPS = dis.opmap
_EXTENDED_ARG = _OPS["EXTENDED_ARG"]
_CACHE = _OPS.get("CACHE", -1)
_LOAD_GLOBAL = _OPS["LOAD_GLOBAL"]
_LOAD_NAME = _OPS["LOAD_NAME"]
_LOAD_ATTR = _OPS["LOAD_ATTR"]
_LOAD_METHOD = _OPS.get("LOAD_METHOD", -1)  # merged into LOAD_ATTR in 3.12
_LOAD_CONST = _OPS["LOAD_CONST"]
_LOAD_SMALL_INT = _OPS.get("LOAD_SMALL_INT", -1)
_IMPORT_NAME = _OPS["IMPORT_NAME"]
_GLOBAL_SHIFT = 1  # the low bit asks for a NULL below the callable
_ATTR_SHIFT = 1 if sys.version_info >= (3, 12) else 0


@dataclass
class Reads:
    """chains: global name and the attributes taken from it in place. imports: (name, level, names or
    None)."""

    chains: list[tuple[str, ...]] = field(default_factory=list)
    imports: list[tuple[str, int, tuple[str, ...] | None]] = field(default_factory=list)


def instructions(code: CodeType) -> Iterator[tuple[int, int]]:
    """(opcode, argument) of every instruction, without caches."""
    extended = 0
    data = code.co_code
    for op, arg in zip(data[::2], data[1::2], strict=True):
        if op == _EXTENDED_ARG:
            extended = (extended | arg) << 8
            continue
        if op != _CACHE:
            yield op, extended | arg
        extended = 0


def reads_of(code: CodeType) -> Reads:
    """The global reads of one code object; code nested in it is asked for separately."""
    reads = Reads()
    names, consts = code.co_names, code.co_consts
    chain: list[str] = []
    pushed: list[Any] = []
    seen: set[tuple[str, ...]] = set()
    for op, arg in instructions(code):
        if chain and op in (_LOAD_ATTR, _LOAD_METHOD):
            chain.append(names[arg >> _ATTR_SHIFT if op == _LOAD_ATTR else arg])
            continue
        if chain and tuple(chain) not in seen:
            seen.add(tuple(chain))
            reads.chains.append(tuple(chain))
        chain = []
        if op == _LOAD_GLOBAL:
            chain = [names[arg >> _GLOBAL_SHIFT]]
        elif op == _LOAD_NAME:
            chain = [names[arg]]
        elif op == _LOAD_CONST:
            pushed.append(consts[arg])
        elif op == _LOAD_SMALL_INT:
            pushed.append(arg)
        elif op == _IMPORT_NAME:
            level, fromlist = pushed[-2:]
            reads.imports.append((names[arg], level, fromlist))
    return reads
