"""Connects a rank to the key-value store of its job, and keeps the processes that it forks away from that connection.

An example: rank 1 of a job has a DataLoader with workers that are forked. The job's group is initialized in a worker, too, but
`is_rank` is False there: the worker shares the sockets of rank 1, and would take answers that are meant for it. A forked process
that initializes a group of its own is a rank of that one.
"""

from __future__ import annotations

import os
from typing import Any

import torch

_own: list[Any] = []  # [the job's store, our Connection to it]
_inherited: list[Any] = []  # in a forked process, the store of the job in which its parent was a rank


def _note_inherited() -> None:
    """Notes in a forked process which store is not for it; keeps it, as its end may wait for threads that are not here."""
    if _is_initialized():
        _inherited.append(_default_store())


os.register_at_fork(after_in_child=_note_inherited)


def is_rank() -> bool:
    """Tells whether this process is a rank of a job of several, rather than one that a rank has forked."""
    if not (_is_initialized() and torch.distributed.get_world_size() > 1):
        return False
    store = _default_store()
    return not any(store is inherited for inherited in _inherited)


def connection() -> Connection:
    """Returns a connection of our own to the job's store: waiting on the shared one would block its other users.

    For a rank, and one thread at a time. Raises RuntimeError where the store does not answer.
    """
    store = _default_store()
    if not _own or _own[0] is not store:
        _own[:] = [store, Connection(store.clone() if hasattr(store, "clone") else store)]
    return _own[1]


def _is_initialized() -> bool:
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _default_store() -> Any:
    return torch.distributed.distributed_c10d._get_default_store()


class Connection:
    """Asks a store for the process that has made it. In one that is forked, each method raises RuntimeError and asks nobody."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._owner = os.getpid()

    def add(self, key: str, amount: int) -> int:
        """Adds to a counter, and returns what it is then."""
        return self._here().add(key, amount)

    def check(self, keys: list[str]) -> bool:
        """Tells whether all keys are in the store."""
        return self._here().check(keys)

    def get(self, key: str) -> bytes:
        """Returns the value of a key."""
        return self._here().get(key)

    def set(self, key: str, value: str | bytes) -> None:
        """Puts a value under a key."""
        self._here().set(key, value)

    def _here(self) -> Any:
        if os.getpid() != self._owner:
            raise RuntimeError(f"process {os.getpid()} was forked by a rank, {self._owner}, and is none itself")
        return self._store
