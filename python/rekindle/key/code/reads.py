"""Finds what a code object may read from outside, from its bytecode: chains of global names and attributes, and imports."""

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
_IMPORT_FROM = _OPS["IMPORT_FROM"]
_STORE_FAST = _OPS["STORE_FAST"]
_LOADS_LOCAL = {_OPS[name] for name in ("LOAD_FAST", "LOAD_FAST_CHECK", "LOAD_FAST_BORROW") if name in _OPS}
_TWO_LOCALS = {op for name, op in _OPS.items() if name.count("_FAST") == 2}  # since 3.12
_WRITES_GLOBAL = {_OPS["STORE_GLOBAL"], _OPS["DELETE_GLOBAL"]}
_STORES_ELSEWHERE = {_OPS["STORE_GLOBAL"], _OPS["STORE_NAME"], _OPS["STORE_DEREF"]}
_GLOBAL_SHIFT = 1  # the low bit asks for a NULL below the callable
_ATTR_SHIFT = 1 if sys.version_info >= (3, 12) else 0


@dataclass
class Reads:
    """Holds what one code object may read from outside.

    chains: a global name, read or written, and the attributes taken from it in place; a text that follows a chain, as in
        `hasattr(module, "name")`, counts as an attribute too
    imports: (name, level, names or None) of each import statement
    escaping: (index in `imports`, name or None) of what was imported and is used in another way than for its attributes
    """

    chains: list[tuple[str, ...]] = field(default_factory=list)
    imports: list[tuple[str, int, tuple[str, ...] | None]] = field(default_factory=list)
    escaping: set[tuple[int, str | None]] = field(default_factory=set)


def reads_of(code: CodeType) -> Reads:
    """Returns the reads of one code object; code nested in it is asked for separately."""
    scan = _Scan(code)
    for op, arg in instructions(code):
        scan.step(op, arg)
    return scan.reads


def instructions(code: CodeType) -> Iterator[tuple[int, int]]:
    """Yields (opcode, argument) of every instruction, without caches; extended arguments are put together."""
    extended = 0
    data = code.co_code
    for op, arg in zip(data[::2], data[1::2], strict=True):
        if op == _EXTENDED_ARG:
            extended = (extended | arg) << 8
            continue
        if op != _CACHE:
            yield op, extended | arg
        extended = 0


class _Scan:
    """Follows the instructions of one code object, in order, and collects its reads."""

    def __init__(self, code: CodeType) -> None:
        self.reads = Reads()
        self._names, self._consts = code.co_names, code.co_consts
        self._chain: list[str] = []
        self._seen: set[tuple[str, ...]] = set()
        self._pushed: list[Any] = []
        self._imported: tuple[int, str | None] | None = None  # on the stack
        self._locals: dict[int, tuple[int, str | None]] = {}
        self._loaded: tuple[int, str | None] | None = None  # by the instruction before

    def step(self, op: int, arg: int) -> None:
        """Takes in one instruction."""
        takes_attribute = op in (_LOAD_ATTR, _LOAD_METHOD)
        if self._loaded is not None and not takes_attribute:
            self.reads.escaping.add(self._loaded)
        self._loaded = None
        if takes_attribute and self._chain:
            self._chain.append(self._names[arg >> _ATTR_SHIFT if op == _LOAD_ATTR else arg])
            return
        self._end_chain(op, arg)
        if op == _LOAD_GLOBAL:
            self._chain = [self._names[arg >> _GLOBAL_SHIFT]]
        elif op == _LOAD_NAME:
            self._chain = [self._names[arg]]
        elif op in _WRITES_GLOBAL:
            self._add((self._names[arg],))
        elif op == _LOAD_CONST:
            self._pushed.append(self._consts[arg])
        elif op == _LOAD_SMALL_INT:
            self._pushed.append(arg)
        else:
            self._step_import(op, arg)

    def _end_chain(self, op: int, arg: int) -> None:
        if not self._chain:
            return
        self._add(tuple(self._chain))
        text = self._consts[arg] if op == _LOAD_CONST else None
        if type(text) is str and text.isidentifier():
            self._add((*self._chain, text))
        self._chain = []

    def _add(self, chain: tuple[str, ...]) -> None:
        if chain not in self._seen:
            self._seen.add(chain)
            self.reads.chains.append(chain)

    def _step_import(self, op: int, arg: int) -> None:
        imports = self.reads.imports
        if op == _IMPORT_NAME:
            level, names = self._pushed[-2:]
            imports.append((self._names[arg], level, names))
            self._imported = (len(imports) - 1, None)
        elif op == _IMPORT_FROM and imports:
            self._imported = (len(imports) - 1, self._names[arg] if imports[-1][2] else None)
        elif op == _STORE_FAST and self._imported is not None:
            self._locals[arg], self._imported = self._imported, None
        elif op in _LOADS_LOCAL:
            self._loaded = self._locals.get(arg)
        elif op in _TWO_LOCALS:  # which of the two goes where is not followed
            self.reads.escaping.update(self._locals.values())
            if self._imported is not None:
                self.reads.escaping.add(self._imported)
        elif op in _STORES_ELSEWHERE and self._imported is not None:
            self.reads.escaping.add(self._imported)
