"""Refuses a forward that reads, beside its module and its arguments, what they lead to: exports run on copies of these.

For example, `self.table = TABLE`, a tensor, and a forward that asks `self.table is TABLE`: of the copy it is not true, and a
write to one would not be seen in the other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import CodeType
from typing import Any

from rekindle.key.values.classes import walk_members, walked_members
from rekindle.key.values.names import codes_of
from rekindle.key.values.places import places_in, users_among
from rekindle.key.values.walker import Walker
from rekindle.reasons import Bypass, Reason

IsCopied = Callable[[Any], bool]


def nothing(value: Any) -> bool:
    """Tells that an object is not copied."""
    return False


def may_be_copied(walks: Iterable[Walker], classes: Iterable[type], is_copied: IsCopied) -> bool:
    """Tells whether `refuse_copied` may refuse something, whatever ran: cheaply where the walks of a pass are at hand."""
    walks = list(walks)
    every = [*classes, *(cls for walk in walks for cls in walk.classes.values())]
    owners = {id(owner): owner for owner in users_among(every)}
    members = (walked_members(owner) for owner in owners.values())
    return any(is_copied(value) for walk in (*walks, *members) for _, value in places_in(walk))


def refuse_copied(walks: Iterable[Walker], classes: Iterable[type], ran: Mapping[int, CodeType], is_copied: IsCopied) -> None:
    """Raises Bypass(opaque_value) for an object that is copied where the forward reads it otherwise.

    walks: over what it read
    classes: that it may have read as well, of which only the methods that ran count
    ran: the code that ran, by identity
    """
    walks = list(walks)
    every = [*classes, *(cls for walk in walks for cls in walk.classes.values())]
    for path, value in (*(place for walk in walks for place in places_in(walk)), *_members(every, ran)):
        if is_copied(value):
            what = "the module or an argument as well; exports run on copies of these, which are other objects"
            raise Bypass(Reason.OPAQUE_VALUE, f"{path} is, or is part of, {what}: have the forward reach it in one way")


def _members(classes: Iterable[type], ran: Mapping[int, CodeType]) -> Iterator[tuple[str, Any]]:
    """Yields (path, object) of what members of the user's classes lead to, but for methods that did not run."""
    for owner in {id(owner): owner for owner in users_among(classes)}.values():
        idle = frozenset(name for name, member in vars(owner).items() if _is_idle(member, ran))
        yield from places_in(walk_members(owner, idle), owner)


def _is_idle(member: Any, ran: Mapping[int, CodeType]) -> bool:
    codes = list(codes_of(member))
    return bool(codes) and not any(id(code) in ran for code in codes)
