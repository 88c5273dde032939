"""autograd Functions whose doings depend on their place in the forward, or on large numbers."""

from __future__ import annotations

from typing import Any

import torch
from torch.autograd import Function


class Same(Function):
    """Returns a copy of what it is given."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient


class Product(Same):
    """Multiplies a matrix with itself; autocast decides in which dtype."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return (x @ x.t()).float()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        (x,) = ctx.saved_tensors
        return ((gradient + gradient.t()) @ x.float()).float()


class ClipsForGradients(Same):
    """Asks whether a gradient goes through it, for large numbers only."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        if float(x.abs().max()) < 10:
            return x.clone()
        return x.clamp(-5, 5) if ctx.needs_input_grad[0] and x.requires_grad else x * 2


class Part(Same):
    """Returns a view."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x[:, 1:]


class SometimesWithoutGradient(Same):
    """Gives no gradient for large numbers."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        if float(x.abs().max()) > 10:
            ctx.mark_non_differentiable(y)
        return y


class SometimesWithGradient(Same):
    """Gives none for small numbers."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        y = x.clone()
        if float(x.abs().max()) < 10:
            ctx.mark_non_differentiable(y)
        return y


class DropsLarge(Same):
    """Drops a gradient that has exploded."""

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return None if float(gradient.norm()) > 100 else gradient


class Penalty(Same):
    """Adds a gradient of its own."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient + 0.1 * ctx.saved_tensors[0].sign()


class Noisy(Same):
    """Draws random numbers in its backward, as Twins see."""

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient + torch.randn_like(gradient)


class OfAnAttribute(Same):
    """Keeps what it is given where autograd does not look."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.kept = [x]
        return x * x

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return 2 * gradient * ctx.kept[0]


class ClampsItself(Same):
    """Writes what it is given."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.mark_dirty(x)
        return x.clamp_(-10, 10)


class Takes(Same):
    """Multiplies by what is in a list, of which autograd knows nothing."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, others: list[torch.Tensor]) -> torch.Tensor:
        ctx.save_for_backward(others[0])
        return x * others[0]

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient * ctx.saved_tensors[0], None


class Outliers(Same):
    """Counts large numbers in a buffer."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor, count: torch.Tensor) -> torch.Tensor:
        if float(x.abs().max()) > 10:
            count.add_(1)
        return x * count

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> Any:
        return gradient, None


class Pair(Same):
    """Returns two tensors."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> Any:
        return x * 2, x * 3

    @staticmethod
    def backward(ctx: Any, first: torch.Tensor, second: torch.Tensor) -> Any:
        return 2 * first + 3 * second
