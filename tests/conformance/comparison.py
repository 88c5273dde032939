"""One call of a module in eager and through Rekindle: where it ran, and whether everything it leaves behind is the same."""

from __future__ import annotations

import copy
import dataclasses
import random
import traceback
from collections.abc import Callable
from typing import Any

import numpy
import rekindle
import torch
from rekindle.compare.rounding import judge
from rekindle.process.random_states import random_states
from torch import nn
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

_TOLERANCE = {torch.float64: 1e-7, torch.float32: 1e-4, torch.bfloat16: 2e-2, torch.float16: 5e-3}
# A gradient that is zero but for rounding, before a normalization say, is as exact as the largest one beside it.
_FLOOR = 1e-3
calls = 2  # the first exports and verifies; the second is what training sees


@dataclasses.dataclass
class Outcome:
    """What became of one call.

    place: "onnx" (a graph without PyTorch's own operators), "torch" (a graph with some), "eager" or "skipped" (eager
    itself fails). reason: of eager, skipped and wrong ones. right: nothing differs from eager. replayed: calls whose launches
    the device repeated.
    """

    name: str
    place: str
    right: bool = True
    reason: str = ""
    replayed: int = 0


@dataclasses.dataclass
class Step:
    """All that one call and its backward leave behind. strides: of the outputs, of dimensions where they mean something."""

    outputs: list[Any]
    gradients: list[torch.Tensor | None]
    state: list[torch.Tensor]
    random_state: torch.Tensor
    strides: list[tuple[int, ...]] = dataclasses.field(default_factory=list)

    def tensors(self) -> list[torch.Tensor | None]:
        """Outputs, gradients and buffers, None for what is none."""
        outputs = [x if isinstance(x, torch.Tensor) else None for x in self.outputs]
        return [*outputs, *self.gradients, *self.state]


def step(called: Callable[..., Any], module: nn.Module, args: Any, kwargs: Any, seed: int) -> Step:
    """One forward, and one backward with cotangents that depend on the outputs' shapes alone."""
    module.zero_grad()
    args, kwargs = tree_map_only(torch.Tensor, _fresh, (args, kwargs))
    seed_all(seed)
    outputs = leaves_of(called(*args, **kwargs))
    roots = [x for x in outputs if isinstance(x, torch.Tensor) and x.requires_grad]
    generator = torch.Generator().manual_seed(seed)
    cotangents = [torch.randn(root.shape, generator=generator, dtype=torch.float64).to(root) for root in roots]
    if roots:
        torch.autograd.backward(roots, cotangents)
    random_state = torch.cat([state for state in random_states() if state is not None])
    leaves = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor) and x.is_leaf]
    wanted = [x for x in [*leaves, *module.parameters()] if x.requires_grad]
    gradients = [None if x.grad is None else _kept(x.grad) for x in wanted]
    strides = [_strides(x) for x in outputs if isinstance(x, torch.Tensor)]
    outputs = [_kept(x) if isinstance(x, torch.Tensor) else x for x in outputs]
    return Step(outputs, gradients, [x.detach().clone() for x in module.buffers()], random_state, strides)


def _strides(tensor: torch.Tensor) -> tuple[int, ...]:
    if tensor.layout is not torch.strided or tensor.numel() == 0:
        return ()
    return tuple(stride for stride, size in zip(tensor.stride(), tensor.shape, strict=True) if size > 1)


def seed_all(seed: int) -> None:
    """Of every generator that a forward may draw from."""
    torch.manual_seed(seed)
    random.seed(seed)
    numpy.random.seed(seed)


def nudge(module: nn.Module) -> nn.Module:
    """Moves the parameters of a module by a rounding error, and returns it."""
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in module.parameters():
            own = parameter.to_local() if isinstance(parameter, DTensor) else parameter
            noise = torch.randn(own.shape, generator=generator, dtype=own.dtype)
            own.mul_(1 + torch.finfo(own.dtype).eps * noise.to(own.device))
    return module


def leaves_of(value: Any) -> list[Any]:
    """Tensors and plain values of a result; of objects in it, such as a cache of keys and values, the attributes."""
    found = []
    for leaf in tree_leaves(value):
        is_object = hasattr(leaf, "__dict__") and not isinstance(leaf, (torch.Tensor, type))
        found += leaves_of(vars(leaf)) if is_object else [leaf]
    return found


def _kept(tensor: torch.Tensor) -> torch.Tensor:
    tensor = tensor.detach()
    return tensor.clone() if tensor.layout == torch.strided else tensor.to_dense()


def _fresh(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone().requires_grad_(tensor.requires_grad)


def difference(ours: Step, eager: Step, again: Callable[[], Step] | None = None) -> str:
    """What differs; empty when nothing does. again: makes eager's step once more, to see what rounding does to it."""
    if len(ours.outputs) != len(eager.outputs):
        return f"{len(ours.outputs)} outputs, in eager {len(eager.outputs)}"
    pairs = [("output", *pair) for pair in zip(ours.outputs, eager.outputs, strict=True)]
    pairs += [("gradient", *pair) for pair in zip(ours.gradients, eager.gradients, strict=True)]
    pairs += [("buffer", *pair) for pair in zip(ours.state, eager.state, strict=True)]
    largest = {what: max((_size(x) for kind, _, x in pairs if kind == what), default=0.0) for what, *_ in pairs}
    judged: list[Any] = []
    for i, (what, mine, theirs) in enumerate(pairs):
        found = _tensor_difference(mine, theirs, _FLOOR * largest[what])
        if found and again is not None and _may_be_rounding(mine, theirs):
            judged = judged or judge(lambda: again().tensors())
            found = "" if judged[i].admits(mine) else found
        if found:
            return f"{what} {i}: {found}"
    if ours.strides != eager.strides:
        return f"outputs have the strides {ours.strides}, in eager {eager.strides}"
    return "" if torch.equal(ours.random_state, eager.random_state) else "other random numbers were drawn"


def _size(x: Any) -> float:
    counts = isinstance(x, torch.Tensor) and x.numel() > 0 and (x.is_floating_point() or x.is_complex())
    return float(x.abs().nan_to_num(0, 0, 0).max()) if counts else 0.0


def _may_be_rounding(mine: Any, theirs: Any) -> bool:
    return all(isinstance(x, torch.Tensor) and x.is_floating_point() for x in (mine, theirs)) and mine.shape == theirs.shape


def _tensor_difference(mine: Any, theirs: Any, floor: float) -> str:
    if not isinstance(theirs, torch.Tensor) or not isinstance(mine, torch.Tensor):
        return "" if type(mine) is type(theirs) and mine == theirs else f"{mine!r}, in eager {theirs!r}"
    tolerance = _TOLERANCE.get(theirs.real.dtype if theirs.is_complex() else theirs.dtype, 0.0)
    try:
        torch.testing.assert_close(
            mine, theirs, rtol=tolerance, atol=tolerance * max(_size(theirs), floor, _FLOOR), equal_nan=True
        )
    except AssertionError as error:
        return " ".join(str(error).split())[:200]
    return ""


def on_device(value: Any, device: str) -> Any:
    """Arguments of a call, made on the CPU, as they are for a module on `device`."""

    def moved(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return leaf.detach().to(device).requires_grad_(leaf.requires_grad)
        return torch.device(device) if leaf == torch.device("cpu") or leaf == "cpu" else leaf

    return value if device == "cpu" else tree_map(moved, value)


def try_call(name: str, module: nn.Module, args: Any, kwargs: Any, options: rekindle.Options, device: str = "cpu") -> Outcome:
    """Run one call in eager and through Rekindle, twice each, on `device`."""
    try:
        module, args, kwargs = module.to(device), on_device(args, device), on_device(kwargs, device)
    except (RuntimeError, NotImplementedError) as error:
        return Outcome(name, "skipped", reason=f"{type(error).__name__}: {_first_line(error)}")
    untouched = copy.deepcopy(module)

    def in_eager(count: int) -> list[Step]:
        eager = copy.deepcopy(untouched)
        return [step(eager, eager, args, kwargs, seed) for seed in range(count)]

    try:
        expected = in_eager(calls)
    except Exception as error:
        return Outcome(name, "skipped", reason=f"{type(error).__name__}: {_first_line(error)}")
    wrapped = rekindle.Module(module, options)
    try:
        for seed in range(calls):
            found = difference(step(wrapped, module, args, kwargs, seed), expected[seed], lambda: in_eager(seed + 1)[-1])  # noqa: B023  (called at once)
            if found:
                return Outcome(name, place_of(wrapped), False, found)
    except Exception as error:
        return Outcome(name, place_of(wrapped), False, f"{type(error).__name__}: {_first_line(error)}; {where(error)}")
    return Outcome(
        name,
        place_of(wrapped),
        reason="; ".join(f"{code}: {text}" for code, text in rekindle.status(wrapped).bypass),
        replayed=rekindle.status(wrapped).replayed_calls,
    )


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]


def where(error: Exception) -> str:
    """`file.py:12` of the innermost frame."""
    frame = traceback.extract_tb(error.__traceback__)[-1]
    return f"{frame.filename.rsplit('/', 1)[-1]}:{frame.lineno}"


def place_of(wrapped: rekindle.Module) -> str:
    """Where the last call ran, as of Outcome."""
    if rekindle.status(wrapped).source == "eager":
        return "eager"
    plans = [variant.session.describe_plan() for kind in wrapped._runtime._kinds for variant in kind.graphs]
    return "torch" if any(" = aten." in plan for plan in plans) else "onnx"
