"""Digests live code objects by what they do, not by where they are written.

Two code objects with equal digests run alike in equal environments. File name, line numbers and an unused docstring are left out,
so that moving a function or editing a comment keeps the digest.
"""

from __future__ import annotations

import dis
import struct
from collections.abc import Iterator
from types import CodeType

from rekindle.process.digest import digest_parts
from rekindle.process.world import order_mark
from rekindle.reasons import Bypass, Reason

# Keyed by identity; the strong reference keeps the identity from being reused. Code objects are immutable.
_digests: dict[int, tuple[CodeType, str]] = {}
_FIRST_CONST = tuple(bytes((op, 0)) for op in dis.hasconst if op < 256)


def code_digest(code: CodeType) -> str:
    """Returns the digest of a code object and of the code nested in it; raises Bypass for a constant that cannot be digested."""
    known = _digests.get(id(code))
    if known is None:
        known = (code, digest_parts(_parts(code)))
        _digests[id(code)] = known
    return known[1]


def digested_code() -> dict[str, CodeType]:
    """Returns every code object that was digested in this process, by digest."""
    return {digest: code for code, digest in list(_digests.values())}


def nested_code(code: CodeType) -> Iterator[CodeType]:
    """Yields the code object itself and every code object nested in its constants."""
    yield code
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from nested_code(const)


def _parts(code: CodeType) -> Iterator[bytes]:
    instructions = code.co_code
    yield b"%d %d %d %d" % (
        code.co_argcount,
        code.co_posonlyargcount,
        code.co_kwonlyargcount,
        code.co_flags,
    )
    yield instructions
    for names in (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars):
        yield "\0".join(names).encode()
    yield getattr(code, "co_exceptiontable", b"")
    consts = code.co_consts
    if consts and type(consts[0]) is str and not _loads_first_const(instructions):
        yield b"docstring"
        consts = consts[1:]
    for const in consts:
        yield _const(const)


def _loads_first_const(instructions: bytes) -> bool:
    """Tells whether any instruction may load constant 0; a false positive only keeps a docstring in the digest."""
    for pattern in _FIRST_CONST:
        at = instructions.find(pattern)
        while at != -1:
            if at % 2 == 0:
                return True
            at = instructions.find(pattern, at + 1)
    return False


def _const(value: object) -> bytes:
    kind = type(value)
    if kind is CodeType:
        return b"c" + code_digest(value).encode()  # type: ignore[arg-type]
    if kind is str:
        return b"s" + value.encode("utf-8", "surrogatepass")  # type: ignore[attr-defined]
    if value is None:
        return b"n"
    if value is Ellipsis:
        return b"."
    if kind is bool or kind is int:
        return f"{kind.__name__} {value:x}".encode()  # hexadecimal, which has no limit of digits
    if kind is float:
        return b"f" + struct.pack(">d", value)
    if kind is complex:
        return b"j" + struct.pack(">dd", value.real, value.imag)  # type: ignore[attr-defined]
    if kind is bytes:
        return b"y" + value  # type: ignore[operator]
    if kind is tuple:
        return b"t" + digest_parts(_const(item) for item in value).encode()  # type: ignore[attr-defined]
    if kind is frozenset:
        items = digest_parts(sorted(_const(item) for item in value))  # type: ignore[attr-defined]
        return b"z" + (items + order_mark(value)).encode()
    if kind is slice:  # a constant since 3.14
        return b"l" + _const((value.start, value.stop, value.step))  # type: ignore[attr-defined]
    raise Bypass(
        Reason.OPAQUE_VALUE,
        f"a code object holds a constant of type {kind.__name__}, which cannot be digested; "
        "do not edit constants of compiled code",
    )
