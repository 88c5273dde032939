"""Makes calls of custom autograd Functions nodes of the torch domain, which call back into the live model (functions/calls.py).

While the forward of an export runs, each call goes through `Functions`: the Function runs as in eager and outside of the trace,
whatever it does, and the trace gets one node with its tensors. A Function that is inlined, or has an export of its own, is traced
like code of the module instead.

An example: `y = Scale.apply(x, 2.0)` becomes `y = torch::rekindle.call_host.default(x)` with the attribute function = 0;
`calls[0]` names `Scale` and its arguments.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import torch

from rekindle.export.torchscript.dtypes import NUMBERS
from rekindle.export.torchscript.operators import DOMAIN
from rekindle.export.torchscript.unread_nodes import unread_results
from rekindle.export.trace.data_sizes import DataSizes
from rekindle.export.trace.function_containers import GivenContainers, settled
from rekindle.export.trace.function_writes import Writes, address_of, kept_by_contexts
from rekindle.export.trace.open_sizes import OpenSizes
from rekindle.export.trace.refusals import refuse_kept, refuse_saved_tensors_hooks
from rekindle.export.trace.small_sizes import ask_for_small
from rekindle.export.trace.traced_operators import take_place_of
from rekindle.functions.calls import Call, describe_call, note_results, tensors_among
from rekindle.functions.inlining import inlined
from rekindle.functions.interception import intercepted
from rekindle.functions.result_sizes import Observed
from rekindle.process.torch_internals import Node, TupleType, Value, set_traced_value, traced_value, tracing_state, untraced
from rekindle.process.world import called_back
from rekindle.reasons import Bypass, Reason, SizedByData
from rekindle.recording.warnings_shown import not_logged
from rekindle.results.layouts import overlap

if TYPE_CHECKING:
    from rekindle.export.trace.trace_mode import TraceMode

_SINGLE = ("_sized_by_data", "_grad_there", "_own")  # attributes of a node that are no lists


class _Recorded(torch.autograd.Function):
    """Stands for a call in the trace: takes its tensors, gives what is in `results`."""

    @staticmethod
    def forward(ctx: Any, number: int, results: list[torch.Tensor], *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(results)


class Functions:
    """Records the calls of Functions in one export.

    inline: whether every Function is inlined
    sized_by_data: the Functions whose results have sizes that depend on data
    """

    def __init__(self, model: torch.nn.Module, inline: bool = False, sized_by_data: frozenset[type] = frozenset()) -> None:
        self.calls: list[Call] = []  # numbered as the nodes call them
        self._effects: list[
            tuple[list[Value], torch.Tensor]
        ] = []  # (results, what keeps them), of calls and random draws in order
        self._facts: list[dict[str, list[int]]] = []  # attributes of the nodes
        self.sizes: list[Observed] = []  # of the calls
        self._model = model
        self._containers = GivenContainers(model)
        self._inline = inline
        self._sized_by_data = sized_by_data
        self._sizes: OpenSizes | None = None
        self._data = DataSizes()
        self._mode: TraceMode | None = None
        self._autocast = 0  # around the forward; see _autocast_on

    def follow(self, sizes: OpenSizes | None, data: DataSizes, mode: TraceMode) -> None:
        """Takes the trace's records of sizes, of data and of memory."""
        self._sizes, self._data, self._mode = sizes, data, mode
        self._autocast = _autocast_on(mode.device)

    def recorded(self) -> contextlib.AbstractContextManager[None]:
        """Sees every call of this thread's trace."""
        return intercepted(self._apply)

    def _apply(self, function: type, arguments: tuple[Any, ...], run: Any) -> Any:
        if tracing_state() is None or function is _Recorded:
            return run(*arguments)
        found, result = inlined(function, arguments, self._inline)
        return result if found else self._record(function, settled(arguments), run)

    def _record(self, function: type, arguments: tuple[Any, ...], run: Any) -> Any:
        given = tensors_among(arguments)
        assert self._mode is not None
        refuse_saved_tensors_hooks()
        self._mode.up_to_date(given)
        with untraced():
            call, made = describe_call(function, arguments, given, self._model, self._containers.lasting)
            place = self._place_of(call, given)
            with self._containers.watched(function, made):
                writes, result = self._watched(function, arguments, given, run)
            results = list(result) if isinstance(result, tuple) else [result]
            tensors = [item for item in results if isinstance(item, torch.Tensor)]
            note_results(call, results, self._model, function)
            call.dirty = _dirty(function, given, writes)
            self._keep_for_backward(function, writes, tensors)
            why = f"the autograd Function {function.__qualname__} writes in place to memory that is read later"
            self._mode.wrote_unseen([*writes.memories.values()], tensors, why)
            device = self._mode.device
            tensors = tensors or [torch.zeros((), device=device)]  # something that shows that it ran
            if (other := next((tensor.device for tensor in tensors if tensor.device != device), None)) is not None:
                message = f"the autograd Function {function.__qualname__} returns a tensor on {other}, the call's are on {device}"
                raise Bypass(Reason.PYTHON_OP, message)
            if any(tensor.layout is not torch.strided for tensor in tensors):
                raise Bypass(
                    Reason.PYTHON_OP, f"the autograd Function {function.__qualname__} returns a tensor that is not dense"
                )
            stand_ins = [
                torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=tensor.device) for tensor in tensors
            ]
        with torch.no_grad():
            recorded = _Recorded.apply(len(self.calls), stand_ins, *given)
        for tensor, stand_in in zip(tensors, recorded, strict=True):
            set_traced_value(tensor, traced_value(stand_in))
        self._mode.up_to_date(tensors)
        self.calls.append(call)
        self._effects.append(([traced_value(tensor) for tensor in tensors], tensors[0]))
        self._facts.append({**place, **self._facts_of(function, given, tensors)})
        with untraced():
            self.sizes.append(Observed.of(function, given, tensors))
        return result

    def _keep_for_backward(self, function: type, writes: Writes, results: list[torch.Tensor]) -> None:
        """Notes what a call keeps in its context. Raises Bypass where it writes to what another one keeps there."""
        assert self._mode is not None
        for address in writes.memories:
            refuse_kept(address, self._mode.kept, lambda: f"the autograd Function {function.__qualname__}")
        for tensor in kept_by_contexts(results):
            self._mode.kept[address_of(tensor)] = tensor, function.__qualname__

    def _watched(self, function: type, arguments: tuple[Any, ...], given: list[torch.Tensor], run: Any) -> tuple[Writes, Any]:
        """Runs a call, and returns what it writes that was there before, and its result."""
        assert self._mode is not None
        before = [tensor._version for tensor in given]
        writes = Writes(self._mode.protected, f"the autograd Function {function.__qualname__}")
        before_it, called_back.active = called_back.active, True
        try:
            with writes, not_logged():  # the graph, which then runs, calls it and logs
                result = run(*arguments)
        finally:
            called_back.active = before_it
        if writes.refused is not None:  # and the Function has caught it
            raise writes.refused
        for tensor, version in zip(given, before, strict=True):
            if tensor._version != version:  # by a kernel that is no operator
                writes.note(tensor)
        return writes, result

    def note_draw(self, drawn: torch.Tensor) -> None:
        """Notes a result that random numbers were drawn for; called inside the trace."""
        self._effects.append(([traced_value(drawn)], drawn.detach().clone()))  # it may be written to

    def _place_of(self, call: Call, given: list[torch.Tensor]) -> dict[str, list[int]]:
        """Returns what a call that is about to run finds around it, as attributes of its node (src/graph/torch_node.h)."""
        assert self._mode is not None
        place = {"_needs": [i for i, tensor in enumerate(given) if tensor.requires_grad]}
        place["_own"] = [len(given) - call.tensors.count(None)]
        if torch.is_grad_enabled():
            place["_grad_there"] = [1]
        autocast = _autocast_on(self._mode.device)
        return place if autocast == self._autocast else {**place, "_autocast_there": [autocast]}

    def _facts_of(self, function: type, given: list[torch.Tensor], results: list[torch.Tensor]) -> dict[str, list[int]]:
        with untraced():  # a view that is made without autograd is a leaf: no gradient goes through it
            facts = {"_differentiable": [i for i, x in enumerate(results) if x.requires_grad and x.grad_fn is not None]}
        if function in self._sized_by_data:
            if self._sizes is None:
                raise SizedByData(f"the autograd Function {function.__qualname__}", function)
            self._data.note(results)
            ask_for_small(self._sizes, function, given, {}, results, from_data=True)
            return {**facts, "_sized_by_data": [1]}
        if self._sizes is not None:
            self._sizes.settle(given, results)
        with untraced():
            if all(tensor.dtype in NUMBERS for tensor in results):
                facts["_layouts"] = [n for x in results for n in (NUMBERS[x.dtype], x.dim(), *x.shape, *x.stride())]
            facts["_sizes"] = [number for x in given for number in (x.dim(), *x.shape)]
        return facts

    def unread(self, outputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """Returns what has to be outputs as well, so that all that eager does stays in the graph; see unread_results."""
        return unread_results(self._effects, outputs)

    def keep(self, graph: Any) -> None:
        """Replaces the calls in a traced graph by nodes of the torch domain.

        Raises Bypass(python_op) where the forward has written to a container that a Function keeps.
        """
        self._containers.check()
        for node in [node for node in graph.nodes() if node.kind() == "prim::PythonOp"]:
            function = getattr(node.pyobj(), "__self__", None)
            if function is not _Recorded:
                raise Bypass(Reason.PYTHON_OP, f"the Python operator {node.pyname()} is no autograd Function")
            self._replace(graph, node)

    def _replace(self, graph: Any, node: Node) -> None:
        number = node.scalar_args()[0]
        results = _results(node)
        inputs = list(node.inputs())
        made = graph.create(f"{DOMAIN}::rekindle.call_host.default", len(results))
        made.insertBefore(node)
        made.copyMetadata(node)
        for value in inputs:
            made.addInput(value)
        made.i_("inputs", len(inputs))
        made.i_("function", number)
        made.i_("_results", len(results))
        made.is_("_unused", [i for i, value in enumerate(results) if not value.uses()])
        for name, numbers in self._facts[number].items():
            made.i_(name, numbers[0]) if name in _SINGLE else made.is_(name, numbers)
        made.i_("_random", 1)  # nobody says what it does: it runs in its place, once
        take_place_of(node, made, results)


def _autocast_on(device: torch.device) -> int:
    """Returns the number of the dtype in which autocast computes on a device; 0 where it does not."""
    return NUMBERS[torch.get_autocast_dtype(device.type)] if torch.is_autocast_enabled(device.type) else 0


def _dirty(function: type, given: list[torch.Tensor], writes: Writes) -> list[int]:
    """Returns the positions of the tensors that a call writes: the graph gives it copies of these.

    Raises Bypass for a write to memory that several of its inputs share.
    """
    strided = [(i, address_of(tensor)) for i, tensor in enumerate(given) if tensor.layout is torch.strided and tensor.numel() > 0]
    dirty = [i for i, address in strided if address in writes.memories]
    for i in dirty:
        if any(overlap(given[i], given[j]) for j, address in strided if i != j and address == address_of(given[i])):
            raise Bypass(
                Reason.PYTHON_OP,
                f"the autograd Function {function.__qualname__} writes in place to memory that several of its inputs share",
            )
    return dirty


def _results(node: Node) -> list[Value]:
    outputs = list(node.outputs())
    if len(outputs) == 1 and isinstance(outputs[0].type(), TupleType):
        (unpack,) = [use.user for use in outputs[0].uses()]
        return list(unpack.outputs())
    return outputs
