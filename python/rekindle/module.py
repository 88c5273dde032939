"""rekindle.Module: an nn.Module like the one it wraps, whose forward runs from a cached graph."""

from __future__ import annotations

import copy
import functools
from typing import Any

import torch
from torch import nn

from rekindle.explanation import Explanation
from rekindle.hooks import HOOKS, global_hooks
from rekindle.options import Options
from rekindle.runtime import Runtime
from rekindle.status import Status

_GLOBAL_HOOKS = global_hooks()
_OWN = ("module", "_options", "_runtime", "_own_forward", "_is_full_backward_hook")
_OWN_FORWARD = "rekindle.Module.forward"  # in a state, in the place of the forward of the module it is of


class Module(nn.Module):
    """`Module(module, Options(...))`: same parameters, buffers, state_dict keys, signature, methods and attributes.

    The wrapped module stays the one place of state; this object shares its tables of parameters, buffers and submodules.
    isinstance finds it to be of the wrapped module's class too. Forward hooks registered here run around the graph; hooks on
    submodules leave it to the submodules to run from graphs of their own. Wrapping runs nothing. The first call of each kind
    looks the cache up, and exports on a miss.
    """

    def __init__(self, module: nn.Module, options: Options | None = None) -> None:
        if not isinstance(module, nn.Module):
            raise TypeError(f"rekindle.Module wraps a torch.nn.Module, not a {type(module).__name__}")
        if isinstance(module, Module):
            raise TypeError("this module is wrapped already; wrap its .module, or use it as it is")
        super().__init__()
        self._adopt(module, options or Options())

    def _adopt(self, module: nn.Module, options: Options) -> None:
        self.__dict__.update(module=module, _options=options, _runtime=Runtime(module, options))
        self.__dict__["_parameters"] = module._parameters
        self.__dict__["_buffers"] = module._buffers
        self.__dict__["_modules"] = module._modules
        self.__dict__["_non_persistent_buffers_set"] = module._non_persistent_buffers_set
        self.__dict__["training"] = module.training
        self.__dict__["_own_forward"] = None
        if type(self).forward is Module.forward:
            self.__dict__["_own_forward"] = self.__dict__["forward"] = _with_signature_of(module, self._runtime)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """As nn.Module's: hooks of this object run around the forward."""
        if _global_hooks_only(self.__dict__):  # the wrapped module runs them; they must not run for this one too
            return self.forward(*args, **kwargs)
        return super().__call__(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """The wrapped module's forward, from a cached graph where that can be."""
        return self._runtime.call(args, kwargs)

    def train(self, mode: bool = True) -> Module:
        """Of the wrapped module."""
        self.module.train(mode)
        self.__dict__["training"] = mode
        return self

    def _apply(self, fn: Any, recurse: bool = True) -> Module:
        self.module._apply(fn, recurse)
        return self

    def apply(self, fn: Any) -> Module:
        """Of the wrapped module."""
        self.module.apply(fn)
        return self

    def requires_grad_(self, requires_grad: bool = True) -> Module:
        """Of the wrapped module."""
        self.module.requires_grad_(requires_grad)
        return self

    def __len__(self) -> int:
        return len(self.module)

    def __iter__(self) -> Any:
        return iter(self.module)

    def __getitem__(self, key: Any) -> Any:
        return self.module[key]

    def __setitem__(self, key: Any, value: Any) -> None:
        self.module[key] = value

    def __delitem__(self, key: Any) -> None:
        del self.module[key]

    def __contains__(self, item: Any) -> bool:
        return item in self.module

    def __bool__(self) -> bool:
        return bool(self.module)

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Of the wrapped module: no key tells of the wrapper."""
        return self.module.state_dict(*args, **kwargs)

    def load_state_dict(self, *args: Any, **kwargs: Any) -> Any:
        """Into the wrapped module, from a state_dict of it with or without a wrapper."""
        return self.module.load_state_dict(*args, **kwargs)

    def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
        self.module._load_from_state_dict(*args, **kwargs)

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Of the wrapped module."""
        self.module.zero_grad(set_to_none)

    def extra_repr(self) -> str:
        """Of the wrapped module."""
        return self.module.extra_repr()

    def _get_name(self) -> str:
        return f"rekindle.Module({self.module._get_name()})"

    def __getattr__(self, name: str) -> Any:
        if name in _OWN:
            raise AttributeError(name)
        return getattr(self.__dict__["module"], name)

    def __setattr__(self, name: str, value: Any) -> None:
        if "module" in self.__dict__ and name not in _OWN:
            if name == "forward" or (value is not None and value is self._own_forward):
                self.__dict__[name] = value  # what goes around the forward of this module is no attribute of the wrapped one
                return
            setattr(self.module, name, value)
            if name == "training":
                self.__dict__["training"] = value
        else:
            super().__setattr__(name, value)

    def __delattr__(self, name: str) -> None:
        if name in self.__dict__ and (name == "forward" or self.__dict__[name] is self._own_forward):
            del self.__dict__[name]
            if name == "forward" and self._own_forward is not None:
                self.__dict__["forward"] = self._own_forward
        else:
            delattr(self.module, name)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self.module)})

    @property
    def __class__(self) -> type:
        """The wrapped module's class, for isinstance and for who reads what a class's forward takes; type() tells the truth."""
        return type(self.__dict__["module"]) if "module" in self.__dict__ else type(self)

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _restored, (type(self), self.__getstate__())

    def __deepcopy__(self, memo: dict[int, Any]) -> Module:
        other = memo[id(self)] = type(self).__new__(type(self))
        other.__setstate__(copy.deepcopy(self.__getstate__(), memo))
        return other

    def __getstate__(self) -> dict[str, Any]:
        """Everything but the sessions, which another process or copy makes anew from the cache."""
        kept = {name: value for name, value in self.__dict__.items() if name not in ("_runtime", "_own_forward")}
        own = self._own_forward
        return {name: _OWN_FORWARD if own is not None and value is own else value for name, value in kept.items()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._adopt(state["module"], state["_options"])
        for name, value in state.items():
            if isinstance(value, str) and value == _OWN_FORWARD:
                self.__dict__[name] = self._own_forward
            elif name == "forward":
                self.__dict__["forward"] = value


def _restored(kind: type[Module], state: dict[str, Any]) -> Module:
    model = kind.__new__(kind)
    model.__setstate__(state)
    return model


def _with_signature_of(module: nn.Module, runtime: Runtime) -> Any:
    """A forward that is called like the module's, for those who look at its signature to know what to pass."""

    @functools.wraps(module.forward)
    def forward(*args: Any, **kwargs: Any) -> Any:
        return runtime.call(args, kwargs)

    return forward


def _global_hooks_only(attributes: dict[str, Any]) -> bool:
    """Whether every module has hooks that this one has not been given."""
    return any(_GLOBAL_HOOKS) and not any(attributes[name] for name in HOOKS)


def status(model: Module) -> Status:
    """See Status. Raises TypeError for a module that is not wrapped."""
    if not isinstance(model, Module):
        raise TypeError(f"rekindle.status takes a rekindle.Module, not a {type(model).__name__}")
    return model._runtime.current_status()


def explain(model: Module, *args: Any, **kwargs: Any) -> Explanation:
    """Why `model(*args, **kwargs)` would hit or miss the cache, against the nearest entry; see Explanation.

    Runs no forward, exports nothing, changes and counts nothing. Raises TypeError for a module that is not
    wrapped.
    """
    if not isinstance(model, Module):
        raise TypeError(f"rekindle.explain takes a rekindle.Module, not a {type(model).__name__}")
    return model._runtime.explain(args, kwargs)


def unwrap(model: torch.nn.Module) -> torch.nn.Module:
    """The wrapped module, or the module itself."""
    return model.module if isinstance(model, Module) else model
