"""Adapters that turn a live module and one call into an ONNX model. Nothing else in Rekindle knows torch's exporters.

An adapter is a function `export(request: ExportRequest) -> Exported`. It runs the forward of a private copy of the module
exactly once, leaves random generators as they were, and raises `Bypass` with a reason when the graph would not mean what eager
means. The exporter packages are imported inside the adapter, never at import time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import torch

from rekindle.export.unchecked import Allowed
from rekindle.functions.calls import Call
from rekindle.key.fingerprint import Fingerprint
from rekindle.sizes.shapes import Place, Shapes


class Copies(Protocol):
    """Makes copies of one call; see copies/private_copy.py."""

    def around(self, tensors: Sequence[torch.Tensor]) -> tuple[torch.nn.Module, tuple[Any, ...], dict[str, Any], dict[int, Any]]:
        """A module, its arguments and keywords with these tensors, and what was made for them, by identity."""


@dataclass(frozen=True)
class ExportRequest:
    """One call to export.

    `arguments` are the call's tensors in flattening order, `state` the module's parameters and buffers by name; both
    become graph inputs, arguments first. `grad` tells whether gradients are recorded. The module's own hooks run
    around the call. `inline_functions` is the option. `data_sizes`: whether sizes may depend on data, `sized_functions`: the
    autograd Functions whose results' sizes do. `shapes` says which sizes of the arguments the graph leaves open,
    `closed_because` why none, where that is no option of the user's; `apart` whether sizes that are equal in the call may be
    different symbols. `watch` is entered around the forward. `copies` makes what is run instead of the live module, `describe`
    the fingerprint of a copy. `own`, of a copy: what it holds besides tensors, by identity.
    """

    module: torch.nn.Module
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    arguments: list[torch.Tensor]
    parameters: dict[str, torch.nn.Parameter]
    buffers: dict[str, torch.Tensor]
    grad: bool
    shapes: Shapes
    inline_functions: bool = False
    closed_because: str | None = None
    data_sizes: bool = False
    sized_functions: frozenset[type] = frozenset()
    apart: bool = True
    watch: AbstractContextManager[Any] = field(default_factory=nullcontext, repr=False)
    describe: Callable[[ExportRequest], Fingerprint] | None = field(default=None, repr=False)
    copies: Copies | None = field(default=None, repr=False)
    own: dict[int, Any] = field(default_factory=dict, repr=False)

    @property
    def tensors(self) -> list[torch.Tensor]:
        """Arguments, parameters and buffers: what positions count."""
        return [*self.arguments, *self.parameters.values(), *self.buffers.values()]

    def around(self, tensors: Sequence[torch.Tensor]) -> ExportRequest:
        """A private copy of the call, of these tensors."""
        assert self.copies is not None
        module, args, kwargs, own = self.copies.around(tensors)
        state = dict(zip([*self.parameters, *self.buffers], tensors[len(self.arguments) :], strict=True))
        return replace(
            self, module=module, args=args, kwargs=kwargs, arguments=list(tensors[: len(self.arguments)]),
            parameters={name: state[name] for name in self.parameters}, buffers={name: state[name] for name in self.buffers},
            own=own,
        )  # fmt: skip


@dataclass(frozen=True)
class SizeGuard:
    """A question that a forward asked about sizes. where: `file.py:12 in forward`; what: it asked; value: the answer."""

    where: str
    what: str
    value: int


@dataclass
class Exported:
    """What an export gives.

    model: ONNX bytes; outputs are the distinct output tensors. used: the inputs of the model as positions among the
    arguments, then the parameters, then the buffers; those that nothing reads are left out. structure: how the module's
    result is rebuilt from the outputs (see results/contract.py). outputs: the tensors eager computed during the export, with
    their autograd graph, for verification. random_states: of the CPU generator before and after the forward. given: the private
    arguments, parameters and buffers that eager computed with, as they were before. autocast_dtypes: those in which autocast
    computed some of it.
    writes: the arguments, parameters and buffers, by position, whose new contents are the last outputs.
    functions: the custom autograd Functions that the graph calls, by number (see functions/calls.py).
    effects: how many outputs before those of `writes` are there only to keep what nothing reads, or answer `data_guards`.

    fixed: dimensions of arguments whose size the forward asked for, with the line of its code; the graph is for these sizes only.
    guards: what else it asked of sizes. answers: ONNX bytes of the graph that answers these as one integer vector, from the
    same inputs, and then `numbers`: those in the result that depend on sizes; None without both. objects: in the result, to be
    new ones at each call. strides: the place in the forward that asks for strides, where an argument is not contiguous.
    allowed: what the forward may be tried on besides the call.
    data_guards: guards whose answers depend on data, so that they are known when the graph has run: one vector before the
    outputs of `writes`, if there are any; some are about the truth of a tensor (assumptions.py). sized_by_data: whether
    sizes depend on data. function_sizes: of the calls of `functions`, see function_sizes.py.
    """

    model: bytes
    used: list[int]
    structure: Any
    outputs: list[torch.Tensor] = field(repr=False)
    random_states: tuple[torch.Tensor, torch.Tensor] = field(repr=False)
    given: list[torch.Tensor] = field(repr=False)
    autocast_dtypes: frozenset[torch.dtype] = frozenset()
    writes: list[int] = field(default_factory=list)
    functions: list[Call] = field(default_factory=list)
    effects: int = 0
    fixed: dict[Place, str] = field(default_factory=dict)
    guards: list[SizeGuard] = field(default_factory=list)
    answers: bytes | None = field(default=None, repr=False)
    numbers: list[int] = field(default_factory=list)
    objects: list[Any] = field(default_factory=list, repr=False)
    strides: str | None = None
    allowed: Allowed = Allowed.ANYTHING
    data_guards: list[SizeGuard] = field(default_factory=list)
    sized_by_data: bool = False
    function_sizes: list[Any] = field(default_factory=list, repr=False)
