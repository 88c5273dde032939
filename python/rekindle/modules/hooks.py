"""Reaches the tables in which PyTorch keeps hooks: of a module, of all modules, and of a tensor."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.nn.modules import module

HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
# Those that a forward runs itself, as it does the forwards of its submodules, with the tables of what is said of some of them.
FORWARD_HOOKS = {
    "_forward_pre_hooks": ("_forward_pre_hooks_with_kwargs",),
    "_forward_hooks": ("_forward_hooks_with_kwargs", "_forward_hooks_always_called"),
}
# Those that run when a module is saved or loaded, and not around a forward.
STATE_DICT_HOOKS = ("_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks", "_load_state_dict_post_hooks")
GLOBAL_HOOKS = tuple(f"_global{name}" for name in HOOKS)


def global_hooks() -> list[dict[int, Any]]:
    """Returns the tables of hooks that hold for all modules, one a kind, as in GLOBAL_HOOKS."""
    return [vars(module)[name] for name in GLOBAL_HOOKS]


def has_global_hooks() -> bool:
    """Tells whether a hook holds for all modules. Asked at calls that run in eager, it makes no list."""
    return bool(
        module._global_forward_pre_hooks
        or module._global_forward_hooks
        or module._global_backward_pre_hooks
        or module._global_backward_hooks
    )


def without_global_hooks() -> contextlib.AbstractContextManager[None]:
    """Returns the context in which no hook holds for all modules."""
    return _emptied(global_hooks())


def without_hooks(tensors: Iterable[torch.Tensor]) -> contextlib.AbstractContextManager[None]:
    """Lets a backward inside of another one leave out the hooks of leaves that it leads to: the outer one runs them."""
    tables = {id(table): table for tensor in tensors if (table := tensor._backward_hooks)}
    return _emptied(tables.values())


@contextlib.contextmanager
def _emptied(tables: Iterable[dict[int, Any]]) -> Iterator[None]:
    contents = [(table, list(table.items())) for table in tables]
    for table, _ in contents:
        table.clear()
    try:
        yield
    finally:
        for table, hooks in contents:
            table.update(hooks)
