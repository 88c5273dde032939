"""Lists what changes before a step of a module with autograd Functions, and how a step calls and differentiates it."""

from __future__ import annotations

import functools
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import stepwise_backwards
import torch
from stepwise_backwards import Call
from torch.utils.checkpoint import checkpoint

# Statements about `net`, the module, and `mod`, the Python module that has its class. They last.
CHANGES = {
    "nothing": "",
    "attribute": "net.k += 0.3",
    "global": "mod.FACTOR += 0.5",
    "flag": "mod.FLAG = not mod.FLAG",
    "object": "net.settings.k += 0.25",
    "another object": "net.settings = mod.Settings(); net.settings.k = 0.4",
    "global object": "mod.SETTINGS.k += 0.25",
    "class": "mod.Settings.scale += 0.25",
    "class of the Function": "mod.F0.K += 0.5",
    "list": "net.numbers[0] += 0.4",
    "another list": "net.numbers = [0.1, 0.2]",
    "dict": "net.names['q'] += 0.4",
    "another dict": "net.names = {'q': 2.0}",
    "notes": "net.notes.clear()",
    "written tensor": "mod.TABLE.mul_(1.5)",
    "another tensor": "mod.TABLE = mod.TABLE * 0.7",
    "another function": "net.function = mod.by_factor",
    "default": "mod.number.__defaults__ = (1.5,)",
    "backward": "double_gradients(mod.F0)",
    "forward": "hand_on(mod.F0)",
    "frozen vector": "net.vector.requires_grad_(False)",
    "frozen layer": "net.linear.requires_grad_(False)",
    "thawed": "net.requires_grad_(True)",
    "frozen weight": "net.weight.requires_grad_(False); net.linear.bias.requires_grad_(False)",
    "written parameter": "with torch.no_grad(): net.weight.mul_(0.8); net.vector.add_(0.1)",
    "another parameter": "net.vector = torch.nn.Parameter(net.vector.detach() * 2)",
    "written buffer": "net.buffer.add_(0.3)",
    "another buffer": "net.buffer = net.buffer * 0.5",
    "number of dropout": "net.dropout.p = 0.1",
}
LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "rows": lambda x: x,
    "columns": lambda x: x.t().contiguous().t(),
    "every second": lambda x: x.repeat_interleave(2, 0)[::2],
    "expanded": lambda x: x[:1].expand(x.shape),
}


def change(text: str, net: torch.nn.Module, mod: Any) -> None:
    """Makes a change to a module, or to what is defined beside it."""
    exec(text, {"net": net, "mod": mod, "torch": torch, "double_gradients": _double_gradients, "hand_on": _hand_on})


def _double_gradients(function: Any) -> None:
    """Puts another backward in the place of a Function's."""
    before = function.backward

    def backward(ctx: Any, *gradients: Any) -> Any:
        found = before(ctx, *gradients)
        known = found if isinstance(found, tuple) else (found,)
        return tuple(None if each is None else each * 2 for each in known)

    function.backward = staticmethod(backward)


def _hand_on(function: Any) -> None:
    """Puts another forward in the place of a Function's, which calls it."""
    before = function.forward
    function.forward = staticmethod(lambda *given: before(*given))


def _autocast(call: Call) -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16):
        call.forward()
    call.loss.backward()


def _of_inputs(call: Call) -> None:
    call.inputs[0].requires_grad_()
    call.keep(torch.autograd.grad(call.forward().loss, call.inputs, allow_unused=True))


def _checkpointed(call: Call, use_reentrant: bool) -> None:
    call.inputs[0].requires_grad_()  # without which a re-entrant one has no gradient
    call.called = functools.partial(checkpoint, call.called, use_reentrant=use_reentrant)
    call.forward().loss.backward()


def _all(call: Call) -> Any:
    """Returns the sum of all results that require gradients."""
    return sum(x.sum() for x in call.leaves if isinstance(x, torch.Tensor) and x.requires_grad)


def _all_hooked(call: Call) -> None:
    call.forward().scores.register_hook(lambda gradient: 2 * gradient)
    _all(call).backward()


def _some_of_all(call: Call) -> None:
    call.keep(torch.autograd.grad(_all(call.forward()), call.parameters(), allow_unused=True))


def _write_to_buffer(call: Call) -> None:
    call.forward()
    with torch.no_grad():
        call.module.buffer.mul_(2)
    call.loss.backward()


def _thread(call: Call) -> None:
    with ThreadPoolExecutor(1) as other:
        other.submit(call.forward().loss.backward).result()


# By name; those that begin with "write" may raise where the other side does not.
BACKWARDS: dict[str, Callable[[Call], Any]] = stepwise_backwards.BACKWARDS | {
    "forward in autocast": _autocast,
    "of inputs": _of_inputs,
    "all, hooked": _all_hooked,
    "some of all": _some_of_all,
    "in a checkpoint": lambda call: _checkpointed(call, False),
    "in a re-entrant checkpoint": lambda call: _checkpointed(call, True),
    "write to the buffer": _write_to_buffer,
    "in a thread": _thread,
}
# For gradients of gradients (docs/python-ops.md), for what comes to an inner result (decision 10), and for what no plan is for
# (session/autograd/needs_eager.h), the forward runs once more, so that its Functions log again.
LOGGED_AGAIN = (
    "second", "second, saved on the CPU", "of scores", "retained", "hooked", "all, hooked",
    "nothing for scores", "sparse for scores", "under a mode",
)  # fmt: skip
