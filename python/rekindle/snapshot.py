"""What a module and its surroundings were like at a forward, so that they can be so again for the time of a replay."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch
from torch import nn

from rekindle.call_key import tables_of
from rekindle.module_tables import named_modules

_SDP = ("flash", "mem_efficient", "math", "cudnn")
_PRECISIONS = (("mkldnn", "matmul"), ("mkldnn", "conv"), ("mkldnn", "rnn"))
# (what it is, what sets it): switches of the process that change what a forward computes, or how.
_SWITCHES: list[tuple[Callable[[], Any], Callable[[Any], None]]] = [
    (torch.get_default_dtype, torch.set_default_dtype),
    (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    (torch._C._get_mkldnn_enabled, torch._C._set_mkldnn_enabled),
    (torch._C._get_cudnn_enabled, torch._C._set_cudnn_enabled),
    (torch._C._get_cudnn_benchmark, torch._C._set_cudnn_benchmark),
    (torch._C._get_cudnn_deterministic, torch._C._set_cudnn_deterministic),
    (
        lambda: (torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()),
        lambda was: torch.use_deterministic_algorithms(was[0], warn_only=was[1]),
    ),
    *((getattr(torch.backends.cuda, f"{name}_sdp_enabled"), getattr(torch.backends.cuda, f"enable_{name}_sdp")) for name in _SDP),
    *(
        (lambda of=of: torch._C._get_fp32_precision_getter(*of), lambda was, of=of: torch._C._set_fp32_precision_setter(*of, was))
        for of in _PRECISIONS
    ),
]


class Snapshot:
    """Taken of a module with its parameters and buffers. containers: dicts and lists that it depends on besides its own tables.

    Holds what was in them, and copies nothing of it.
    """

    def __init__(self, module: nn.Module, state: Iterable[torch.Tensor], containers: Iterable[Any]) -> None:
        tables = {id(table): table for child in named_modules(module).values() for table in tables_of(child)}
        # Not what modules of Python define: it is much, and who changes it means all calls.
        own = (one for one in containers if type(one) is list or (type(one) is dict and "__spec__" not in one))
        tables.update((id(one), one) for one in own)
        self._contents = [(table, _copy(table)) for table in tables.values()]
        self._flags = [(tensor, tensor.requires_grad) for tensor in state]
        self._switches = [read() for read, _ in _SWITCHES]

    @contextlib.contextmanager
    def restored(self) -> Iterator[None]:
        """As it was then, and afterwards as it is now."""
        with contextlib.ExitStack() as after:
            for (read, write), was in zip(_SWITCHES, self._switches, strict=True):
                if (now := read()) != was:
                    after.callback(write, now)
                    write(was)
            for table, was in self._contents:
                if not _same(table, was):
                    after.callback(_fill, table, _copy(table))
                    _fill(table, was)
            for tensor, was in self._flags:
                if tensor.requires_grad != was and tensor.is_leaf:
                    after.callback(tensor.requires_grad_, not was)
                    tensor.requires_grad_(was)
            yield


def _copy(table: Any) -> list[Any]:
    return list(table.items()) if isinstance(table, dict) else list(table)


def _same(table: Any, was: list[Any]) -> bool:
    if len(table) != len(was):
        return False
    if isinstance(table, dict):
        return all(key is old[0] and value is old[1] for (key, value), old in zip(table.items(), was, strict=True))
    return all(item is old for item, old in zip(table, was, strict=True))


def _fill(table: Any, was: list[Any]) -> None:
    """In one step where only values differ, so that no other thread finds it empty."""
    if isinstance(table, list):
        table[:] = was
        return
    if list(table) != [key for key, _ in was]:
        table.clear()
    table.update(was)
