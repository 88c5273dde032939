"""Notes what digests were made of while a miss is described, so that the next miss can say what changed.

A digest of leaves or of a class is noted as it is computed; code is taken apart by itself. No key depends on any of this: see
export_cache/formats/leaf_tree.h for the form in which it is kept.
"""

from __future__ import annotations

import dis
import re
import sys
import threading
from collections.abc import Iterable
from types import CodeType

from rekindle.key.code.code_objects import code_digest, digested_code
from rekindle.key.code.reads import instructions
from rekindle.process.digest import Leaf, digest128
from rekindle.process.origin import Origin, origin_of
from rekindle.process.world import is_secret

Parts = list[tuple[str, str]]

_LIST, _SEQUENCE = "\x1f", "\x1e"  # kListMark and kSequenceMark
_DIGEST = r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])"  # not compiled here: a hit takes nothing apart
_LIST_LIMIT, _ITEM_LIMIT, _SEQUENCE_LIMIT = 200, 80, 600
_OPAQUE_TEXT = r"(?=.*\d)(?=.*[A-Za-z])\S{16,}"  # a literal that may well be a secret

_thread = threading.local()  # noted: of the innermost `noting` of the thread


class noting:
    """Gives, when entered, a dict that gets the parts of all digests of leaves and classes that its thread computes in it."""

    def __enter__(self) -> dict[str, Parts]:
        self._outer = getattr(_thread, "noted", None)
        _thread.noted = {}
        return _thread.noted

    def __exit__(self, *_: object) -> None:
        _thread.noted = self._outer


def note(digest: str, root: str, leaves: Iterable[Leaf]) -> None:
    """Notes what a digest was made of, if the thread is in a `noting`.

    root: is cut from the paths of the leaves, which continue that of the whole
    """
    noted: dict[str, Parts] | None = getattr(_thread, "noted", None)
    if noted is not None and digest not in noted:
        noted[digest] = [(path[len(root) :], leaf_text(path, value)) for path, value in leaves]


def leaf_text(path: str, value: object) -> str:
    """Returns the text of a leaf; of a string whose name says that it is secret only a digest."""
    if type(value) is not str:
        return repr(value)
    if value[:1] in "'\"" and is_secret(re.split(r"[.:\[ ]", path.rstrip("]"))[-1]):
        return f"str[{len(value) - 2}] {digest128(value.encode())}"
    return value


def reachable_parts(leaves: Parts, noted: dict[str, Parts]) -> dict[str, Parts]:
    """Returns the parts of every digest that the texts of leaves lead to."""
    codes = digested_code()
    found: dict[str, Parts] = {}
    todo = [leaves]
    while todo:
        for _, text in todo.pop():
            for digest in re.findall(_DIGEST, text):
                if digest in found:
                    continue
                parts = noted.get(digest)
                if parts is None and digest in codes:
                    parts = code_parts(codes[digest])
                if parts:
                    found[digest] = parts
                    todo.append(parts)
    return found


def code_parts(code: CodeType) -> Parts:
    """Returns what a code object is made of, in a form from which it cannot be rebuilt; nothing for library code."""
    if origin_of(code.co_filename) not in (Origin.USER, Origin.REKINDLE):
        return []
    names: dict[str, list[str]] = {"global": [], "attribute": [], "constant": [], "operator": []}
    sequence = []
    for op, argument in instructions(code):
        kind, text = _operand(code, op, argument)
        if kind is not None and (kind == "operator" or text not in names[kind]):
            names[kind].append(text)
        place = 0 if kind not in (None, "operator") or op in _JUMPS else argument
        sequence.append(chr(0x400 + (op * 31 + place * 7) % 0x400))
    names["local"] = [*code.co_varnames, *code.co_cellvars, *code.co_freevars]
    parts = [(f" {kind}", _LIST + _LIST.join(_clipped(texts))) for kind, texts in names.items()]
    parts.append((" instructions", _SEQUENCE + "".join(sequence[:_SEQUENCE_LIMIT])))
    nested = [const for const in code.co_consts if type(const) is CodeType]
    for place, inner in enumerate(nested):
        twin = sum(other.co_name == inner.co_name for other in nested[:place])
        name = inner.co_name + (f"#{twin + 1}" if twin else "")
        parts.append((f".{name}", f"code {code_digest(inner)}"))
    return parts


def _clipped(texts: list[str]) -> list[str]:
    return [text if len(text) <= _ITEM_LIMIT else text[: _ITEM_LIMIT - 3] + "..." for text in texts[:_LIST_LIMIT]]


_JUMPS = frozenset([*dis.hasjrel, *dis.hasjabs])
_GLOBALS = frozenset(dis.opmap[name] for name in ("LOAD_GLOBAL", "LOAD_NAME", "STORE_GLOBAL") if name in dis.opmap)
_SHIFTS = {dis.opmap["LOAD_GLOBAL"]: 1}  # low bits of an argument that do not belong to the name
if sys.version_info >= (3, 12):
    _SHIFTS |= {dis.opmap["LOAD_ATTR"]: 1, dis.opmap["LOAD_SUPER_ATTR"]: 2}
_COMPARE_SHIFT = 5 if sys.version_info >= (3, 13) else 4 if sys.version_info >= (3, 12) else 0
_UNARY = {
    op: {"NEGATIVE": "unary -", "NOT": "not", "INVERT": "~"}.get(name[len("UNARY_") :], name)
    for name, op in dis.opmap.items()
    if name.startswith("UNARY_")
}
_BINARY, _COMPARE, _IS, _IN = (dis.opmap[name] for name in ("BINARY_OP", "COMPARE_OP", "IS_OP", "CONTAINS_OP"))


def _operand(code: CodeType, op: int, argument: int) -> tuple[str | None, str]:
    """Returns (kind, text) of what an instruction works with, or (None, "")."""
    if op in dis.hasconst:
        const = code.co_consts[argument]
        return (None, "") if type(const) is CodeType else ("constant", _constant(const))
    if op in dis.hasname:
        name = code.co_names[argument >> _SHIFTS.get(op, 0)]
        return ("global" if op in _GLOBALS else "attribute"), name
    if op == _BINARY:
        return "operator", str(dis._nb_ops[argument][1])  # type: ignore[attr-defined]
    if op == _COMPARE:
        return "operator", dis.cmp_op[argument >> _COMPARE_SHIFT]
    if op in (_IS, _IN):
        return "operator", ("not " if argument else "") + ("is" if op == _IS else "in")
    return ("operator", _UNARY[op]) if op in _UNARY else (None, "")


def _constant(value: object) -> str:
    if type(value) is frozenset:
        return f"frozenset({sorted(map(repr, value))})"
    text = repr(value)
    if type(value) in (str, bytes) and re.search(_OPAQUE_TEXT, text):
        return f"{type(value).__name__}[{len(value)}] {digest128(text.encode('utf-8', 'surrogatepass'))}"  # type: ignore[arg-type]
    return text
