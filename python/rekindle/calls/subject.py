"""Describes what a runtime asks the cache and the exporter about: its module, and one call of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from rekindle import _native
from rekindle.calls.unread import UnreadAttributes
from rekindle.export.request import Call, ExportPlan
from rekindle.functions.registry import registrations
from rekindle.key.fingerprint import Fingerprint, LeftOut, describe
from rekindle.key.values.walker import label
from rekindle.lookup.store import Store
from rekindle.modules.module_tables import named_buffers, named_parameters
from rekindle.modules.tensor_kinds import has_sessions
from rekindle.options import Options
from rekindle.reasons import Bypass, Reason
from rekindle.results import contract
from rekindle.sizes.shapes import Shapes

if TYPE_CHECKING:
    from rekindle.lookup.explanation import Explanation

_GATHERS = (
    "DeepSpeed's ZeRO 3 gathers parameters by hooks on submodules; blocks run from graphs where it gathers them as a whole: "
    "deepspeed.utils.set_z3_leaf_modules(model, [Block]) before deepspeed.initialize"
)


_CALLS_FOR_LARGER = 2  # in which an export waits for sizes above 0: then a graph for these is better than none


class Subject:
    """Describes a module with its options, and calls of it."""

    def __init__(self, module: nn.Module, options: Options) -> None:
        self._module = module
        self._options = options
        self.unread = UnreadAttributes()
        self.sized_functions: frozenset[type] = frozenset()  # autograd Functions that returned other sizes than at their export

    @property
    def dynamic(self) -> bool:
        """Tells whether sizes may be left open."""
        return self._options.dynamic == "auto"

    def fingerprint(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Fingerprint:
        """Returns the fingerprint of the call `module(*args, **kwargs)`; raises Bypass where there is none.

        Leaves out attributes that have no digest, until the forward is known to read them.
        """
        self.unread.leave_out_of_zero(self._module)
        while True:
            try:
                return self._describe(self._module, args, kwargs)
            except Bypass as bypass:
                if self.unread.leave_out(bypass):
                    continue
                if any(hasattr(parameter, "ds_id") for parameter in named_parameters(self._module).values()):
                    raise Bypass(bypass.reason, f"{_GATHERS}; {bypass.message}") from bypass
                raise

    def describe(self, call: Call) -> Fingerprint:
        """Returns the fingerprint of a call of the module, or of a copy of it, as they are now; raises Bypass without one."""
        return self._describe(call.module, call.args, call.kwargs)

    def _describe(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Fingerprint:
        left_out = LeftOut(frozenset(self._options.exclude_attributes), self.unread.paths, self.unread.changing)
        return describe(module, args, kwargs, self._key_fields(), left_out, self.dynamic)

    def _key_fields(self) -> dict[str, Any]:
        return {
            **self._options.key_fields(),
            "pipeline": _native.pipeline_fingerprint(),
            "contract": _native.Contract.VERSION,
            "grad": torch.is_grad_enabled(),
            "python_ops": registrations(),
            **({"sized_functions": sorted(map(label, self.sized_functions))} if self.sized_functions else {}),
        }

    def call(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], arguments: list[torch.Tensor], fingerprint: Fingerprint
    ) -> Call:
        """Returns the call, whose tensors are `arguments`; raises Bypass for one that no graph can serve."""
        parameters, buffers = named_parameters(self._module), named_buffers(self._module) | fingerprint.bound
        _check_devices(arguments, {**parameters, **buffers})
        if torch.is_grad_enabled() and any(tensor.is_inference() for tensor in arguments):
            raise Bypass(Reason.INFERENCE_MODE, "an argument was made in inference mode, which has no gradients; pass a clone")
        unread = tuple(fingerprint.unread)
        return Call(self._module, args, kwargs, arguments, parameters, buffers, torch.is_grad_enabled(), unread)

    def plan(self, arguments: list[torch.Tensor], earlier: Sequence[list[list[Any]]], small: int) -> ExportPlan:
        """Says what an export of a call with these tensors is to leave open.

        arguments: the call's tensors, in flattening order
        earlier: sizes that were exported, of calls that differ in these only
        small: exports of such calls that ended as sizes that depend on data were 0
        """
        return ExportPlan(
            Shapes.of(arguments, self.dynamic, earlier),
            small_sizes=small >= _CALLS_FOR_LARGER or self._options.forbids_eager,
            sized_functions=self.sized_functions,
            inline_functions=self._options.inline_functions,
            eager_numerics=self._options.numerics == "eager",
        )

    def explain(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Explanation:
        """Says why the call hits or misses; runs nothing of the module and changes nothing."""
        again = lambda: self.fingerprint(args, kwargs)  # noqa: E731
        try:
            fingerprint = again()
            arguments = contract.flatten_arguments(args, kwargs)
            self.call(args, kwargs, arguments, fingerprint)
            store = Store.open(self._options, readonly=True)
            return store.explain(store.prekey(fingerprint), fingerprint, again, arguments)
        except Bypass as bypass:
            return self.explain_bypass(bypass)

    def explain_bypass(self, bypass: Bypass) -> Explanation:
        """Says that calls are refused, and why."""
        from rekindle.lookup.explanation import Explanation  # which no hit needs

        return Explanation(label(type(self._module)), "bypass", str(bypass.reason), bypass.message)


def _check_devices(arguments: list[torch.Tensor], state: dict[str, torch.Tensor]) -> None:
    """Raises Bypass for tensors that are on a device without sessions, or not all on one."""
    names: dict[torch.device, str] = {}
    for name, tensor in (*((f"argument {i}", tensor) for i, tensor in enumerate(arguments)), *state.items()):
        names.setdefault(tensor.device, name)
    for device in names:
        if not has_sessions(device.type):
            raise Bypass(Reason.UNSUPPORTED_DEVICE, f"a tensor is on {device}; sessions run on the CPU and on CUDA")
    if len(names) > 1:
        places = ", ".join(f"{name} on {device}" for device, name in names.items())
        raise Bypass(Reason.UNSUPPORTED_DEVICE, f"a session runs on one device, but {places}; move them to one")
