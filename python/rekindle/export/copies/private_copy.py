"""Makes private copies of a module and a call of it: exports and their trials run on them, so that nobody sees what they try.

What leads to a tensor or to a module is copied: modules, containers, plain objects, functions with closures, bound methods,
partials, weak references. One memo keeps identity: what was one object under several names is one object in the copy. All else
(code, classes, plain settings, locks, process groups) is the live object itself. No code of a user's class runs.

An example: of `self.layers = [a, b]` and `self.last = b` the copy has a list of its own with copies of both modules, and its
`last` is its `layers[1]`. The class of `b` and a logger that `b` holds are the live ones.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from rekindle.export.copies.copied_callables import Copier
from rekindle.export.copies.copied_kinds import SHARED_ITEMS, TABLES, kind_of, numbers_of
from rekindle.export.copies.tripwires import Reads, copier_of
from rekindle.export.request import Call
from rekindle.modules.hooks import HOOKS, STATE_DICT_HOOKS
from rekindle.reasons import Bypass, Reason
from rekindle.results import structure

__all__ = ["PrivateCopies", "numbers_of", "private_tensors", "twin"]

_MOST_OBJECTS = 1 << 20  # that a search for what to copy meets; a call that leads to more is refused, as the search takes seconds


class PrivateCopies:
    """Makes copies of one call. Holds the call; reads the live module when it is made and at each copy."""

    def __init__(self, call: Call) -> None:
        self._call = call
        self._tensors = call.tensors
        self.reads = Reads()  # of attributes that the forward is taken not to read
        given = _containers((call.args, call.kwargs)).values()
        # The module's own hooks run around the call, and not in a copy.
        tables = call.module.__dict__
        own_hooks = {id(tables[name]): SHARED_ITEMS for name in HOOKS if name in tables}
        search = _Search({**own_hooks, **_partly_read(call, self.reads)})
        self._copied = search.leading_to_tensors([call.module, call.args, call.kwargs, *self._tensors], given)

    def around(self, tensors: Sequence[torch.Tensor]) -> Call:
        """Returns the call of a copy of the module, with `tensors` in the place of arguments, parameters and buffers.

        They take the place of the live ones under every name these have. Other tensors that the module leads to are copied with
        their numbers. The call's `own` is all that was made for it besides tensors and tuples, and the lists and dicts of the
        call.

        Raises Bypass(opaque_value) for a module that cannot be copied.
        """
        own = {id(live): tensor for live, tensor in zip(self._tensors, tensors, strict=True)}
        call, copy = self._call, _Copy(self._copied, own)
        try:
            module, args, kwargs = copy.of(call.module), copy.of(call.args), copy.of(call.kwargs)
            copy.fill()
        except Bypass:
            raise
        except Exception as error:  # a hash or an order of the user's, of an object that is not complete yet
            message = f"the module cannot be copied: {type(error).__name__}: {error}"
            raise Bypass(Reason.OPAQUE_VALUE, message) from error
        own = {id(made): made for made in copy.by_identity.values() if not isinstance(made, (torch.Tensor, tuple))}
        state = dict(zip([*call.parameters, *call.buffers], tensors[len(call.arguments) :], strict=True))
        return replace(
            call, module=module, args=args, kwargs=kwargs, arguments=list(tensors[: len(call.arguments)]),
            parameters={name: state[name] for name in call.parameters}, buffers={name: state[name] for name in call.buffers},
            own=own | _containers((args, kwargs)), copied=copy.by_identity,
        )  # fmt: skip

    def copies(self, value: object) -> bool:
        """Tells whether an object has a copy of its own."""
        return id(value) in self._copied


def _containers(value: Any) -> dict[int, Any]:
    """Returns the lists, dicts and dataclasses at every depth of what a call is given, by identity."""
    items = structure.parts(value)
    found = {} if items is None or isinstance(value, tuple) else {id(value): value}
    for _, item in items or ():
        found.update(_containers(item))
    return found


def private_tensors(call: Call) -> list[torch.Tensor]:
    """Makes arguments, parameters and buffers for a run on the call's own numbers.

    Parameters are in the memory of the live ones, which nothing may write; they have their own hooks, gradients and versions. The
    others are in memory of their own.
    """
    made: dict[int, torch.Tensor] = {}
    for tensor in (*call.arguments, *call.buffers.values()):
        made.setdefault(id(tensor), numbers_of(tensor))
    for parameter in call.parameters.values():
        made[id(parameter)] = twin(parameter, parameter.data)
    return [made[id(live)] for live in call.tensors]


def twin(tensor: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """Makes a leaf of a tensor's class in the memory of `numbers`, which requires a gradient if the tensor does."""
    if isinstance(tensor, nn.Parameter):
        return torch.Tensor._make_subclass(type(tensor), numbers, tensor.requires_grad)
    return numbers.detach().requires_grad_(tensor.requires_grad)


def _partly_read(call: Call, reads: Reads) -> dict[int, Copier]:
    """Returns the copiers of what has attributes that are taken to be unread, by its identity."""
    names: dict[int, tuple[Any, list[str]]] = {}
    for owner, name in call.unread:
        names.setdefault(id(owner), (owner, []))[1].append(name)
    return {key: copier_of(owner, unread, reads) for key, (owner, unread) in names.items()}


class _Search:
    """Looks for what has to be copied.

    copiers: of single objects, by identity; the kind of an object says what copies it otherwise
    """

    def __init__(self, copiers: dict[int, Copier]) -> None:
        self._copiers = copiers
        self._seen: dict[int, tuple[Any, Copier]] = {}  # what is followed
        self._holders: dict[int, list[int]] = {}  # who leads to it
        self._left: deque[Any] = deque()
        self._found: deque[int] = deque()

    def meet(self, value: Any) -> bool:
        """Follows a value, unless it is shared with the live module; returns whether it is followed."""
        if id(value) in self._seen:
            return True
        kind = self._copiers.get(id(value)) or kind_of(value)
        if kind is None:
            return False
        self._seen[id(value)] = value, kind
        self._left.append(value)
        if isinstance(value, (torch.Tensor, nn.Module)):
            self._found.append(id(value))
        for name, table in _tables_of(value):
            if name in STATE_DICT_HOOKS:
                self._copiers[id(table)] = SHARED_ITEMS
            self.copy(table)
        return True

    def copy(self, value: Any) -> None:
        """Lets a value have a copy, and what leads to it, if it is one that can be followed."""
        if self.meet(value):
            self._found.append(id(value))

    def leading_to_tensors(self, roots: Iterable[Any], given: Iterable[Any]) -> dict[int, tuple[Any, Copier]]:
        """Finds what has to be copied, by identity: modules, tensors, and what leads to one of these or to what is given.

        roots: where the search starts
        given: lists, dicts and dataclasses that the call is given and that the forward may change

        Raises Bypass where they are too many.
        """
        for root in roots:
            self.meet(root)
        for container in given:
            self.copy(container)
        while self._left:
            value = self._left.popleft()
            for part in self._seen[id(value)][1].parts(value):
                if self.meet(part):
                    self._holders.setdefault(id(part), []).append(id(value))
            if len(self._seen) > _MOST_OBJECTS:
                message = f"the module leads to more than {_MOST_OBJECTS} objects; cut it off from them"
                raise Bypass(Reason.OPAQUE_VALUE, message)
        copied_ones: dict[int, tuple[Any, Copier]] = {}
        while self._found:
            key = self._found.popleft()
            if key not in copied_ones:
                copied_ones[key] = self._seen[key]
                self._found += self._holders.get(key, [])
        return copied_ones


def _tables_of(value: Any) -> list[tuple[str, Any]]:
    """Returns, with its name, what a module registers things in, which is its own even if it is empty."""
    return [(name, value.__dict__[name]) for name in TABLES if name in value.__dict__] if isinstance(value, nn.Module) else []


class _Copy:
    """Makes one copy. `own` has tensors by the identity of those that they stand for."""

    def __init__(self, copied_ones: dict[int, tuple[Any, Copier]], own: dict[int, torch.Tensor]) -> None:
        self._copied = copied_ones
        self._made: dict[int, Any] = dict(own)
        self._left: deque[tuple[Copier, Any, Any]] = deque()
        for key, tensor in own.items():
            self._left.append((copied_ones[key][1], copied_ones[key][0], tensor))

    def of(self, value: Any) -> Any:
        """Returns what stands for a live object: its copy, or the object itself. What a copy holds comes with `fill`."""
        if id(value) in self._made:
            return self._made[id(value)]
        if id(value) not in self._copied:
            return value
        _, kind = self._copied[id(value)]
        made = kind.make(value, self.of)
        known = self._made.setdefault(id(value), made)  # it may lead back to itself
        if known is made:
            for old, new in kind.inner(value, made):
                self._made.setdefault(id(old), new)
            self._left.append((kind, value, made))
        return known

    @property
    def by_identity(self) -> dict[int, Any]:
        """Returns all copies, by identity of what they stand for."""
        return self._made

    def fill(self) -> None:
        """Lets the copies hold what the live objects do."""
        while self._left:
            kind, value, made = self._left.popleft()
            kind.fill(value, made, self.of)
