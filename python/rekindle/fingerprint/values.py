"""Canonical leaves of Python values.

A `Walker` turns any value into ordered (path, leaf) pairs. Leaves are None, bool, int, float or text; text
of a real string is quoted, so it never reads like the text of something else. What cannot be digested raises
`Bypass` with the path of the value. Handlers for single types register themselves; see `find`.
"""

from __future__ import annotations

import contextlib
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

from rekindle.fingerprint.digest import Leaf, digest_leaves
from rekindle.fingerprint.parts import note
from rekindle.reasons import Bypass, Reason

Handler = Callable[["Walker", str, Any], None]

# What the import system and Python keep in a module's namespace.
OF_IMPORT = frozenset(
    "__name__ __doc__ __package__ __loader__ __spec__ __path__ __file__ __cached__ __builtins__ __annotations__ "
    "__warningregistry__ __version__".split()
)


class _Kept(threading.local):
    """What `walks_kept` fills in this thread."""

    walks: list[Walker] | None = None


_kept = _Kept()

handlers: dict[type, Handler] = {}  # by exact type
resolved: dict[type, Handler] = {}  # every type met so far
registered: dict[type, Callable[[Any], Any]] = {}  # by a user, for a type and its subclasses


def register_digest(kind: type, function: Callable[[Any], Any] | None) -> None:
    """Make values of `kind` and its subclasses digestible, wherever they are met.

    `function(value)` returns plain data, nested if need be, that stands for the value: whatever may change what a
    forward does has to change the data. It is called at every call of a module that holds such a value, so it
    should be fast. Its code is part of the key as well. None removes a registration.
    """
    if not isinstance(kind, type):
        raise TypeError(f"register_digest takes a type, not {kind!r}")
    if function is None:
        registered.pop(kind, None)
    else:
        registered[kind] = function
    resolved.clear()


def registered_walk(path: str, value: Any, function: Callable[[Any], Any]) -> Walker:
    """A walk over what a digest function says of a value; raises Bypass if it does not say."""
    try:
        data = function(value)
    except Exception as error:
        why = f", whose registered digest function raised {type(error).__name__}: {error}"
        raise opaque(path, value, why) from error
    if type(data) is type(value):
        raise opaque(path, value, ", whose registered digest function returned another such value")
    walker = Walker()
    walker.walk(f"{path}.digest", data)
    return walker


def still_registered(value: Any, digest: str, path: str = "") -> bool:
    """Whether the digest function of a value's type says of it what it said before."""
    function = next((registered[base] for base in type(value).__mro__ if base in registered), None)
    return function is not None and digest_leaves(registered_walk(path, value, function).leaves) == digest


def handles(*kinds: type) -> Callable[[Handler], Handler]:
    """Decorator of the handler for values of exactly these types."""

    def register(handler: Handler) -> Handler:
        handlers.update(dict.fromkeys(kinds, handler))
        return handler

    return register


def opaque(path: str, value: object, why: str = "") -> Bypass:
    """The bypass for a value that cannot be digested."""
    kind = type(value)
    return Bypass(
        Reason.OPAQUE_VALUE,
        f"{path} is a {kind.__module__}.{kind.__qualname__}{why or ', whose content cannot be digested'}; "
        "replace it by plain data, move it out of the forward's reach, "
        "or register its type with rekindle.register_digest",
    )


def label(value: Any) -> str:
    """Module and qualified name of a class or function."""
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", "?")
    return f"{getattr(value, '__module__', None) or '?'}.{name}"


def attribute_path(path: str, name: str) -> str:
    """Path of an attribute; a name that is no identifier is quoted, so that it never reads like two."""
    return f"{path}.{name}" if name.isidentifier() else f"{path}.{name!r}"


class Walker:
    """One walk over values that may share parts. Not reentrant; one use per digest.

    containers: every mutable dict, list or set met, in order, and every object whose class may be changed. reads: (object,
    function) where function(object) returns a tuple of other mutable parts, which identity tells apart. tensors: (path,
    tensor, array or bytearray) whose content was digested. functions, classes: what the walk covers by code.
    registered: (value, digest) of values of registered types. excluded: attributes to leave out, as of
    Options.exclude_attributes. deep_classes: follow class values into their code; inside the digest of a class
    other classes are named only, so that no digest depends on where the walk began, and collected in `named`.
    known: objects by identity that have a path already.
    """

    def __init__(self, deep_classes: bool = True, known: dict[int, tuple[str, Any]] | None = None) -> None:
        self.leaves: list[Leaf] = []
        self.containers: list[Any] = []
        self.reads: list[tuple[Any, Callable[[Any], tuple[Any, ...]]]] = []
        self.tensors: list[tuple[str, Any]] = []
        self.functions: list[types.FunctionType] = []
        self.registered: list[tuple[Any, str]] = []
        self.excluded: frozenset[str] = frozenset()
        self.classes: dict[int, type] = {}
        self.named: list[Any] = []
        self.deep_classes = deep_classes
        self.inside_module = False
        self._memo: dict[int, tuple[str, Any]] = dict(known) if known else {}

    def emit(self, path: str, value: str | int | float | bool | None) -> None:
        """Add one leaf."""
        self.leaves.append((path, value))

    def seen(self, path: str, value: object) -> bool:
        """Whether the object was met before; then a reference leaf is added. Remembers it otherwise."""
        known = self._memo.get(id(value))
        if known is not None:
            self.leaves.append((path, f"ref {known[0]}"))
            return True
        self._memo[id(value)] = (path, value)
        return False

    def take_parts(self, inner: Walker) -> None:
        """What another walk met becomes part of this one; its leaves do not."""
        self.functions += inner.functions
        self.classes |= inner.classes
        self.tensors += inner.tensors
        self.containers += inner.containers
        self.reads += inner.reads
        self.registered += inner.registered
        self.named += inner.named

    def left_out(self, path: str, cls: type, name: str) -> bool:
        """Whether the user excluded an attribute of the object of class `cls` at `path`."""
        return bool(self.excluded) and (
            f"{path}.{name}" in self.excluded
            or any(f"{base.__module__}.{base.__qualname__}.{name}" in self.excluded for base in cls.__mro__)
        )

    def walk(self, path: str, value: Any) -> None:
        """Add the leaves of a value."""
        kind = type(value)
        handler = resolved.get(kind)
        if handler is None:
            from rekindle.fingerprint.find import find_handler

            handler = resolved[kind] = find_handler(value)
        handler(self, path, value)

    def add_class(self, cls: type) -> str:
        """Label and digest of a class's code, MRO included; the class is noted as covered."""
        from rekindle.fingerprint.classes import class_digest

        if not self.deep_classes:
            self.named.append(cls)
            return label(cls)
        self.classes[id(cls)] = cls
        return f"{cls.__module__}.{cls.__qualname__} {class_digest(cls)}"


def value_text(path: str, value: Any) -> str:
    """One line that stands for a value: the value itself when short, else its kind and digest."""
    walker = Walker()
    walker.walk(path, value)
    if _kept.walks is not None:
        _kept.walks.append(walker)
    return leaves_text(walker.leaves)


@contextlib.contextmanager
def walks_kept(walks: list[Walker]) -> Iterator[None]:
    """Context in which this thread adds the walks behind `value_text` to `walks`: what they met is covered by the texts."""
    before, _kept.walks = _kept.walks, walks
    try:
        yield
    finally:
        _kept.walks = before


def leaves_text(leaves: list[Leaf]) -> str:
    """One line that stands for a list of leaves with a common root."""
    first = leaves[0][1]
    head = first if type(first) is str else repr(first)
    if len(leaves) == 1:
        return str(head)
    digest = digest_leaves(leaves)
    note(digest, leaves[0][0], leaves)
    return f"{head} {digest}"
