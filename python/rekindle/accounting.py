"""Accounts for the memory of one call and its training step, rekindle.memory(...), and gives idle memory back."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from rekindle import _native
from rekindle.module import Module, runtime_of, unwrap

if TYPE_CHECKING:
    from rekindle.account.record import MemoryAccount


def memory(model: Module, *args: Any, optimizer: Any = None, **kwargs: Any) -> MemoryAccount:
    """Returns what `model(*args, **kwargs)`, its backward and the optimizer's step take of memory, in bytes; see MemoryAccount.

    The figures are those of the plan that the call runs, made now if there is none: neither the forward nor a backward is run. A
    graph is looked up, or exported, as by a first call. Only where none can be had is the forward run, once, in eager, for the
    sake of its submodules' graphs: on copies of the arguments, and buffers and random states are then what they were before.

    args, kwargs: those of the forward; hooks of the module are not asked
    optimizer: the torch.optim.Optimizer that trains the model; its state is counted, and its step is a part of the account. None:
        neither is.

    Raises TypeError for a module that is not wrapped, arguments that the forward does not take, or an optimizer without state;
    and what the call raises in eager, if it has no graph.
    """
    runtime = runtime_of(model, "memory")
    module = unwrap(model)
    try:
        inspect.signature(module.forward).bind(*args, **kwargs)
    except TypeError as error:
        raise TypeError(
            f"rekindle.memory needs the arguments of a call of {type(module).__qualname__}, as model(...) takes them: {error}"
        ) from None
    from rekindle.calls.accounting import account  # with what else only exports and comparisons need

    return account(module, runtime, args, kwargs, optimizer)


def release_memory() -> int:
    """Gives the memory that no call uses now back to the system, and returns its bytes. The next step takes it anew.

    That are arenas between steps, on all devices, and what was freed and is kept for the next step of the process
    (`Status.kept_bytes`), as gradients after `zero_grad()`. For example, after the training, before a large evaluation elsewhere.
    """
    return int(_native.release_idle_arenas()) + int(_native.release_free_memory())
