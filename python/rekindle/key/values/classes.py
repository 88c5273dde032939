"""Digests a class: the code and the plain attributes of every Python class in its MRO.

For example, with `class Derived(Base)` in the user's module `app`, whose methods name no other class, the digest covers:

    app.Derived <digest of its body>
    app.Base <digest of its body>
    builtins.object                    # a builtin: its name alone
"""

from __future__ import annotations

import _abc
import dataclasses
import operator
import threading
import types
from collections.abc import Set
from typing import Any

from rekindle.key.code.binaries import build_of
from rekindle.key.values.cells import ITEMS, Cells
from rekindle.key.values.ingredients import note
from rekindle.key.values.walker import OF_IMPORT, Walker, label, resolved, steps
from rekindle.process.digest import digest_leaves, digest_parts
from rekindle.process.origin import is_covered_class, is_heap_class, is_of_library
from rekindle.reasons import Bypass

# Entries of a class body that do not change what its methods do: texts, annotations, and caches that Python,
# autograd and pickle keep on the class. What reads one that is not the same in every process is refused; see left_out.py.
SKIPPED = frozenset(
    "__doc__ __annotations__ __annotate__ __annotate_func__ __annotations_cache__ __firstlineno__ __static_attributes__ "
    "__slotnames__ __protocol_attrs__ __non_callable_proto_members__".split()
)
_SKIPPED = SKIPPED | frozenset(
    "__module__ __qualname__ __dict__ __weakref__ __weakrefoffset__ _abc_impl _backward_cls __abstractmethods__ "
    "__dataclass_fields__ __dataclass_params__".split()
)
_FIELD = ("default", "default_factory", "init", "repr", "hash", "compare", "metadata", "kw_only", "type")

_FIELD_PARTS = Cells("object", operator.attrgetter(*_FIELD), None)


class _Pass(threading.local):
    """Holds what a pass of this thread has found so far."""

    def __init__(self) -> None:
        self.depth = 0  # of passes inside of each other
        self.cached: dict[int, tuple[type, str]] = {}  # (class, digest), by identity
        self.own_cached: dict[int, tuple[Any, str, Walker]] = {}  # (class or module, own digest, its walk), by identity
        self.owners: dict[int, tuple[type, list[Any]]] = {}  # (class, what its digest covers), by identity
        self.known: dict[int, tuple[str, object]] = {}  # (path, object), by identity
        self.members: dict[int, Any] = {}  # as of `members_met`


_pass = _Pass()


class one_pass:
    """Makes this thread compute class digests at most once, while it is entered; nothing may edit a class inside it.

    known: objects by identity, with the path that names them where a class refers to them, as the classes that parametrizations
        make for one module do
    """

    def __init__(self, known: dict[int, tuple[str, object]] | None = None) -> None:
        self._own_known = known or {}

    def __enter__(self) -> None:
        _pass.depth += 1
        _pass.known.update(self._own_known)

    def __exit__(self, *_: object) -> None:
        _pass.depth -= 1
        if _pass.depth == 0:
            _pass.cached.clear()
            _pass.own_cached.clear()
            _pass.owners.clear()
            _pass.known.clear()
            _pass.members.clear()
            resolved.clear()  # a class may hold the module that it was made for


def members_met() -> dict[int, Any]:
    """Returns what the pass has found on classes of libraries, by identity; a new dict if none is on. See library_members.py."""
    return _pass.members if _pass.depth else {}


def class_digest(cls: type) -> str:
    """Returns the digest of a class's MRO: names of builtin bases, code and attributes of the others.

    It goes on with the metaclasses if they are the user's, and with the user's classes and modules that all these refer to, and
    so on. Raises Bypass for what cannot be digested.
    """
    known = _pass.cached.get(id(cls))
    if known is None:
        digests = [(_name(owner), _own(owner)[0]) for owner in owners(cls)]
        digest = digest_parts((f"{name} {own}" if own else name).encode() for name, own in digests)
        note(digest, "", ((f" {name}", own) for name, own in digests))
        known = (cls, digest)
        if _pass.depth:
            _pass.cached[id(cls)] = known
    return known[1]


steps.class_digest = class_digest


def owners(cls: type) -> list[Any]:
    """Returns the classes and modules whose members the digest of a class covers, builtin classes among them."""
    known = _pass.owners.get(id(cls))
    if known is None:
        metaclasses = [base for base in type(cls).__mro__ if is_heap_class(base) and not is_covered_class(base)]
        known = (cls, [*cls.__mro__, *metaclasses, *sorted(referred(cls), key=_name)])
        if _pass.depth:
            _pass.owners[id(cls)] = known
    return known[1]


def _name(owner: Any) -> str:
    if isinstance(owner, type):
        called = "" if owner.__name__ == owner.__qualname__.rpartition(".")[2] else f" called {owner.__name__}"
        return f"{owner.__module__}.{owner.__qualname__}{called}{build_of(owner.__module__)}"
    return f"module {owner.__name__}"


def referred(cls: type) -> list[Any]:
    """Returns the user's classes and modules that the class leads to, without those of its own MRO."""
    own = {id(base) for base in cls.__mro__}
    seen: dict[int, Any] = {}
    todo: list[Any] = list(cls.__mro__)
    while todo:
        found = todo.pop()
        if id(found) in seen:
            continue
        seen[id(found)] = found
        if not isinstance(found, type) or (is_heap_class(found) and not is_covered_class(found)):
            for named in _own(found)[1]:
                if isinstance(named, type):
                    todo += (base for base in named.__mro__ if not is_covered_class(base))
                else:
                    todo.append(named)
    return [found for key, found in seen.items() if key not in own]


def _own(owner: Any) -> tuple[str | None, list[Any]]:
    """Digests what one class body or one module defines, None for a builtin; returns the classes and modules it names, too."""
    if isinstance(owner, type) and not is_heap_class(owner):
        return None, []
    known = _pass.own_cached.get(id(owner))
    if known is None:
        walker = walk_members(owner)
        known = (owner, digest_leaves(walker.leaves), walker)
        note(known[1], "", ((f".{path}", value) for path, value in walker.leaves))
        if _pass.depth:
            _pass.own_cached[id(owner)] = known
    return known[1], known[2].named


def walked_members(owner: Any) -> Walker:
    """Returns what `walk_members` does, from a digest of this pass where there was one. Nothing is to be added to it."""
    known = _pass.own_cached.get(id(owner))
    return walk_members(owner) if known is None else known[2]


def walk_members(owner: Any, but: Set[str] = frozenset()) -> Walker:
    """Returns a walk over what one class body or one module defines; raises Bypass for what cannot be digested.

    but: names of members that are left out
    """
    members = vars(owner)
    is_class = isinstance(owner, type)
    skipped = (_SKIPPED if is_class else OF_IMPORT) | but
    walker = Walker(deep_classes=False, known=_pass.known)
    try:
        for key in sorted(members):
            made = key.startswith("__pydantic_") or (key == "__signature__" and "__pydantic_fields__" in members)
            if key not in skipped and not made and not _is_of_an_export(members[key]):
                walker.walk(key, members[key])
        if is_class:
            _add_hidden(walker, owner)
        elif type(owner) is not types.ModuleType:
            walker.leaves.append(("__class__", walker.add_class(type(owner))))
    except Bypass as bypass:
        raise Bypass(bypass.reason, f"in {'class ' if is_class else ''}{_name(owner)}: {bypass.message}") from None
    return walker


_WATCHERS = (
    "rekindle.export.",
    "rekindle.functions.inlining",
    "rekindle.functions.interception",
    "rekindle.key.",
    "rekindle.recording.",
    "rekindle.sizes.",
)


def _is_of_an_export(member: Any) -> bool:
    """Tells whether it is what watches the calls of autograd Functions, or the reads of loggers, while an export runs."""
    function = member.__func__ if isinstance(member, classmethod) else member
    if type(function) is not types.FunctionType:
        return False
    return str(function.__module__).startswith(_WATCHERS)


def registered_with(base: type) -> list[str]:
    """Returns the names of the classes that are registered with an abstract class, sorted.

    Classes of libraries count for a class of the user's alone: with others of libraries they come and go with imports.
    """
    found = (reference() for reference in _abc._get_dump(base)[0])
    of_user = not is_of_library(base)
    return sorted(label(cls) for cls in found if cls is not None and (of_user or not is_of_library(cls)))


def _add_hidden(walker: Walker, base: type) -> None:
    """Adds what is registered with an abstract class, and what a dataclass keeps about its fields."""
    if "_abc_impl" in vars(base):
        walker.leaves.append(("_abc_registry", repr(registered_with(base))))
    parameters = vars(base).get("__dataclass_params__")
    if parameters is not None:
        walker.leaves.append(("__dataclass_params__", repr(parameters)))
    fields = vars(base).get("__dataclass_fields__")
    if type(fields) is not dict:
        return
    walker.watch(fields, ITEMS)
    for name, field in fields.items():
        walker.watch(field, _FIELD_PARTS)
        walker.leaves.append((f"__dataclass_fields__.{name}", str(getattr(field, "_field_type", None))))
        for part in _FIELD:
            item = getattr(field, part, None)
            if item is dataclasses.MISSING or (part == "metadata" and not item):
                continue
            if part != "type" or isinstance(item, str | type):
                walker.walk(f"__dataclass_fields__.{name}.{part}", item)
