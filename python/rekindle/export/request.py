"""Says what an export is asked for: a call, and what of it the graph leaves open.

Nothing else in Rekindle knows torch's exporters. An adapter is a function `export(request: ExportRequest) -> Traced`. It runs the
forward of a private copy of the module exactly once, leaves random generators as they were, and raises `Bypass` with a reason
when the graph would not mean what eager means. The exporter packages are imported inside the adapter, never at import time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch

from rekindle.key.fingerprint import Fingerprint
from rekindle.sizes.shapes import Shapes, sizes_of


@dataclass(frozen=True)
class Call:
    """Holds a user's call of a module, or one of a private copy of it. The module's own hooks run around it."""

    module: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    arguments: list[torch.Tensor]  # the tensors among args and kwargs, in flattening order: the first inputs of the graph
    parameters: dict[str, torch.nn.Parameter]  # of the module, by name: the next inputs
    # Of the module, by name, then plain values that the graph is to bind, by path: the last inputs.
    buffers: dict[str, torch.Tensor]
    grad: bool  # whether gradients are recorded
    unread: tuple[tuple[Any, str], ...] = field(default=(), repr=False)  # (module, attribute) that the forward is not to read
    own: dict[int, Any] = field(default_factory=dict, repr=False)  # what a copy holds besides tensors, by identity
    copied: Mapping[int, Any] = field(default_factory=dict, repr=False)  # what a copy holds, by identity of what it stands for

    @property
    def tensors(self) -> list[torch.Tensor]:
        """Returns arguments, parameters and buffers: what positions count."""
        return [*self.arguments, *self.parameters.values(), *self.buffers.values()]

    @property
    def device(self) -> torch.device:
        """Returns the device that its tensors are on, all of them; the CPU if there are none."""
        return next((tensor.device for tensor in self.tensors), torch.device("cpu"))

    @property
    def state(self) -> dict[str, torch.Tensor]:
        """Returns parameters and buffers of the module, by name."""
        return {**self.parameters, **self.buffers}


@dataclass(frozen=True)
class ExportPlan:
    """Says what an export leaves open."""

    shapes: Shapes  # the sizes of the arguments
    apart: bool = True  # whether sizes that are equal in the call may be different symbols
    closed_because: str | None = None  # why no size is left open, where that is no option of the user's
    data_sizes: bool = False  # whether sizes may depend on data
    small_sizes: bool = False  # whether those may be 0; the graph then serves no others
    sized_functions: frozenset[type] = frozenset()  # the autograd Functions whose results' sizes do
    inline_functions: bool = False  # the option of that name
    eager_numerics: bool = False  # whether operators that ONNX would round otherwise stay PyTorch's: numerics="eager"

    def joined(self, arguments: Sequence[torch.Tensor]) -> ExportPlan:
        """Returns the plan with one symbol for all sizes that are equal in a call with these arguments."""
        shapes = self.shapes
        for names in shapes.coinciding(shapes.bind(sizes_of(arguments)) or {}):
            shapes = shapes.merged(names)
        return replace(self, shapes=shapes, apart=False)

    def closed(self, arguments: Sequence[torch.Tensor], why: str) -> ExportPlan:
        """Returns the plan with the sizes of these arguments only; `why` says why no size is left open."""
        return replace(self, shapes=Shapes.of(arguments), closed_because=why)


class Copies(Protocol):
    """Makes copies of one call; see copies/private_copy.py."""

    def around(self, tensors: Sequence[torch.Tensor]) -> Call:
        """Returns the call of a private copy of the module, with these tensors for arguments, parameters and buffers."""


@dataclass(frozen=True)
class ExportRequest:
    """Holds a call to export, with what the export may use."""

    call: Call
    plan: ExportPlan
    copies: Copies = field(repr=False)  # make what is run instead of the live module
    describe: Callable[[Call], Fingerprint] = field(repr=False)  # gives the fingerprint of the call, or of a copy of it
    watch: AbstractContextManager[Any] = field(default_factory=nullcontext, repr=False)  # entered around the forward
    # (name, tensor) of the plain tensors whose numbers the graph may have, once that is known; see graphs/guard_inputs.py.
    constants: Sequence[tuple[str, torch.Tensor]] = field(default=(), repr=False)
