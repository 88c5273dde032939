"""Makes visible what a trace would silently lose, while the module's forward runs.

A TorchFunctionMode sees every torch call of the forward. It makes stop-gradients explicit (`detach`, `.data`, and `no_grad`
regions: there `x * 2` is traced as `(x * 2).detach()`), answers questions about sizes (open_sizes.py; outside the trace where all
are fixed), and refuses what a graph cannot repeat: branches on tensor values, in-place writes to parameters, changes of grad
mode.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map_only

from rekindle.export.request import Call
from rekindle.export.trace.aliases import Aliases, take_value_of
from rekindle.export.trace.assumptions import Assumptions
from rekindle.export.trace.autocast_operators import mark_autocast
from rekindle.export.trace.checkpoint_writes import CheckpointWrites
from rekindle.export.trace.constants import Constants
from rekindle.export.trace.data_sizes import DataSizes
from rekindle.export.trace.failed_calls import FailedCalls, tracing_on
from rekindle.export.trace.in_place import computed_apart, exchanged, is_in_place, target_of
from rekindle.export.trace.interpolated_sizes import SizeInTrace, interpolates
from rekindle.export.trace.leaves import tensors_of
from rekindle.export.trace.left_out import is_left_out
from rekindle.export.trace.open_sizes import SIZE_QUERIES, OpenSizes
from rekindle.export.trace.packed_sequences import ask_of_states
from rekindle.export.trace.questions import refuse_answer
from rekindle.export.trace.refusals import refuse, refuse_write
from rekindle.export.trace.replacements import DRAWING, REPLACEMENTS, overwrite_out
from rekindle.export.trace.small_sizes import ask_for_small
from rekindle.export.trace.user_place import user_place
from rekindle.export.trace.view_records import ViewRecords
from rekindle.export.trace.view_writes import ViewWrites
from rekindle.export.unchecked import Allowed, allowed_by
from rekindle.process.random_states import drawn_between, position_of, random_states
from rekindle.process.torch_internals import traced_value, tracing_state, untraced
from rekindle.reasons import Bypass, Reason, SizedByData

_IS_CAUSAL_MASK = torch.nn.modules.transformer._detect_is_causal_mask.__code__
_straight_through = torch.ops.rekindle.straight_through.default  # found once: looking it up changes torch.ops
_UNANSWERED = object()


class TraceMode(TorchFunctionMode):
    """Sees each call of torch, active around the one forward of an export.

    call: what runs; its arguments and buffers may be written, its parameters must not be
    sizes: None where all sizes are fixed, and none may depend on `data`
    assumptions: take note of what may be assumed of values
    note_draw: called with what random numbers were drawn for
    """

    def __init__(
        self,
        call: Call,
        sizes: OpenSizes | None,
        data: DataSizes,
        assumptions: Assumptions,
        note_draw: Callable[[torch.Tensor], None] = lambda drawn: None,
    ) -> None:
        super().__init__()
        parameters, writable = [*call.parameters.values()], [*call.arguments, *call.buffers.values()]
        self._given = {id(tensor) for tensor in (*parameters, *writable)}
        self.protected = {tensor.untyped_storage().data_ptr() for tensor in parameters} - {0}  # addresses; empty ones share 0
        self.kept: dict[int, tuple[torch.Tensor, str]] = {}  # see refusals.py
        self._writable = {tensor.untyped_storage().data_ptr() for tensor in writable}
        self._grad, self.device = call.grad, call.device
        self._view_writes = ViewWrites()
        self._sizes, self._data, self._assumptions = sizes, data, assumptions
        self.autocast_dtypes: set[torch.dtype] = set()  # of the regions, around the forward or in it, in which torch was called
        self.allowed = Allowed.ANYTHING  # what the forward may be tried on
        self.views = None if sizes is None else ViewRecords(sizes.shape)
        self._aliases = Aliases(call.grad, self.views, [*parameters, *writable])
        self.wrote_unseen, self._note_draw = self._aliases.wrote_unseen, note_draw
        self._drawn: set[int] = set()  # numbers of traced values that random numbers were drawn for
        self._constants = Constants(self._drawn)
        self.failed_calls = FailedCalls(sizes, data)
        self.checkpoint_writes = CheckpointWrites(call)
        self._refused: Bypass | None = None

    def __torch_function__(self, function: Any, kinds: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            return self._on_call(function, kinds, args, kwargs or {}, sys._getframe(1))
        except Bypass as bypass:
            self._refused = self._refused or bypass
            raise

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        """Raises what was refused, should the forward have caught it."""
        super().__exit__(kind, error, trace)
        del self._note_draw  # of those who hold this mode: garbage for the collector would keep the copy of the module
        if self._refused is not None and error is not self._refused:
            raise self._refused from error

    def _on_call(self, function: Any, kinds: Any, args: Any, kwargs: dict[str, Any], caller: types.FrameType) -> Any:
        self.allowed = min(self.allowed, allowed_by(function))
        if tracing_state() is None:  # inside of an autograd Function: to the graph it is one op, whatever it does
            return self._constants.apart(function, args, kwargs)
        if is_left_out(function, caller):
            with untraced():
                return function(*args, **kwargs)
        if function in SIZE_QUERIES:
            return self._size(function, args, kwargs, caller)
        asked = function, args, kwargs
        self.checkpoint_writes.before(caller)
        if self._sizes is not None:
            if (constant := self._sizes.constant(function, args, kwargs)) is not None:
                return constant
            if (cuts := self._sizes.cuts(function, args, kwargs)) is not None:
                parts = [self._on_call(torch.Tensor.__getitem__, kinds, (cuts[0], place), {}, caller) for place in cuts[1]]
                self._view_writes.made_parts(parts)
                return tuple(parts)
            ask_of_states(self._sizes, function, args)
            args, kwargs = self._sizes.given(function, args, kwargs)
        if (answer := self._answer(function, args, kwargs, caller)) is not _UNANSWERED:
            return answer
        refuse(function, args, kwargs, caller, self._given)
        if function == torch.Tensor.data.__get__:  # a new object each time it is asked for
            self.up_to_date(args[0])
            data = args[0].detach()
            self.up_to_date(data)
            self._aliases.gave_data(data)
            self._note_views(function, args, kwargs, data)
            return data
        self.autocast_dtypes.update(map(torch.get_autocast_dtype, filter(torch.is_autocast_enabled, ("cpu", "cuda"))))
        return self._recorded(function, args, kwargs, asked)

    def _answer(self, function: Any, args: Any, kwargs: dict[str, Any], caller: types.FrameType) -> Any:
        """Answers with a Python value, or a constant to the trace; gives _UNANSWERED for all else."""
        if function == torch.tensor and not tensors_of((args, kwargs)):
            with untraced():  # a constant, whatever it is made of
                return function(*args, **kwargs)
        if self._constants.answer(function, args, kwargs):
            self.up_to_date((args, kwargs))
            with untraced():
                return function(*args, **kwargs)
        if function == torch.Tensor.__bool__ and caller.f_code is _IS_CAUSAL_MASK:
            return False  # it asks whether it may leave out a mask that it has: not to do so is right for any mask
        if self._assumptions.is_question(function, caller):
            self.up_to_date(args)
            return self._assumptions.answer(args[0], user_place(), caller)
        return _UNANSWERED

    def _recorded(self, function: Any, args: Any, kwargs: dict[str, Any], asked: tuple[Any, Any, dict[str, Any]]) -> Any:
        """Returns the result of a call that becomes part of the graph. asked: the call as the forward made it."""
        in_place = is_in_place(function, args, kwargs)
        refuse_write(function, args, kwargs, self._is_writable, self.protected, self.kept)
        stopped = self._grad and not torch.is_grad_enabled()
        if in_place:
            self._constants.write(target_of(args, kwargs), (args, kwargs))
        if in_place and not stopped:
            self._view_writes.refuse(function, target_of(args, kwargs), (args, kwargs))
        if in_place and stopped:
            # A write in a no_grad region leaves a tensor that the forward has computed the gradient that it has.
            target = target_of(args, kwargs)
            keeps_gradient = isinstance(target, torch.Tensor) and target.requires_grad and not target.is_leaf
            if keeps_gradient and function not in DRAWING and not self._is_writable(target) and not self._aliases.shared(target):
                return self._written_unseen(function, args, kwargs)
            args, kwargs = self._without_gradients(args, kwargs)
        if not (in_place and function in DRAWING):
            function = REPLACEMENTS.get(function, function)
        try:
            result = self._call(function, args, kwargs, in_place)
        except Exception as error:
            self.failed_calls.note(*asked, error)
            raise
        refuse_answer(function, args, result, self._given)
        self._check_grad_mode((result, target_of(args, kwargs)) if in_place else result)
        sized_by_data = self._data.made(result)
        if self._sizes is not None:
            self._sizes.check(function, args, kwargs, result, sized_by_data)
            ask_for_small(self._sizes, function, args, kwargs, result, sized_by_data)
        elif sized_by_data:
            raise SizedByData(f"{user_place()} ({getattr(function, '__name__', function)})")
        if stopped and not in_place:
            result = tree_map_only(torch.Tensor, self._stopped, result)
            self.up_to_date(result)
        self._note_views(*asked, result)
        return result

    def _check_grad_mode(self, made: Any) -> None:
        if torch.is_grad_enabled() and not self._grad and any(tensor.requires_grad for tensor in tensors_of(made)):
            raise Bypass(Reason.GRAD_MODE_REGION, f"{user_place()} enables gradients inside a no_grad call, and computes one")

    def _note_views(self, function: Any, args: Any, kwargs: dict[str, Any], result: Any) -> None:
        if self.views is not None:
            self.views.made(function, args, kwargs, result)

    def _size(self, function: Any, args: Any, kwargs: Any, caller: types.FrameType) -> Any:
        """Answers a question about sizes."""
        if self._sizes is not None:
            answer = self._sizes.answer(function, args, kwargs)
        else:
            with untraced():
                answer = function(*args, **kwargs)
        return SizeInTrace(int(answer)) if len(args) > 1 and function is torch.Tensor.size and interpolates(caller) else answer

    def _call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], in_place: bool) -> Any:
        self.up_to_date((args, kwargs))
        target = target_of(args, kwargs)
        if in_place and (computed := computed_apart(function, args, kwargs)) is not None:
            return self._call(overwrite_out, (target, self._traced_with_draws(*computed)), {}, True)
        if in_place and isinstance(target, torch.Tensor) and self._aliases.shared(target):

            def change(copy: torch.Tensor) -> Any:
                return self._traced_with_draws(function, exchanged(args, target, copy), exchanged(kwargs, target, copy))

            result = self._aliases.write(target, change)
        else:
            if in_place and isinstance(target, torch.Tensor):
                self._set_apart(target)
            result = self._traced_with_draws(function, args, kwargs)
        self.up_to_date(result)
        return result

    def _set_apart(self, target: torch.Tensor) -> None:
        """Sets the target of a write apart, before a write that no other tensor sees.

        The exporter moves down to the write what made the target, past other draws if that draws, and takes a write to an empty
        view for one to all that it is a view of.
        """
        if traced_value(target).unique() in self._drawn or target._is_view():
            take_value_of(target, target.clone())

    def up_to_date(self, values: Any) -> None:
        """Makes what is traced of the tensors in `values` what they hold, should others have written their memory."""
        for value in tensors_of(values):
            self._aliases.meet(value)

    def renew(self, tensors: Iterable[torch.Tensor]) -> None:
        """Does as up_to_date for what the forward leaves behind; some of it are views' bases, which no call has shown."""
        for tensor in tensors:
            self._aliases.renew(tensor)

    def _traced_with_draws(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Keeps what draws random numbers, whether its results are read or not: the next draw gives what follows."""
        with untraced():
            before = random_states()
        result = tracing_on(function, args, kwargs)
        with untraced():
            drew = drawn_between(before, random_states())
            if drew - {position_of(self.device)}:
                message = f"{user_place()} draws random numbers elsewhere than on {self.device}, where the call's tensors are"
                raise Bypass(Reason.UNSUPPORTED_DEVICE, f"{message}; name the device")
        mark_autocast((args, kwargs), result, self.device)
        drawn = tensors_of(result)
        if drew and drawn:
            self._drawn.update(traced_value(value).unique() for value in drawn)
            self._note_draw(drawn[0])
        return result

    def _written_unseen(self, function: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        """Does a write that autograd does not see: the tensor has another value, and to autograd it is what it was."""
        target = target_of(args, kwargs)
        self.up_to_date((args, kwargs))
        written = target.detach().clone()
        args, kwargs = self._without_gradients(exchanged(args, target, written), exchanged(kwargs, target, written))
        result = self._call(REPLACEMENTS.get(function, function), args, kwargs, in_place=True)
        value = _straight_through(written, target)
        with untraced():
            target.copy_(written)
        take_value_of(target, value)
        return target if result is written else result

    def _without_gradients(self, args: Any, kwargs: dict[str, Any]) -> Any:
        """Returns the arguments of a write in a no_grad region without gradients: autograd does not see what is written."""
        target = target_of(args, kwargs)
        if isinstance(target, torch.Tensor) and target.requires_grad:
            raise Bypass(
                Reason.GRAD_MODE_REGION, f"{user_place()} writes in place inside a no_grad region to a tensor that has a gradient"
            )
        self.up_to_date((args, kwargs))

        def stop(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.detach() if tensor.requires_grad and tensor is not target else tensor

        return tree_map_only(torch.Tensor, stop, (args, kwargs))

    def _stopped(self, tensor: torch.Tensor) -> torch.Tensor:
        detached = tensor.detach()
        self._view_writes.made_without_grad(tensor, detached)
        if self._sizes is not None:
            self._sizes.check(torch.Tensor.detach, (tensor,), {}, detached, sized_by_data=False)
        return detached

    def check_views(self, layout: Any) -> None:
        """Raises Bypass(unsupported_output) for a result (results/contract.py) that may hold a view made in a no_grad region."""
        if self._view_writes.some_without_grad and any(view["detached"] for view in layout.get("with_views", ())):
            raise Bypass(Reason.UNSUPPORTED_OUTPUT, "an output may be a view that was made in a no_grad region; return a clone")

    def _is_writable(self, target: Any) -> bool:
        return isinstance(target, torch.Tensor) and target.untyped_storage().data_ptr() in self._writable
