"""What a call, its backward and writes to its results do, compared with eager's, cold and warm."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import rekindle
import torch
from rekindle.results.layouts import copied
from seeded import seeded
from torch import nn

Forward = Callable[..., Any]


class Model(nn.Module):
    """A linear layer, a table of numbers, and a forward that is given."""

    def __init__(self, forward: Forward) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.register_buffer("table", torch.arange(12.0).view(4, 3))
        self.does = forward

    def forward(self, *tensors: torch.Tensor) -> Any:
        return self.does(self, *tensors)


def numbers(*shape: int, grad: bool = False) -> torch.Tensor:
    return torch.randn(*shape, generator=seeded(3)).requires_grad_(grad)


def leaves(result: Any) -> list[torch.Tensor]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor)]


def error_of(action: Callable[[], object]) -> str | None:
    """The message, without names of derivatives."""
    try:
        action()
    except RuntimeError as error:
        return str(error).partition("is a view and")[2] or str(error)
    return None


def observed(model: nn.Module, module: Model, given: torch.Tensor) -> dict[str, Any]:
    """What one call, its backward, and writes to its results do."""
    x = copied(given)
    intermediate = x * 1 if given.requires_grad else x
    try:
        results = leaves(model(intermediate))
    except RuntimeError as error:
        return {"error": str(error)}
    everything = [*results, intermediate, module.table, *module.parameters()]
    found: dict[str, Any] = {
        "layout": [(t.shape, t.stride(), t.storage_offset(), t.requires_grad) for t in results],
        "is view": [t._is_view() for t in results],
        "is": [[a is b for b in everything] for a in results],
        "shares memory": [
            [a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr() for b in everything] for a in results
        ],
        "is view of": [[a._base is b for b in everything] for a in results],
    }
    sums = [(t * (i + 1)).sum() for i, t in enumerate(results) if t.requires_grad]
    if sums:
        sum(sums).backward()
    found["gradients"] = [None if t.grad is None else t.grad.clone() for t in [x, *module.parameters()]]
    found["numbers"] = [t.detach().clone() for t in everything]
    for i, result in enumerate(results):
        found[f"error of writing to {i}"] = error_of(lambda result=result: result.add_(10))
    found["numbers after writing"] = [t.detach().clone() for t in everything]
    found.update(differentiated_after_writing(model, module, given))
    return found


def differentiated_after_writing(model: nn.Module, module: Model, given: torch.Tensor) -> dict[str, Any]:
    """What a backward gives after each result was multiplied in place, one after the other: an error, or gradients."""
    x = copied(given)
    intermediate = x * 1 if given.requires_grad else x
    before = module.table.clone()
    results = leaves(model(intermediate))
    written = x._version > 0
    module.zero_grad()
    errors = [error_of(lambda result=result: result.mul_(3)) for result in results]
    if written and any(result is x or result._base is x for result in results):
        # Eager saves the input that is written, or what it was written to; the graph has copies (decision 15).
        return {"errors of writing": errors}
    sums = [result.sum() for result in results if result.requires_grad]
    error = error_of(lambda: sum(sums).backward()) if sums else None
    with torch.no_grad():
        module.table.copy_(before)
    gradients = [None if t.grad is None else t.grad.clone() for t in [x, *module.parameters()]] if error is None else []
    return {
        "errors of writing": errors,
        "error of the backward": error and "modified by an inplace" in error,
        "gradients after writing": gradients,
    }


def assert_equal(ours: dict[str, Any], theirs: dict[str, Any], kind: str) -> None:
    for what, expected in theirs.items():
        if what.startswith(("gradients", "numbers")):
            for mine, other in zip(ours[what], expected, strict=True):
                torch.testing.assert_close(
                    mine, other, rtol=1e-5, atol=1e-5, msg=lambda text, what=what: f"{kind} {what}: {text}"
                )
        else:
            assert ours[what] == expected, f"{kind} {what}"


def run(forward: Forward, given: torch.Tensor, grad: bool = True) -> rekindle.Status:
    """Three steps in eager, with a cold and with a warm cache; the warm status."""
    torch.manual_seed(0)
    module = Model(forward)
    expected: list[dict[str, Any]] = []
    for kind in ("eager", "cold", "warm"):
        own = copy.deepcopy(module)
        model = own if kind == "eager" else rekindle.Module(own, rekindle.Options(log="error"))
        for step in range(3):
            with torch.set_grad_enabled(grad):
                found = observed(model, own, given)
            if kind == "eager":
                expected.append(found)
            else:
                assert_equal(found, expected[step], f"{kind} {step}")
        rekindle.lookup.store.flush()
    return rekindle.status(model)
