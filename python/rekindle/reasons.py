"""Says why a call cannot be served from a cached graph: one closed list of reasons, and the exceptions that carry them."""

from __future__ import annotations

import enum
import re
from collections.abc import Sequence
from typing import Protocol, Self


class Reason(enum.StrEnum):
    """Names a reason for a bypass.

    Each has one counter and one section of docs/bypasses.md; the text of a `Bypass` names the thing and the remedy.
    """

    OPAQUE_VALUE = "opaque_value"  # a value, or the owner of code that ran, that cannot be digested
    HOOKS = "hooks"  # a forward or backward hook, on a module or global
    VALUE_SPECIALIZED = "value_specialized"  # Python control flow depended on a tensor's value
    NONDETERMINISTIC = "nondeterministic"  # a clock, an entropy source or a Python/NumPy random generator was used
    STATE_MUTATED = "state_mutated"  # the forward changed a Python attribute or a global
    SIDE_EFFECT = "side_effect"  # the forward prints, logs or registers hooks on tensors
    BUFFER_MUTATED = "buffer_mutated"  # a buffer was written in a way the graph cannot write back
    INPUT_MUTATED = "input_mutated"  # an input was written in place
    PYTHON_OP = "python_op"  # a custom autograd.Function that cannot run from the graph
    UNSUPPORTED_OP = "unsupported_op"  # an op that the exporter or the graph does not have
    UNSUPPORTED_INPUT = "unsupported_input"  # an argument that is neither a tensor, a plain value nor a container
    UNSUPPORTED_OUTPUT = "unsupported_output"  # an output that cannot be rebuilt from tensors
    MODE_STACK = "mode_stack"  # a TorchFunction or TorchDispatch mode, functorch, tracing, saved-tensor hooks
    INFERENCE_MODE = "inference_mode"  # an argument was made in inference mode, and gradients are on
    GRAD_MODE_REGION = "grad_mode_region"  # the forward switches grad mode in a way the graph cannot honour
    VERIFICATION_FAILED = "verification_failed"  # the graph's results differ from eager's
    EXPORT_FAILED = "export_failed"  # the exporter raised
    GRAPH_FAILED = "graph_failed"  # the graph raised an error where eager goes on
    DISABLED = "disabled"  # the cache is off: nothing is looked up
    UNSUPPORTED_DEVICE = "unsupported_device"  # a device without a session
    DATA_PARALLEL = "data_parallel"  # nn.DataParallel replicates modules per call
    CHANGED_DURING_EXPORT = "changed_during_export"  # an input of the key moved while the export ran
    OUT_OF_MEMORY = "out_of_memory"  # the device had no memory left for an export
    BACKGROUND = "background"  # a helper process makes the graph, and is not done
    TRIED_ENOUGH = "tried_enough"  # exports after the first ones have taken their share of the time
    BUSY = "busy"  # another thread exports, and seems to wait for this one

    @property
    def anchor(self) -> str:
        """Returns where the documentation says what causes it, what runs instead, and what to do."""
        return f"docs/bypasses.md#{self.value}"


class Until(Protocol):
    """Tells how long something stands, as a guard does."""

    def check(self) -> bool:
        """Tells whether it still does."""


class Bypass(Exception):
    """Says that a call has to run in eager.

    reason: counted
    message: for a person to act on
    observations: what the export that ended with it had read by then, as of recording/observations.py; None where nothing was
        exported, or where what was read does not tell all that led to it
    attribute: the path of the module's attribute that has no digest, where that is the reason
    """

    def __init__(self, reason: Reason, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.reason = reason
        self.message = message
        self.observations: list[list[str | None]] | None = None
        self.attribute: str | None = None

    @property
    def cause(self) -> tuple[Reason, str]:
        """Returns what is equal for bypasses with one cause: sizes and other numbers in the message do not count."""
        return self.reason, re.sub(r"\d+", "#", self.message)

    def forgotten(self) -> Self:
        """Returns the same without what led to it.

        A traceback, or the error behind it, would keep the tensors of a call alive.
        """
        self.__traceback__ = self.__cause__ = self.__context__ = self.observations = None
        return self

    def text(self) -> str:
        """Returns one line for a log or an error: reason, what and what to do, and where to read more."""
        return f"{self.reason}: {self.message} (see {self.reason.anchor})"


class SizedByData(Bypass):
    """Says that sizes depend on data where an export took them for fixed: an export that follows them may serve the call.

    function: the autograd Function whose results have them, if it is one
    """

    def __init__(self, what: str, function: type | None = None) -> None:
        reason = Reason.UNSUPPORTED_OP if function is None else Reason.PYTHON_OP
        super().__init__(reason, f"the sizes of what {what} returns depend on data")
        self.function = function


class SmallByData(Bypass):
    """Says that a size that depends on data is 0 in this call, or in that of the graph alone: such a graph is for no others."""

    def __init__(self, message: str) -> None:
        super().__init__(Reason.VALUE_SPECIALIZED, message)


class Disturbed(Bypass):
    """Says that an export failed while other threads were at work, which may be why: the next call may fare better."""


class ReadsAttribute(Bypass):
    """Says that a forward reads an attribute of its modules that it was taken not to read.

    name: of the attribute; "" if it reads all that an object has
    """

    def __init__(self, name: str, how: str = "") -> None:
        what = f"the attribute {name}, which" if name else f"all attributes of an object{how}, one of which"
        super().__init__(Reason.OPAQUE_VALUE, f"the forward reads {what} has no digest, or changes between calls")
        self.name = name


class SetsAttributes(Bypass):
    """Says that a forward sets attributes of its modules that its key has: a graph could set them, were they no part of it.

    message: what the call is told where they are part of it
    paths: of the attributes, as in a fingerprint
    """

    def __init__(self, message: str, paths: Sequence[str]) -> None:
        super().__init__(Reason.STATE_MUTATED, message)
        self.paths = list(paths)


class Passing(Bypass):
    """Says why this call runs in eager, and nothing about the next."""


class OutOfMemory(Passing):
    """Says that an export did not get the memory that it needs beside the model's."""

    def __init__(self, message: str) -> None:
        super().__init__(Reason.OUT_OF_MEMORY, message)


class Busy(Passing):
    """Says that another thread's export does not end while this one waits for it, and nothing about the module."""

    def __init__(self, message: str) -> None:
        super().__init__(Reason.BUSY, message)


class Waiting(Bypass):
    """Says that the graph of a call has to wait: `until` tells whether it still has to. That is no attempt that failed."""

    def __init__(self, reason: Reason, message: str, until: Until) -> None:
        super().__init__(reason, message)
        self.until = until


class InBackground(Waiting):
    """Says that a helper process is making the graph of a call."""

    def __init__(
        self, helper: Until, what: str = "a helper process makes its graph, which serves calls once it is there"
    ) -> None:
        super().__init__(Reason.BACKGROUND, what, helper)


class SharedMemory(Bypass):
    """Says that a call is given, or finds, tensors that see memory which the graph writes; other calls are not concerned."""

    def __init__(self, what: str) -> None:
        message = f"the forward writes in place to {what}, which shares memory with another tensor; write to a clone"
        super().__init__(Reason.INPUT_MUTATED, message)


TRUTH = "its truth"  # what a guard asks of a tensor that is no size
SMALL = "a size of"  # how it begins if nobody asked: the trace is for this size, of 0 or 1, only


class OtherBranch(Bypass):
    """Says that the truth of a tensor is another for this call than when the graph was made (export/trace/assumptions.py)."""

    def __init__(self, place: str) -> None:
        message = f"{place} asks for the truth of a tensor, which is another than when the graph was made"
        super().__init__(Reason.VALUE_SPECIALIZED, message)
