"""Keeps what a module and its surroundings were like at a forward, and makes them so again for the time of a replay."""

from __future__ import annotations

import contextlib
import weakref
from collections.abc import Collection, Iterable, Iterator
from typing import Any

import torch
from torch import nn

from rekindle import _native
from rekindle.graphs.call_key import tables_of
from rekindle.key.ambient import PLACES
from rekindle.modules.hooks import without_global_hooks
from rekindle.modules.module_tables import named_modules
from rekindle.process.torch_internals import (
    function_modes,
    under_function_modes,
    without_function_modes,
    without_operator_modes,
    without_saved_tensors_hooks,
)


class _Weakly(weakref.ref):  # type: ignore[type-arg]
    """Refers to what a container held, and does not keep it alive: the user can see when it goes."""


class Snapshot:
    """Keeps what the tables of a module and of what it depends on hold, and which tensors require a gradient.

    state: parameters and buffers
    containers: dicts and lists that the module depends on besides its own tables; other objects are passed over
    weak: ids of objects that are not kept alive
    unread: (owner, name) of attributes that the forward does not read: what they hold is not kept, and left as it is
    """

    def __init__(
        self,
        module: nn.Module,
        state: Iterable[torch.Tensor],
        containers: Iterable[Any],
        weak: Collection[int] = (),
        unread: Iterable[tuple[Any, str]] = (),
    ) -> None:
        self._unread: dict[int, set[str]] = {}  # names, by the identity of the dict that has them
        for owner, name in unread:
            self._unread.setdefault(id(owner if type(owner) is dict else owner.__dict__), set()).add(name)
        tables = {id(table): table for child in named_modules(module).values() for table in tables_of(child)}
        # Not what modules of Python define: it is much, and who changes it means all calls.
        own = (one for one in containers if type(one) is list or (type(one) is dict and "__spec__" not in one))
        tables.update((id(one), one) for one in own)
        self._contents = [(table, self._copied(table, weak)) for table in tables.values()]
        self._flags = [(tensor, tensor.requires_grad) for tensor in state]
        self._ambient = _native.ambient_state()
        self._modes = function_modes()  # of this thread: a backward may run in another, which has no default device
        self._places = [(namespace, name, namespace[name]) for namespace, name in PLACES]

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """Sets the containers, and which tensors require a gradient, as they were then; afterwards as they are now.

        Raises RuntimeError when an object that a container held then is gone.
        """
        with contextlib.ExitStack() as after:
            for table, was in self._contents:
                if id(table) in self._unread:  # the forward may set them
                    after.callback(_set_all, table, {name: table.get(name, _GONE) for name in self._unread[id(table)]})
                kept = self._unread.get(id(table), ())
                if not _same(table, was, kept):
                    after.callback(_fill, table, self._copied(table), kept)
                    _fill(table, was, kept)
            for tensor, was in self._flags:
                if tensor.requires_grad != was and tensor.is_leaf:
                    after.callback(tensor.requires_grad_, not was)
                    tensor.requires_grad_(was)
            yield

    def _copied(self, table: Any, weak: Collection[int] = ()) -> list[Any]:
        unread = self._unread.get(id(table), ())
        return _copy({name: item for name, item in table.items() if name not in unread} if unread else table, weak)

    @contextlib.contextmanager
    def switches(self) -> Iterator[None]:
        """Sets the ambient state of torch as it was then; afterwards as it is now. What autocast casts inside is not kept."""
        now, places = _native.ambient_state(), [(namespace, name, namespace[name]) for namespace, name in PLACES]
        torch.autocast_increment_nesting()
        try:
            self._set(self._ambient, self._places)
            # A call under modes that see operators, or under hooks of all modules or of what is saved, has no graph.
            with (
                without_function_modes(),
                under_function_modes(self._modes),
                without_operator_modes(),
                without_saved_tensors_hooks(),
                without_global_hooks(),
            ):
                yield
        finally:
            self._set(now, places)
            if torch.autocast_decrement_nesting() == 0:
                torch.clear_autocast_cache()

    @staticmethod
    def _set(ambient: list[int], places: list[tuple[dict[str, Any], str, Any]]) -> None:
        _native.set_ambient_state(ambient)
        for namespace, name, value in places:
            namespace[name] = value


def _copy(table: Any, weak: Collection[int] = ()) -> list[Any]:
    def held(value: Any) -> Any:
        return _Weakly(value) if id(value) in weak else value

    return [(key, held(value)) for key, value in table.items()] if isinstance(table, dict) else [held(value) for value in table]


def _now(held: Any) -> Any:
    """Returns what was in a container; `_GONE` where nothing keeps it alive any more."""
    if type(held) is not _Weakly:
        return held
    target = held()
    return _GONE if target is None else target


_GONE = object()


def _set_all(table: dict[str, Any], items: dict[str, Any]) -> None:
    """Sets items of a dict; removes those that are `_GONE`."""
    for name, item in items.items():
        if item is _GONE:
            table.pop(name, None)
        else:
            table[name] = item


def _same(table: Any, was: list[Any], unread: Collection[str] = ()) -> bool:
    table = {name: item for name, item in table.items() if name not in unread} if unread else table
    if len(table) != len(was):
        return False
    if isinstance(table, dict):
        return all(key is old[0] and value is _now(old[1]) for (key, value), old in zip(table.items(), was, strict=True))
    return all(item is _now(old) for item, old in zip(table, was, strict=True))


def _fill(table: Any, was: list[Any], unread: Collection[str] = ()) -> None:
    """Puts the former items into a container; in one step where only values differ, so that no other thread finds it empty.

    unread: names of a dict's items that are left as they are
    """
    was = [(one[0], _now(one[1])) if isinstance(table, dict) else _now(one) for one in was]
    if any((one[1] if isinstance(table, dict) else one) is _GONE for one in was):
        raise RuntimeError(
            "gradients of gradients repeat the call as it was, and an object that the module held then is gone; keep it alive"
        )
    if isinstance(table, list):
        table[:] = was
        return
    kept = {name: table[name] for name in unread if name in table}
    if [key for key in table if key not in kept] != [key for key, _ in was]:
        table.clear()
    table.update(was)
    table.update(kept)
