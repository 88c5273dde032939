"""Digest of a class: the code and the plain attributes of every Python class in its MRO."""

from __future__ import annotations

from rekindle.fingerprint.digest import digest_leaves, digest_parts
from rekindle.fingerprint.parts import note
from rekindle.fingerprint.values import Walker
from rekindle.reasons import Bypass

# Entries of a class body that do not change what its methods do: texts, annotations, and caches that Python,
# dataclasses, pydantic, autograd and pickle keep on the class.
_SKIPPED = frozenset(
    "__doc__ __module__ __qualname__ __dict__ __weakref__ __annotations__ __annotate__ __annotate_func__ "
    "__annotations_cache__ __firstlineno__ __static_attributes__ __slotnames__ __parameters__ __orig_bases__ "
    "__dataclass_fields__ __dataclass_params__ __match_args__ __signature__ _abc_impl __abstractmethods__ "
    "_backward_cls __type_params__ __weakrefoffset__ _is_protocol _is_runtime_protocol __protocol_attrs__ "
    "__non_callable_proto_members__ __subclasshook__ __init_subclass__ __class_getitem__".split()
)
_HEAP_TYPE = 1 << 9

_cached: dict[int, tuple[type, str]] = {}
_known: dict[int, tuple[str, object]] = {}
_depth = 0


class one_pass:
    """Context in which class digests are computed at most once; nothing may edit a class inside it.

    known: objects by identity, with the path that names them where a class refers to them, as the classes
    that parametrizations make for one module do.
    """

    def __init__(self, known: dict[int, tuple[str, object]] | None = None) -> None:
        self._own_known = known or {}

    def __enter__(self) -> None:
        global _depth
        _depth += 1
        _known.update(self._own_known)

    def __exit__(self, *_: object) -> None:
        global _depth
        _depth -= 1
        if _depth == 0:
            _cached.clear()
            _known.clear()


def class_digest(cls: type) -> str:
    """Digest of the class's MRO: names of builtin bases, code and attributes of the others."""
    known = _cached.get(id(cls))
    if known is None:
        bases = [(_name(base), _own_digest(base)) for base in cls.__mro__]
        digest = digest_parts((f"{name} {own}" if own else name).encode() for name, own in bases)
        note(digest, "", ((f" {name}", own) for name, own in bases))
        known = (cls, digest)
        if _depth:
            _cached[id(cls)] = known
    return known[1]


def _name(base: type) -> str:
    return f"{base.__module__}.{base.__qualname__}"


def _own_digest(base: type) -> str | None:
    """Digest of what one class body defines, or None for a builtin."""
    if not base.__flags__ & _HEAP_TYPE:
        return None
    try:
        leaves = walk_members(base).leaves
    except Bypass as bypass:
        raise Bypass(bypass.reason, f"in class {_name(base)}: {bypass.message}") from None
    digest = digest_leaves(leaves)
    note(digest, "", ((f".{path}", value) for path, value in leaves))
    return digest


def walk_members(base: type) -> Walker:
    """A walk over what one class body defines; raises Bypass for what cannot be digested."""
    members = vars(base)
    walker = Walker(deep_classes=False, known=_known)
    for key in sorted(members):
        if key not in _SKIPPED and not key.startswith("__pydantic_"):
            walker.walk(key, members[key])
    return walker
