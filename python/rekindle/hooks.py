"""The tables in which PyTorch keeps hooks: of a module, and of all modules."""

from __future__ import annotations

from typing import Any

from torch.nn.modules import module

HOOKS = ("_forward_pre_hooks", "_forward_hooks", "_backward_pre_hooks", "_backward_hooks")
GLOBAL_HOOKS = tuple(f"_global{name}" for name in HOOKS)


def global_hooks() -> list[dict[int, Any]]:
    """Those of all modules, by kind."""
    return [vars(module)[name] for name in GLOBAL_HOOKS]
