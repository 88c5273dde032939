"""Runs an optimizer's step for each parameter inside of the backward, so that gradients need the memory of one layer.

    optimizer = torch.optim.AdamW(model.parameters())
    fused = rekindle.optim.fuse(model, optimizer)
    for batch in batches:
        model(batch).backward()     # steps each parameter as soon as its gradient is complete, and frees the gradient
        fused.step()                # ends the step

The parameters are, bit for bit, those of `backward()` and `optimizer.step()`.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.utils import clip_grads_with_norm_
from torch.optim import Optimizer
from torch.optim import optimizer as all_optimizers

from rekindle.optim.measuring import backward_to
from rekindle.optim.separable import check_separable, groups_kept, only


class FusedOptimizer:
    """Steps an optimizer inside of backwards; made by `fuse`, in force until `remove`.

    optimizer: the user's own, for schedulers and checkpoints. Its `step` must not be called any more.
    max_norm: to which the norm of all gradients is clipped; None if it is not
    total_norm: of the gradients at the last backward, a tensor without dimensions; None without `max_norm`
    """

    def __init__(self, optimizer: Optimizer, model: nn.Module, max_norm: float | None, norm_type: float) -> None:
        self.optimizer = optimizer
        self.max_norm = max_norm
        self.total_norm: torch.Tensor | None = None
        self._norm_type = norm_type
        self._model = model
        # Of the group, and in the group, when last looked up; by identity of the parameter.
        self._places: dict[int, tuple[int, int]] = {}
        self._stepped: set[int] = set()  # identities of the parameters that this step has changed
        self._norms: dict[int, torch.Tensor] | None = None  # of this backward's gradients, once they are to be measured
        self._is_measuring = False
        self._is_accumulating = False
        self._hooks: list[Any] | None = []  # None once they are removed
        self._fuse_new()

    def backward(self, loss: torch.Tensor, gradient: torch.Tensor | None = None) -> None:
        """Runs the backward of a loss. With `max_norm`, runs it twice: once for the norm, once for the steps.

        Hooks on the optimizer's parameters, and on tensors between these and the loss, then run twice; `retain_grad` of such a
        tensor is a hook. Leaves that the optimizer does not have get their gradients and run their hooks in the second one only.

        Raises RuntimeError if gradients are left from before, which would be counted twice, or if the second backward makes a
        gradient that the first one did not.
        """
        if self.max_norm is None:
            loss.backward(gradient)
            return
        for parameter in self._parameters():
            if parameter.grad is not None:
                raise RuntimeError(f"{self._name(parameter)} has a gradient from before; call zero_grad() before backward()")
        self._fuse_new()
        try:
            self._norms = {}
            self._is_measuring = True
            fused = [parameter for parameter in self._parameters() if _is_fused(parameter)]
            backward_to(fused, loss, gradient, self._model.parameters())
            self._is_measuring = False
            self.total_norm = self._total(self._norms)
            loss.backward(gradient)
        finally:
            self._norms, self._is_measuring = None, False

    def step(self) -> None:
        """Ends a step. Also steps the parameters that have got a gradient otherwise than by a backward.

        Raises RuntimeError if there are such and `max_norm` is set: their gradients are not in the norm.
        """
        _refuse_hooks(self.optimizer)
        left: dict[int, list[torch.Tensor]] = {}
        for place, group in enumerate(self.optimizer.param_groups):
            if parameters := [one for one in group["params"] if one.grad is not None]:
                left[place] = parameters
        if left and self.max_norm is not None:
            name = self._name(next(iter(left.values()))[0])
            raise RuntimeError(f"{name} has a gradient that no backward() of the fused optimizer has made; set it to None")
        self._stepped.clear()
        if left:
            with only(self.optimizer, left):
                self.optimizer.step()
            for parameters in left.values():
                for parameter in parameters:
                    parameter.grad = None

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Does what `optimizer.zero_grad` does: for gradients that were accumulated and shall not be used."""
        self.optimizer.zero_grad(set_to_none)

    @contextlib.contextmanager
    def accumulate(self) -> Iterator[None]:
        """Lets backwards in the body add to the gradients and step nothing: for all but the last part of a batch.

        Raises RuntimeError with `max_norm`, whose two passes would count the gradients twice.
        """
        if self.max_norm is not None:
            raise RuntimeError("gradients cannot be accumulated where max_norm clips them in two passes; fuse without max_norm")
        before, self._is_accumulating = self._is_accumulating, True
        try:
            yield
        finally:
            self._is_accumulating = before

    def remove(self) -> None:
        """Takes the steps out of backwards again; from then on `optimizer.step()` has to be called."""
        for hook in self._hooks or ():
            hook.remove()
        self._hooks = None

    def _fuse_new(self) -> None:
        """Takes in the steps of parameters that the optimizer has got, or that were frozen, since the last time."""
        if self._hooks is None:
            return
        for parameter in self._parameters():
            if parameter.requires_grad and parameter.is_leaf and not _is_fused(parameter):
                self._hooks.append(parameter.register_post_accumulate_grad_hook(self._on_gradient))

    def _on_gradient(self, parameter: torch.Tensor) -> None:
        """Handles a gradient that is complete: PyTorch's engine has added it to `parameter.grad`, unless it was frozen since."""
        if self._is_accumulating or parameter.grad is None:
            return
        place = self._group_of(parameter)
        if place is None:  # the user has taken it out of the optimizer
            return
        _refuse_ranks()
        _refuse_hooks(self.optimizer)
        if self._norms is not None and self._is_measuring:
            self._norms[id(parameter)] = torch.linalg.vector_norm(parameter.grad, self._norm_type)
            parameter.grad = None
            return
        self._check_measured(parameter)
        if id(parameter) in self._stepped:
            raise RuntimeError(
                f"{self._name(parameter)} gets a second gradient in one step of the fused optimizer; call step() after each "
                "backward, and run all but the last backward of a step in accumulate()"
            )
        self._stepped.add(id(parameter))
        if self.max_norm is not None and self.total_norm is not None:
            clip_grads_with_norm_([parameter], self.max_norm, self.total_norm)
        with only(self.optimizer, {place: [parameter]}):
            self.optimizer.step()
        parameter.grad = None

    def _check_measured(self, parameter: torch.Tensor) -> None:
        """Raises RuntimeError for a gradient that cannot be clipped, as its norm is not known."""
        if self.max_norm is None:
            return
        if self._norms is None:
            raise RuntimeError(
                "the optimizer is fused with max_norm, which takes two passes; call backward(loss) of the fused optimizer"
            )
        if id(parameter) not in self._norms:
            raise RuntimeError(
                f"{self._name(parameter)} gets a gradient that was not there when the norm was measured: a Function runs a "
                "backward of its own inside of its backward, or a hook changes the graph; fuse without max_norm"
            )

    def _group_of(self, parameter: torch.Tensor) -> int | None:
        """Returns the place of the group that has the parameter now; None if there is none."""
        with groups_kept():
            groups = self.optimizer.param_groups
            place, index = self._places.get(id(parameter), (0, 0))
            if place < len(groups) and index < len(groups[place]["params"]) and groups[place]["params"][index] is parameter:
                return place
            self._places = {id(one): (i, j) for i, group in enumerate(groups) for j, one in enumerate(group["params"])}
            return self._places.get(id(parameter), (None,))[0]

    def _parameters(self) -> Iterator[Any]:
        for group in self.optimizer.param_groups:
            yield from group["params"]

    def _name(self, parameter: torch.Tensor) -> str:
        return _name_of(parameter, self._model)

    def _total(self, norms: dict[int, torch.Tensor]) -> torch.Tensor:
        """Returns the norm of norms, in the order in which `clip_grad_norm_` takes those of one dtype."""
        found = [norms[id(parameter)] for parameter in self._parameters() if id(parameter) in norms]
        if not found:
            return torch.tensor(0.0)
        return torch.linalg.vector_norm(torch.stack([norm.to(found[0].device) for norm in found]), self._norm_type)


def fuse(model: nn.Module, optimizer: Optimizer, *, max_norm: float | None = None, norm_type: float = 2.0) -> FusedOptimizer:
    """Makes backwards step the parameters of an optimizer, each right after its last gradient, which is then freed.

    Works for any optimizer whose step treats each parameter by itself, which is tried on small tensors first; with the model in
    eager, wrapped, or compiled. A `torch.amp.GradScaler` needs all gradients before it steps, and raises.

    model: whose parameters the optimizer has; its names are in messages
    max_norm: clips the norm of all gradients, as `torch.nn.utils.clip_grad_norm_(parameters, max_norm, norm_type)` does. It takes
        two passes over the backward, which `FusedOptimizer.backward` runs. That function itself finds no gradients.

    Raises TypeError for an optimizer that mixes parameters, needs a closure, or changes what it keeps beside the state of each
    parameter; ValueError if there are hooks around its steps or those of all optimizers, or if it has no parameter of the model
    or one that is fused already; RuntimeError where several ranks train, whose gradients are not yet reduced then.
    """
    known = {id(parameter) for parameter in model.parameters()}
    if not any(id(parameter) in known for group in optimizer.param_groups for parameter in group["params"]):
        raise ValueError(f"the {type(optimizer).__qualname__} has no parameter of the {type(model).__qualname__}")
    if max_norm is not None and not max_norm > 0:
        raise ValueError(f"max_norm is {max_norm}; it has to be more than 0, or None for no clipping")
    for parameter in (one for group in optimizer.param_groups for one in group["params"]):
        if _is_fused(parameter):
            raise ValueError(f"{_name_of(parameter, model)} is stepped by another fused optimizer; call remove() of that first")
    _refuse_hooks(optimizer)
    _refuse_ranks()
    check_separable(optimizer)
    return FusedOptimizer(optimizer, model, max_norm, norm_type)


def _is_fused(parameter: torch.Tensor) -> bool:
    hooks = parameter._post_accumulate_grad_hooks or {}
    return any(isinstance(getattr(hook, "__self__", None), FusedOptimizer) for hook in hooks.values())


def _name_of(parameter: torch.Tensor, model: nn.Module) -> str:
    return next((name for name, one in model.named_parameters() if one is parameter), "a parameter of the optimizer")


def _refuse_hooks(optimizer: Optimizer) -> None:
    """Raises ValueError if something runs around each step of the optimizer, which the fused one takes per parameter."""
    kind = type(optimizer).__qualname__
    own = [*optimizer._optimizer_step_pre_hooks.values(), *optimizer._optimizer_step_post_hooks.values()]
    if own:
        raise ValueError(
            f"the {kind} has hooks around its steps, which would run once per parameter: {_hook_name(own[0])}; call remove() of "
            "the handle that its register_step_pre_hook or register_step_post_hook returned"
        )
    all_have = [*all_optimizers._global_optimizer_pre_hooks.values(), *all_optimizers._global_optimizer_post_hooks.values()]
    if all_have:
        raise ValueError(
            f"all optimizers have hooks around their steps, which would run once per parameter of the {kind}: "
            f"{_hook_name(all_have[0])}; call remove() of the handle that register_optimizer_step_pre_hook or "
            "register_optimizer_step_post_hook returned"
        )


def _hook_name(hook: Any) -> str:
    return f"{hook.__module__}.{hook.__qualname__}" if hasattr(hook, "__qualname__") else repr(hook)


def _refuse_ranks() -> None:
    ranks = torch.distributed
    if ranks.is_available() and ranks.is_initialized() and ranks.get_world_size() > 1:
        raise RuntimeError(
            f"{ranks.get_world_size()} ranks train: their gradients are reduced after a backward has made them; "
            "call the optimizer's step() after the backward instead of fusing it"
        )
