"""A module on the test device in eager, and a copy of it wrapped; every call goes to both."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import rekindle
import torch
from rekindle.process.random_states import random_states, random_states_equal, set_random_states
from torch import nn
from torch.utils._pytree import tree_leaves


class Made(nn.Module):
    """A linear layer on 4 numbers, and a forward of the test's."""

    def __init__(self, forward: Callable[[Any, torch.Tensor], Any]) -> None:
        super().__init__()
        self.a = nn.Linear(4, 4)
        self.given = forward

    def place(self, device: str) -> None:
        """Moves it to a device, with plain tensors there."""
        self.to(device)
        self.scale, self.calls = torch.arange(4.0, device=device), torch.zeros((), device=device)
        self.parts = [{"scale": torch.arange(1.0, 5.0, device=device)}]

    def forward(self, x: torch.Tensor) -> Any:
        """Returns what the test's forward does."""
        return self.given(self, x)


class Twins:
    """Calls both from the same random states, and compares results, gradients and what was drawn."""

    def __init__(self, module: nn.Module, device: str = "test:0", **options: Any) -> None:
        self.eager = module
        module.place(device) if isinstance(module, Made) else module.to(device)
        self.module = copy.deepcopy(self.eager)
        self.wrapped = rekindle.Module(self.module, rekindle.Options(**{"log": "error"} | options))

    @property
    def status(self) -> rekindle.Status:
        """Returns that of the wrapped copy."""
        return rekindle.status(self.wrapped)

    def reasons(self) -> list[str]:
        """Why calls ran in eager."""
        return [reason for reason, _ in self.status.bypass]

    def call(self, x: torch.Tensor, **tolerance: float) -> Any:
        """One call with a backward; the wrapped copy's result. tolerance: as of assert_close."""
        before = random_states()
        theirs, their_gradients = self._step(self.eager, self.eager, x)
        after = random_states()
        set_random_states(before)
        ours, our_gradients = self._step(self.wrapped, self.module, x)
        assert random_states_equal(after, random_states()), "other random numbers were drawn"
        for mine, other in zip([*ours, *our_gradients], [*theirs, *their_gradients], strict=True):
            if isinstance(other, torch.Tensor):
                torch.testing.assert_close(mine, other, **tolerance)  # devices, too
            else:
                assert mine == other, f"{mine}, in eager {other}"
        if isinstance(self.eager, Made):
            torch.testing.assert_close(self.module.calls, self.eager.calls)
        return ours

    def call_beside(self, exact: nn.Module, x: torch.Tensor) -> None:
        """One call with a backward, in which no result and no gradient may be further from `exact` than twice eager's is.

        exact: the module in float64
        """
        theirs, ours, right = (
            [*results, *gradients]
            for results, gradients in (
                self._step(self.eager, self.eager, x),
                self._step(self.wrapped, self.module, x),
                self._step(exact, exact, x.double()),
            )
        )
        for mine, other, one in zip(ours, theirs, right, strict=True):
            if not isinstance(other, torch.Tensor) or not other.is_floating_point():
                assert mine is other is None or torch.equal(mine, other)
                continue
            assert (mine.dtype, mine.shape, mine.device) == (other.dtype, other.shape, other.device)
            error, allowed = (float((tensor.double() - one).abs().max()) for tensor in (mine, other))
            least = torch.finfo(other.dtype).eps * float(one.abs().max())
            assert error <= 2 * allowed + least, f"an error of {error}, in eager {allowed}, of {float(one.abs().max())}"

    @staticmethod
    def _step(model: nn.Module, module: nn.Module, x: torch.Tensor) -> tuple[list[Any], list[torch.Tensor | None]]:
        module.zero_grad()
        results = tree_leaves(model(x))
        roots = [one for one in results if isinstance(one, torch.Tensor) and one.requires_grad]
        if roots:
            torch.autograd.backward(roots, [torch.ones_like(root) for root in roots])
        return results, [parameter.grad for parameter in module.parameters()]
