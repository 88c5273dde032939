"""Runs every case of function_cases*.py in eager and from graphs, and prints what differs: a JSON object, name -> text.

    python function_process.py cold | warm NAME...

warm: the forward of the module is forbidden, whatever code of it runs. NAME: a case. See test_python_ops.py.
"""

from __future__ import annotations

import gc
import json
import logging
import sys
import traceback
from typing import Any

import function_cases_calls  # noqa: F401
import function_cases_kinds  # noqa: F401
import function_cases_memory  # noqa: F401
import function_cases_results  # noqa: F401
import rekindle
import torch
from function_cases import FUNCTIONS, LOG
from module_support import assert_same
from semantics_support import rows
from torch import nn
from torch.autograd.function import BackwardCFunction


class _Calls(logging.Handler):
    """What the Functions log."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage().split(" at 0x")[0])


def steps(model: nn.Module, module: nn.Module) -> Any:
    """Three steps, the second of another batch size; then one without gradients."""
    torch.manual_seed(3)
    calls = _Calls()
    LOG.setLevel(logging.INFO)
    LOG.addHandler(calls)
    found = []
    for size in (5, 3, 5):
        x = rows(size, size, 4).requires_grad_()
        result = model(x)
        result.float().square().sum().backward()
        state = [tensor for parameter in module.parameters() for tensor in (parameter.grad, *vars(parameter).values())]
        found.append(
            [result.detach(), x.grad, *(tensor.clone() if isinstance(tensor, torch.Tensor) else tensor for tensor in state)]
        )
        module.zero_grad()
    with torch.no_grad():
        found.append(model(rows()))
    LOG.removeHandler(calls)
    return [found, calls.messages, torch.get_rng_state()]


def contexts() -> int:
    """Contexts of Functions that are alive."""
    gc.collect()
    return sum(isinstance(each, BackwardCFunction) for each in gc.get_objects())


class _Forbidden:
    """No code of a module's forward runs inside."""

    def __init__(self, module: nn.Module) -> None:
        self._code = type(module).forward.__code__

    def __enter__(self) -> None:
        sys.setprofile(self._look)

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)

    def _look(self, frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code is self._code:
            raise AssertionError("the module's forward runs")


def check(name: str, warm: bool) -> None:
    torch.manual_seed(0)
    module = FUNCTIONS[name]()
    torch.manual_seed(0)
    own = FUNCTIONS[name]()  # not a copy of the other: a copied parameter has lost its attributes
    theirs = steps(module, module)
    model = rekindle.Module(own, rekindle.Options(fallback="error", log="error"))
    before = contexts()
    if warm:
        with _Forbidden(own):
            ours = steps(model, own)
    else:
        ours = steps(model, own)
    assert_same(ours[0], theirs[0])
    assert torch.equal(ours[2], theirs[2]), "the state of the random generator"
    status = rekindle.status(model)
    assert (status.source, status.eager_calls) == ("local" if warm else "export", 0), status
    if warm and not name.startswith("checkpoint of a Function"):  # a checkpoint in a graph does not run its forward twice
        assert ours[1] == theirs[1], f"calls {ours[1]} instead of {theirs[1]}"
        assert contexts() == before, f"{contexts() - before} contexts are left"


def main() -> None:
    gc.collect()
    gc.freeze()  # what is there now is not looked at again
    found = {}
    kind, *names = sys.argv[1:]
    for name in names:
        try:
            check(name, kind == "warm")
            found[name] = ""
        except Exception:
            found[name] = traceback.format_exc(limit=-4)
    rekindle.lookup.store.flush()
    print(json.dumps(found))


if __name__ == "__main__":
    main()
