"""Runs backwards as training steps do: of a loss, of scores or of both, with hooks or writes before them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.autograd.graph import save_on_cpu
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Call:
    """Makes one call of a model for a backward, and holds what is seen of both. seen: by name, all that is to be compared."""

    def __init__(self, called: Callable[..., Any], module: nn.Module, inputs: list[torch.Tensor], seed: int) -> None:
        self.module = module
        self.inputs = inputs
        self.seed = seed
        self.seen: dict[str, Any] = {}
        self.leaves: list[Any] = []
        self.called = called

    def forward(self, tag: str = "") -> Call:
        """Runs the forward; `loss`, `scores` and `leaves` are of the last one. tag: in the names of what is seen of it."""
        result = self.called(*self.inputs)
        self.leaves = tree_leaves(result)
        tensors = [leaf for leaf in self.leaves if isinstance(leaf, torch.Tensor)]
        self.seen[f"type{tag}"] = type(result).__name__
        for i, x in enumerate(tensors):
            self.seen[f"result{tag} {i}"] = x.detach().clone()
            strides = [stride for size, stride in zip(x.shape, x.stride(), strict=True) if size > 1 and x.numel() > 0]
            self.seen[f"facts{tag} {i}"] = (tuple(x.shape), x.dtype, x.requires_grad, x.is_leaf, strides)
        pairs = [(i, j) for i in range(len(tensors)) for j in range(i)]
        self.seen[f"same{tag}"] = [(i, j) for i, j in pairs if tensors[i] is tensors[j]]
        self.seen[f"shared{tag}"] = [(i, j) for i, j in pairs if _share(tensors[i], tensors[j])]
        return self

    @property
    def loss(self) -> torch.Tensor:
        """Returns the loss, summed where it has a number for each row."""
        return self.leaves[0].sum()

    @property
    def scores(self) -> torch.Tensor:
        """Returns the scores, which stand second in a result."""
        return self.leaves[1]

    def parameters(self) -> list[nn.Parameter]:
        """Returns some that require gradients, at least one where there is any; the seed decides which."""
        known = [p for p in self.module.parameters() if p.requires_grad]
        return [p for i, p in enumerate(known) if self.seed >> i & 1 or i == self.seed % len(known)]

    def keep(self, gradients: tuple[torch.Tensor | None, ...]) -> None:
        """Adds what torch.autograd.grad() returned to what is compared."""
        self.seen |= {f"gradient {i}": None if x is None else x.detach() for i, x in enumerate(gradients)}


def _share(a: torch.Tensor, b: torch.Tensor) -> bool:
    return min(a.numel(), b.numel()) > 0 and a.untyped_storage().data_ptr() == b.untyped_storage().data_ptr()


def _numbers(like: torch.Tensor, seed: int) -> torch.Tensor:
    return torch.randn(like.shape, generator=torch.Generator().manual_seed(seed)).to(like.dtype)


def _loss_and_scores(call: Call) -> None:
    call.forward()
    (call.loss + (call.scores * _numbers(call.scores, 5)).sum()).backward()


def _loss_and_squares(call: Call) -> None:
    call.forward()
    (call.loss + call.scores.square().mean()).backward()


def _all(call: Call) -> None:
    roots = [x for x in call.forward().leaves if isinstance(x, torch.Tensor) and x.requires_grad]
    sum((x * _numbers(x, 9)).sum() for x in roots).backward()


def _given(call: Call) -> None:
    roots = call.forward().leaves[:2]
    torch.autograd.backward(roots, [_numbers(root, 3) for root in roots])


def _zeros_for_scores(call: Call) -> None:
    roots = call.forward().leaves[:2]
    torch.autograd.backward(roots, [_numbers(roots[0], 3), torch.zeros_like(roots[1])])


def _twice(call: Call) -> None:
    call.forward().loss.backward(retain_graph=True)
    call.loss.backward()


def _loss_then_scores(call: Call) -> None:
    call.forward().loss.backward(retain_graph=True)
    call.scores.square().sum().backward()


def _scores_then_loss(call: Call) -> None:
    call.forward().scores.square().sum().backward(retain_graph=True)
    call.loss.backward()


def _some(call: Call) -> None:
    call.keep(torch.autograd.grad(call.forward().loss, call.parameters(), allow_unused=True))


def _some_then_all(call: Call) -> None:
    call.keep(torch.autograd.grad(call.forward().loss, call.parameters(), allow_unused=True, retain_graph=True))
    call.loss.backward()


def _of_scores(call: Call) -> None:
    call.forward()
    call.keep(torch.autograd.grad(call.loss, [call.scores, *call.parameters()], allow_unused=True))


def _second(call: Call) -> None:
    gradients = torch.autograd.grad(call.forward().loss, call.parameters(), allow_unused=True, create_graph=True)
    call.keep(gradients)
    sum(gradient.square().sum() for gradient in gradients if gradient is not None).backward()


def _retained(call: Call) -> None:
    scores = call.forward().scores
    scores.retain_grad()
    call.loss.backward()
    call.keep((scores.grad,))


def _hooked(call: Call) -> None:
    call.forward().scores.register_hook(lambda gradient: 2 * gradient)
    call.loss.backward()


def _hooked_parameters(call: Call) -> None:
    hooks = [p.register_hook(lambda gradient: 2 * gradient) for p in call.parameters()]
    try:
        call.forward().loss.backward()
    finally:
        for hook in hooks:
            hook.remove()


def _two_forwards(call: Call, order: tuple[int, int]) -> None:
    losses = [call.forward().loss, 2 * call.forward(" again").loss]
    for i in order:
        losses[i].backward()


def _let_go(call: Call) -> None:
    loss = call.forward().loss
    call.leaves = []
    loss.backward()


def _scaled(factor: float) -> Callable[[Call], None]:
    return lambda call: (call.forward().loss * factor).backward()


class _Ending(torch.autograd.Function):
    """Passes a tensor on, and no gradient back."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> None:
        return None


def _nothing_for_scores(call: Call) -> None:
    (call.forward().loss + _Ending.apply(call.scores).sum()).backward()


def _sparse_for_scores(call: Call) -> None:
    table = call.forward().scores
    rows = table if table.dim() == 2 else table.reshape(-1, 1)  # the gradient is sparse where the scores have two dimensions
    picked = torch.nn.functional.embedding(torch.zeros(2, dtype=torch.long), rows, sparse=True)
    (call.loss + picked.square().sum()).backward()


class _Faulty(TorchDispatchMode):
    """Changes each number that is read from a tensor, and notes which operators are called."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if function is not torch.ops.aten.detach.default:
            self.names.append(str(function))
        result = function(*args, **(kwargs or {}))
        return result + 0.5 if isinstance(result, float) else result


def _under_a_mode(call: Call) -> None:
    loss = call.forward().loss
    with _Faulty() as mode:
        loss.backward()
    call.seen["operators"] = sorted(mode.names)  # a graph's gradients are added to those there are when all have been computed


def _called_under_a_mode(call: Call) -> None:
    with _Faulty() as mode:
        call.forward().loss.backward()
    call.seen["operators"] = sorted(mode.names)  # a graph's gradients are added to those there are when all have been computed


def _second_saved_on_cpu(call: Call) -> None:
    loss = call.forward().loss
    with save_on_cpu():
        gradients = torch.autograd.grad(loss, call.parameters(), allow_unused=True, create_graph=True)
        sum(gradient.square().sum() for gradient in gradients if gradient is not None).backward()


def _written(write: Callable[[torch.Tensor], Any]) -> Callable[[Call], None]:
    def backward(call: Call) -> None:
        call.forward()
        with torch.no_grad():
            write(call.scores)
        call.loss.backward()
        call.seen["scores afterwards"] = call.scores.detach().clone()

    return backward


def _within(context: Callable[[], Any]) -> Callable[[Call], None]:
    def forward(call: Call) -> None:
        with context():
            call.forward()

    return forward


# By name; those that begin with "write" may raise where the other side does not.
BACKWARDS: dict[str, Callable[[Call], Any]] = {
    "loss": lambda call: call.forward().loss.backward(),
    "scores": lambda call: call.forward().scores.sum().backward(),
    "loss and scores": _loss_and_scores,
    "loss and squares": _loss_and_squares,
    "all": _all,
    "given": _given,
    "zeros for scores": _zeros_for_scores,
    "nothing for scores": _nothing_for_scores,
    "sparse for scores": _sparse_for_scores,
    "under a mode": _under_a_mode,
    "called under a mode": _called_under_a_mode,
    "twice": _twice,
    "loss, then scores": _loss_then_scores,
    "scores, then loss": _scores_then_loss,
    "some": _some,
    "some, then all": _some_then_all,
    "of scores": _of_scores,
    "second": _second,
    "second, saved on the CPU": _second_saved_on_cpu,
    "retained": _retained,
    "hooked": _hooked,
    "hooked parameters": _hooked_parameters,
    "two forwards": lambda call: _two_forwards(call, (0, 1)),
    "two forwards, reversed": lambda call: _two_forwards(call, (1, 0)),
    "let go": _let_go,
    "scaled by inf": _scaled(float("inf")),
    "scaled by nan": _scaled(float("nan")),
    "scaled by 0": _scaled(0.0),
    "scaled by 10000": _scaled(1e4),
    "write a product": _written(lambda scores: scores.mul_(2)),
    "write zeros": _written(lambda scores: scores.zero_()),
    "write a row": _written(lambda scores: scores[:1].fill_(0)),
    "write to the detached": _written(lambda scores: scores.detach().add_(1)),
    "without gradients": _within(torch.no_grad),
    "in inference mode": _within(torch.inference_mode),
    "none": lambda call: call.forward(),
}
