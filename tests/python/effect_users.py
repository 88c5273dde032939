"""Modules with code of the user's beside their forward that can be counted: for test_effect_counts.py."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import rekindle
import torch
from effect_cases import LOG
from torch import nn


class Doer(nn.Module):
    def __init__(self, do: Callable[[], Any]) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 3)
        self.do = do

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        self.do()
        return y * 2


def _appends(*_: Any) -> None:
    LOG.append(1)


class Parametrized(nn.Module):
    """A parametrization that can be counted, in both directions."""

    def forward(self, weight: torch.Tensor) -> torch.Tensor:
        LOG.append("forward")
        return weight * 2

    def right_inverse(self, weight: torch.Tensor) -> torch.Tensor:
        LOG.append("right_inverse")
        return weight / 2


class Drawn:
    """What a digest function describes; see below."""


rekindle.register_digest(Drawn, lambda drawn: "drawn")


class Intermediate(Doer):
    """A hook of a tensor that the forward makes."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x)
        if y.requires_grad:
            y.register_hook(_appends)
        return y * 2


class Checkpointed(Doer):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        def body(x: torch.Tensor) -> torch.Tensor:
            LOG.append(1)
            return self.linear(x)

        return torch.utils.checkpoint.checkpoint(body, x, use_reentrant=False)  # type: ignore[no-any-return]


class Property(Doer):
    """Attributes that run code."""

    @property
    def scale(self) -> float:
        LOG.append("scale")
        return 2.0

    def __getattr__(self, name: str) -> Any:
        if name == "absent":
            LOG.append("absent")
            return 3.0
        return super().__getattr__(name)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(x) * self.scale * self.absent


class Compared:
    """An attribute of the module whose comparisons and digest are seen."""

    def __eq__(self, other: object) -> bool:
        LOG.append("eq")
        return self is other

    def __hash__(self) -> int:
        LOG.append("hash")
        return 1

    def __repr__(self) -> str:
        LOG.append("repr")
        return "Compared"

    def __reduce__(self) -> Any:
        LOG.append("reduce")
        return Compared, ()

    def __deepcopy__(self, memo: Any) -> Compared:
        LOG.append("deepcopy")
        return Compared()

    def __getstate__(self) -> Any:
        LOG.append("getstate")
        return {}


class Subclassed(nn.Linear):
    """Methods of nn.Module that a user overrides."""

    def named_parameters(self, *args: Any, **kwargs: Any) -> Any:
        LOG.append("named_parameters")
        return super().named_parameters(*args, **kwargs)

    def parameters(self, recurse: bool = True) -> Any:
        LOG.append("parameters")
        return super().parameters(recurse)

    def named_buffers(self, *args: Any, **kwargs: Any) -> Any:
        LOG.append("named_buffers")
        return super().named_buffers(*args, **kwargs)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        LOG.append("state_dict")
        return super().state_dict(*args, **kwargs)

    def extra_repr(self) -> str:
        LOG.append("extra_repr")
        return super().extra_repr()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        LOG.append("call")
        return super().__call__(*args, **kwargs)


def _with_attribute(value: Any) -> nn.Module:
    module = Doer(lambda: None)
    module.held = value
    return module


def _in_doer(linear: nn.Module) -> nn.Module:
    module = Doer(lambda: None)
    module.linear = linear
    return module


def _parametrized() -> nn.Module:
    module = Doer(lambda: None)
    torch.nn.utils.parametrize.register_parametrization(module.linear, "weight", Parametrized())
    LOG.clear()
    return module


def _hooked_by(register: Callable[[nn.Module], Any]) -> Callable[[], nn.Module]:
    def make() -> nn.Module:
        module = Doer(lambda: None)
        register(module)
        return module

    return make


# Who else runs code of the user's than its forward, and how.
USERS: dict[str, Callable[[], nn.Module]] = {
    "forward hook": _hooked_by(lambda module: module.linear.register_forward_hook(_appends)),
    "forward hook of the module": _hooked_by(lambda module: module.register_forward_hook(_appends)),
    "forward hook that is always called": _hooked_by(
        lambda module: module.linear.register_forward_hook(_appends, always_call=True)
    ),
    "forward pre-hook": _hooked_by(lambda module: module.linear.register_forward_pre_hook(_appends)),
    "forward pre-hook of the module": _hooked_by(lambda module: module.register_forward_pre_hook(_appends)),
    "forward pre-hook with keywords": _hooked_by(
        lambda module: module.linear.register_forward_pre_hook(lambda *_: LOG.append(1), with_kwargs=True)
    ),
    "backward hook": _hooked_by(lambda module: module.linear.register_full_backward_hook(_appends)),
    "backward hook of the module": _hooked_by(lambda module: module.register_full_backward_hook(_appends)),
    "backward pre-hook": _hooked_by(lambda module: module.linear.register_full_backward_pre_hook(_appends)),
    "tensor hook": _hooked_by(lambda module: module.linear.weight.register_hook(_appends)),
    "tensor hook of an intermediate": lambda: Intermediate(lambda: None),
    "accumulated gradient": _hooked_by(lambda module: module.linear.weight.register_post_accumulate_grad_hook(_appends)),
    "state dict hook": _hooked_by(lambda module: module.linear._register_state_dict_hook(_appends)),
    "state dict pre-hook": _hooked_by(lambda module: module.linear.register_state_dict_pre_hook(_appends)),
    "parametrization": _parametrized,
    "checkpoint": lambda: Checkpointed(lambda: None),
    "properties": lambda: Property(lambda: None),
    "methods of a held object": lambda: _with_attribute(Compared()),
    "methods of held keys": lambda: _with_attribute({Compared(): 1, 2: [Compared()]}),
    "methods of a submodule": lambda: _in_doer(Subclassed(4, 3)),
    "digest function": lambda: _with_attribute(Drawn()),
}
