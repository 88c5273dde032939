"""How far a result may be from eager's: no farther from the exact one than twice what eager's rounding explains.

`Exact` runs beside eager: each operation on floating-point tensors is done once more in double precision, on what the
operations before it gave there. What is discrete stays eager's: integers, masks, random numbers, steps such as `floor`.
Results in double are kept by memory, so that views, writes in place and what autograd has saved find theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

_FLOATS = (torch.float32, torch.bfloat16, torch.float16)
_STEPS = {
    f"aten::{name}{end}"
    for name in "floor ceil round trunc sign sgn floor_divide remainder fmod heaviside".split()
    for end in ("", "_")
}
_SAMPLES = 3  # of eager's rounding errors


class Exact(TorchDispatchMode):
    """noise: instead of exactly, each operation rounds at random, as much as eager's dtype makes it."""

    def __init__(self, noise: torch.Generator | None = None) -> None:
        super().__init__()
        self._noise = noise
        self._memories: dict[
            int, tuple[Any, torch.Tensor]
        ] = {}  # address -> (memory, kept so that it is not reused; all of it in double)

    def of(self, tensor: torch.Tensor) -> torch.Tensor:
        """The tensor in double; of one that nothing has computed here, its own numbers. Shares memory as tensors do."""
        memory = tensor.untyped_storage()
        count = memory.nbytes() // tensor.element_size()
        if not tensor.is_floating_point() or count == 0:
            return tensor
        if memory.data_ptr() not in self._memories:
            whole = torch.empty(0, dtype=tensor.dtype).set_(memory, 0, (count,), (1,))
            self._memories[memory.data_ptr()] = (memory, whole.to(torch.float64, copy=True))
        whole = self._memories[memory.data_ptr()][1]
        return whole.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        returns = [value.alias_info for value in function._schema.returns]
        if any(alias is not None and not alias.is_write for alias in returns):
            return function(*args, **kwargs)  # a view
        with torch.no_grad():
            exact_args, exact_kwargs = tree_map(self._in_double, (args, kwargs))
            result = function(*args, **kwargs)
            results = [value for value in tree_leaves(result) if isinstance(value, torch.Tensor)]
            if torch.Tag.nondeterministic_seeded in function.tags or function._schema.name in _STEPS:
                self._take(results, results)
                return result
            try:
                exact = function(*exact_args, **exact_kwargs)
            except RuntimeError:  # of what does not take doubles
                exact = result
            self._take(results, [value for value in tree_leaves(exact) if isinstance(value, torch.Tensor)])
        return result

    def _in_double(self, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self.of(value)
        return torch.float64 if isinstance(value, torch.dtype) and value in _FLOATS else value

    def _take(self, results: Sequence[torch.Tensor], exact: Sequence[torch.Tensor]) -> None:
        for result, value in zip(results, exact, strict=True):
            if (
                not result.is_floating_point()
                or result.numel() == 0
                or any(s == 0 and n > 1 for s, n in zip(result.stride(), result.shape, strict=True))
            ):
                continue
            mine = self.of(result)
            if value.data_ptr() != mine.data_ptr():
                mine.copy_(value)
            if self._noise is not None and result.dtype in _FLOATS:
                inexact = mine.to(result.dtype).double() != mine
                error = (
                    torch.rand(mine.shape, generator=self._noise, dtype=torch.float64)
                    .mul_(2)
                    .sub_(1)
                    .mul_(torch.finfo(result.dtype).eps)
                )
                mine.add_(mine * error * inexact)


@dataclass
class Judged:
    """A result of eager: exactly, in double, and the 2-norm of the error that rounding can cause."""

    exact: torch.Tensor
    error: float

    def admits(self, result: torch.Tensor) -> bool:
        """Whether rounding explains what another way to compute it gives."""
        return _distance(result, self.exact) <= 2 * self.error


def judge(run: Callable[[], Sequence[torch.Tensor | None]]) -> list[Judged | None]:
    """run: computes results in eager, each time the same from the same random state."""
    with Exact() as exact:
        found = [None if x is None else (x.detach(), exact.of(x.detach()).clone()) for x in run()]
    judged = [None if pair is None else Judged(pair[1], _distance(*pair)) for pair in found]
    for seed in range(_SAMPLES):
        with Exact(torch.Generator().manual_seed(seed)) as noisy:
            sampled = [None if x is None else noisy.of(x.detach()).clone() for x in run()]
        for one, sample in zip(judged, sampled, strict=True):
            if one is not None and sample is not None:
                one.error = max(one.error, _distance(sample, one.exact))
    return judged


def _distance(a: torch.Tensor, b: torch.Tensor) -> float:
    """2-norm of the difference; non-finite numbers count as those of the other where both have them."""
    difference = (a.detach().double() - b.double()).nan_to_num(0.0, 0.0, 0.0)
    return float(difference.norm()) if difference.is_floating_point() else 0.0
