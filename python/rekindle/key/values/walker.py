"""Turns any Python value into canonical leaves: ordered (path, leaf) pairs.

Leaves are None, bool, int, float or text; text of a real string is quoted, so it never reads like the text of something else.
What cannot be digested raises `Bypass` with the path of the value. The kinds of values register themselves, with what of them can
change; see `kinds.find_kind` for the types that nobody registered.

For example, `{"rates": rates, "again": rates, "name": "a"}` at the path `config`, with `rates = [0.1, 0.2]`, gives:

    config              dict[3]
    config['rates']     [0.1, 0.2]
    config['again']     ref config['rates']
    config['name']      'a'
"""

from __future__ import annotations

import contextlib
import threading
import types
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from rekindle.key.values.cells import OBJECT, Cells, own_dict
from rekindle.key.values.ingredients import note
from rekindle.key.values.tensors import CONTENT_LIMIT, DeviceNames
from rekindle.process.digest import Leaf, digest128, digest_leaves
from rekindle.reasons import Bypass, Reason

Handler = Callable[["Walker", str, Any], None]

# What the import system and Python keep in a module's namespace.
OF_IMPORT = frozenset(
    "__name__ __doc__ __package__ __loader__ __spec__ __path__ __file__ __cached__ __builtins__ __annotations__ "
    "__warningregistry__ __version__".split()
)


class _Kept(threading.local):
    """Holds what `walks_kept` fills in this thread."""

    walks: list[Walker] | None = None


_kept = _Kept()

IMMUTABLE: tuple[Cells, ...] = ()
_MOST_NESTED = 40  # calls inside of each other; what lies deeper is walked later
_LONGEST_PATH = 200


@dataclass(frozen=True, eq=False)
class Kind:
    """Describes all that is known of the values of one type; `exact` calls no method of a subclass."""

    leaves: Handler  # adds what a value is
    cells: tuple[Cells, ...]  # the parts of it that can change; none if it is immutable
    by_identity: bool  # a second meeting is a reference
    attributes: bool = False  # what users may set on it is walked and watched by the walker, not by `leaves`
    exact: Callable[[Any], Any] | None = None  # makes a value of the type of one of a subclass; None: these are refused
    # Private copies hold the live value (export/copies/), so that a trace reads the live tensors in it: no graph binds these.
    shared: bool = False


kinds: dict[type, Kind] = {}  # by exact type
resolved: dict[type, Kind] = {}  # every type met in a pass


def handles(
    *types_: type,
    cells: tuple[Cells, ...],
    by_identity: bool | None = None,
    exact: Callable[[Any], Any] | None = None,
    attributes: bool | None = None,
    shared: bool = False,
) -> Callable[[Handler], Handler]:
    """Registers the decorated function as the one that adds the leaves of values of exactly these types; see Kind.

    What can change is told apart by identity, and attributes that can be set are walked, unless it is said otherwise.
    """

    def register(leaves: Handler) -> Handler:
        for cls in types_:
            own = cls.__dictoffset__ != 0 if attributes is None else attributes
            watched = (*cells, OBJECT) if own and OBJECT not in cells else cells
            kinds[cls] = Kind(leaves, watched, bool(watched) if by_identity is None else by_identity, own, exact, shared)
        return leaves

    return register


def add_text(walker: Walker, path: str, value: Any) -> None:
    """Adds a value whose text says all of it; to be registered with `handles`."""
    walker.leaves.append((path, f"{type(value).__name__} {value}"))


def opaque(path: str, value: object, why: str = "") -> Bypass:
    """Returns the bypass for a value that cannot be digested."""
    kind = type(value)
    return Bypass(
        Reason.OPAQUE_VALUE,
        f"{path} is a {kind.__module__}.{kind.__qualname__}{why or ', whose content cannot be digested'}; "
        "replace it by plain data, move it out of the forward's reach, "
        "or register its type with rekindle.register_digest",
    )


def label(value: Any) -> str:
    """Returns module and qualified name of a class or function."""
    name = getattr(value, "__qualname__", None) or getattr(value, "__name__", "?")
    return f"{getattr(value, '__module__', None) or '?'}.{name}"


def attribute_path(path: str, name: str) -> str:
    """Returns the path of an attribute; a name that is no identifier is quoted, so that it never reads like two."""
    return f"{path}.{name}" if name.isidentifier() else f"{path}.{name!r}"


class _Steps:
    """Holds the steps of a walk that walk themselves: filled by the modules that define them, kinds.py and classes.py."""

    find_kind: Callable[[type], Kind]
    class_digest: Callable[[type], str]


steps = _Steps()


class Walker:
    """Walks values that may share parts, once. Not reentrant; one use per digest.

    deep_classes: follow class values into their code; inside the digest of a class other classes are named only, so that no
        digest depends on where the walk began
    known: objects by identity that have a path already
    level: of walks inside of each other
    """

    def __init__(self, deep_classes: bool = True, known: dict[int, tuple[str, Any]] | None = None, level: int = 0) -> None:
        self.leaves: list[Leaf] = []
        self.cells: list[tuple[Any, Cells]] = []  # (value, cells) of everything met that can change, in order
        self.weak: set[int] = set()  # identities of those values that nothing which watches may keep alive
        self.tensors: list[tuple[str, Any]] = []  # (path, tensor) of those that an export bakes in
        self.bound: list[tuple[str, Any]] | None = None  # (path, tensor) of those that a graph binds instead; None: none may be
        self.functions: list[types.FunctionType] = []  # covered by code
        self.registered: list[tuple[Any, str]] = []  # (value, digest) of values of registered types
        self.devices = DeviceNames()  # names devices
        self.excluded: frozenset[str] = frozenset()  # attributes to leave out, as of Options.exclude_attributes
        self.unread: frozenset[str] = frozenset()  # paths of modules' attributes that stand in the key without what they hold
        self.changing: frozenset[str] = frozenset()  # paths of plain tensors that a graph is to bind whatever their size
        self.unread_of: list[tuple[Any, str]] = []  # (module, tensor or dict of buffers, name) of those met
        self.attributes_met: list[str] = []  # paths of all attributes of modules that were walked
        self.classes: dict[int, type] = {}  # covered by code
        self.named: list[Any] = []  # classes and modules that were only named
        self.deep_classes = deep_classes
        self.level = level
        self.content_limit = CONTENT_LIMIT  # bytes of a tensor that may be digested
        self.met: dict[int, tuple[str, Any]] = {}  # (path, value) of what is known by identity, by identity
        self.met_in_sets: list[tuple[str, dict[int, tuple[str, Any]]]] = []  # the text of an item, and what was met in it
        self._depth = 0
        self._later: deque[tuple[str, Any, list[tuple[str, Any]] | None]] = deque()
        self._known = known or {}

    def emit(self, path: str, value: str | int | float | bool | None) -> None:
        """Adds one leaf."""
        self.leaves.append((path, value))

    def seen(self, path: str, value: object) -> bool:
        """Tells whether the object was met before; then adds a reference leaf, otherwise remembers it."""
        known = self.met.get(id(value)) or self._known.get(id(value))
        if known is not None:
            self.leaves.append((path, f"ref {known[0]}"))
            return True
        self.met[id(value)] = (path, value)
        return False

    def watch(self, value: Any, *cells: Cells) -> None:
        """Adds parts of a value that can change."""
        for one in cells:
            self.cells.append((value, one))

    def take_parts(self, inner: Walker) -> None:
        """Takes over what another walk met, but not its leaves."""
        self.functions += inner.functions
        self.classes |= inner.classes
        self.cells += inner.cells
        self.weak |= inner.weak
        self.tensors += inner.tensors
        self.registered += inner.registered
        self.named += inner.named
        self.met_in_sets += inner.met_in_sets

    def left_out(self, path: str, cls: type, name: str) -> bool:
        """Tells whether the user excluded an attribute of the object of class `cls` at `path`."""
        return bool(self.excluded) and (
            f"{path}.{name}" in self.excluded
            or any(f"{base.__module__}.{base.__qualname__}.{name}" in self.excluded for base in cls.__mro__)
        )

    def walk(self, path: str, value: Any) -> None:
        """Adds the leaves of a value; of what lies too deep, once the rest is done."""
        if self._depth >= _MOST_NESTED:
            if len(path) > _LONGEST_PATH:
                path = f"...{digest128(path.encode('utf-8', 'surrogatepass'))}"
            self._later.append((path, value, self.bound))
            return
        self._depth += 1
        self._visit(path, value)
        bound = self.bound
        while self._depth == 1 and self._later:
            path, value, self.bound = self._later.popleft()
            self._visit(path, value)
            self.bound = bound
        self._depth -= 1

    def _visit(self, path: str, value: Any) -> None:
        cls = type(value)
        kind = resolved.get(cls)
        if kind is None:
            kind = resolved[cls] = steps.find_kind(cls)
        if kind.by_identity and self.seen(path, value):
            return
        for cells in kind.cells:
            self.cells.append((value, cells))
        bound = self.bound
        if kind.shared:
            self.bound = None
        kind.leaves(self, path, value)
        if kind.attributes:
            self.attributes(path, value)
        self.bound = bound

    def attributes(self, path: str, value: Any, skipped: frozenset[str] = frozenset()) -> None:
        """Adds the leaves of what is set on an object."""
        cls = type(value)
        for name, item in list((own_dict(value) or {}).items()):
            if name not in skipped and not self.left_out(path, cls, name):
                self.walk(attribute_path(path, name), item)

    def add_class(self, cls: type) -> str:
        """Returns label and digest of a class's code, MRO included, and notes the class as covered. Where classes are not deep,
        returns the label only."""
        if not self.deep_classes:
            self.named.append(cls)
            return label(cls)
        self.classes[id(cls)] = cls
        return f"{cls.__module__}.{cls.__qualname__} {steps.class_digest(cls)}"


def value_text(path: str, value: Any) -> str:
    """Returns one line that stands for a value: the value itself when short, else its kind and digest."""
    walker = Walker()
    walker.walk(path, value)
    if _kept.walks is not None:
        _kept.walks.append(walker)
    return leaves_text(walker.leaves)


@contextlib.contextmanager
def walks_kept(walks: list[Walker]) -> Iterator[None]:
    """Adds the walks behind this thread's `value_text` to `walks`, while the body runs: the texts cover what they met."""
    before, _kept.walks = _kept.walks, walks
    try:
        yield
    finally:
        _kept.walks = before


def leaves_text(leaves: list[Leaf]) -> str:
    """Returns one line that stands for a list of leaves with a common root."""
    first = leaves[0][1]
    head = first if type(first) is str else repr(first)
    if len(leaves) == 1:
        return str(head)
    digest = digest_leaves(leaves)
    note(digest, leaves[0][0], leaves)
    return f"{head} {digest}"
