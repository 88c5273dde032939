"""A process ends as it should, whatever of a wrapped module is still alive then."""

from __future__ import annotations

import pytest
import python_process

PROGRAM = """
import atexit, sys, threading, torch, rekindle
from torch import nn

class Fragile(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return 2 * x
    @staticmethod
    def backward(ctx, gradient):
        if float(ctx.saved_tensors[0].detach().abs().max()) > 100:
            raise ArithmeticError("too large")
        return 2 * gradient

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
    def forward(self, x):
        return Fragile.apply(torch.tanh(self.linear(x)) * x)

def failing(model, **arguments):
    y = model(1e6 * torch.ones(3, 4))
    try:
        torch.autograd.grad(y.sum(), [*model.parameters()], **arguments)
    except ArithmeticError:
        return y
    raise AssertionError("no error")

def elsewhere(model):
    # the error comes first: the engine keeps what waits for its turn until its thread ends
    y = model(torch.ones(3, 4))
    later = Fragile.apply(1e6 * torch.ones(3, 4, requires_grad=True))
    try:
        (y.sum() + later.sum()).backward()
    except ArithmeticError:
        return
    raise AssertionError("no error")

def hook(gradient):
    raise LookupError("of a hook")

def raising(model):
    y = model(torch.ones(3, 4))
    handle = y.register_hook(hook)
    other = model.linear.weight.register_hook(hook)
    try:
        y.sum().backward()
    except LookupError:
        pass
    handle.remove()
    try:
        model(torch.ones(3, 4)).sum().backward()
    except LookupError:
        other.remove()
        return y
    raise AssertionError("no error")

model = rekindle.Module(Net(), rekindle.Options(cache="off", fallback="error"))
model(torch.ones(3, 4)).sum().backward()
what = sys.argv[1]
if what == "kept":
    kept = failing(model), model(torch.ones(3, 4)), raising(model)
    gradient = torch.autograd.grad(model(torch.ones(3, 4)).sum(), model.linear.weight, create_graph=True)
    atexit.register(lambda: model(torch.ones(3, 4)).sum().backward())
elif what == "dropped":
    failing(model)
    failing(model, create_graph=True)
    raising(model)
    elsewhere(model)
    del model
elif what == "waiting":
    elsewhere(model)
    elsewhere(model)
else:
    threads = [threading.Thread(target=failing, args=(model,)) for _ in range(3)]
    threads += [threading.Thread(target=elsewhere, args=(model,))]
    threads += [threading.Thread(target=raising, args=(rekindle.Module(Net(), rekindle.Options(cache="off")),))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    kept = failing(model)
print("done")
"""


@pytest.mark.parametrize("what", ["kept", "dropped", "waiting", "threads"])
def test_a_process_ends_after_errors_in_backwards(what: str) -> None:
    done = python_process.run("-c", PROGRAM, what)
    assert (done.returncode, done.stdout) == (0, "done\n"), done.stderr
